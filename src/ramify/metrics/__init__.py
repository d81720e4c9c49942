"""Evaluation metrics of rankings."""

from ramify.metrics.propensity import FAMILIES, LabelCounts, inverse_propensity
from ramify.metrics.report import Evaluation, evaluate

__all__ = ["FAMILIES", "Evaluation", "LabelCounts", "evaluate", "inverse_propensity"]
