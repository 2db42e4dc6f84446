"""Which method to trust on a model and its data. See docs/use/judging.md."""
