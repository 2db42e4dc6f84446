"""On Identifiability in Transformers (Brunner et al. 2020): its evaluations, its claims and its plan."""
