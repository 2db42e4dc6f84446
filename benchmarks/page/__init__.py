"""docs/measured/performance.md and its figures, from the results."""
