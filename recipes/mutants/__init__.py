"""How many faults do the tests see? `python -m recipes.mutants`; see `sample`."""
