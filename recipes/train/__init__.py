"""Training: models as the papers used them, and the two embedded models."""
