"""ALTI (Ferrando et al. 2022): its evaluations, its claims and its plan."""
