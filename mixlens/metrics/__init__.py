"""Judging: functions over values that return numbers, one file per theme. `known()` lists them, `summary` averages
them.

A metric is a plain function of one example (or of a whole set, where its paper defines it so). What is averaged over
examples always comes with an interval: see `intervals`.
"""

from .intervals import Interval, mean_with_interval
from .registry import METRICS, Metric, known, metric, summary

__all__ = ["METRICS", "Interval", "Metric", "known", "mean_with_interval", "metric", "summary"]
