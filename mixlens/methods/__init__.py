"""One file per method or per paper. A file is found by being in this folder (docs/extend/add-a-method.md)."""
