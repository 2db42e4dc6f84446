"""One file per method or per paper. A file is found by being in this folder (docs/add-a-method.md)."""
