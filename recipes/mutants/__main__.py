"""`python -m recipes.mutants`."""

import sys

from .sample import main

sys.exit(main())
