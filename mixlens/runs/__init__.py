"""Runs that can be killed and continued: whole corpora, experiments of the papers, the judge of methods."""
