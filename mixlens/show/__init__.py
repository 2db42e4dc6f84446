"""Values in, strings out."""
