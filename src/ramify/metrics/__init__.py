"""Evaluation metrics of rankings."""

from ramify.metrics.annif import annif_label_table, annif_metrics
from ramify.metrics.bootstrap import Comparison, compare
from ramify.metrics.propensity import FAMILIES, LabelCounts, inverse_propensity
from ramify.metrics.reliability import Reliability, reliability
from ramify.metrics.report import Evaluation, evaluate

__all__ = [
    "FAMILIES",
    "Comparison",
    "Evaluation",
    "LabelCounts",
    "Reliability",
    "annif_label_table",
    "annif_metrics",
    "compare",
    "evaluate",
    "inverse_propensity",
    "reliability",
]
