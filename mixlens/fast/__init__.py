"""The same numbers, sooner."""
