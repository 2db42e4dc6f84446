"""mix and attribute: what is asked of a trace, and what comes out, proven."""
