"""Commands that make what the project ships or reports: embedded models, tables in docs/. Not installed."""
