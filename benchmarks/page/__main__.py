"""`python -m benchmarks.page`."""

from .page import main

main()
