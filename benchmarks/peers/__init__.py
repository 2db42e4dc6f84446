"""`python -m benchmarks.peers`: other packages on the same models, where they install."""
