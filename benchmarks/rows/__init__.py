"""What is measured: one file for each group of rows."""
