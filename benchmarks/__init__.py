"""`python -m benchmarks`: each method against one plain forward pass and against the obvious code, in one run."""
