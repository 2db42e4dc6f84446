"""What `make docs` adds to the pages of docs/ when it builds the site."""
