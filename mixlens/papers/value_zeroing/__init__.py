"""Value Zeroing (Mohebbi et al. 2023): its evaluations, its claims and its plan."""
