"""`python -m mixlens` is the command line."""

from .cli import main

main()
