"""Generated pages and figures of docs/: each file writes one of them."""
