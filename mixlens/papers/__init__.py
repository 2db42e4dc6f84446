"""One file for each paper: its models, its runs, and every table, figure and number in the text with what makes it."""
