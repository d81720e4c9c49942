"""Score transforms: from the margin of a node to a score that combines along the path from the root to a label.

Scores are computed in log space, where the score of a path is a sum: a product of small numbers would underflow to 0.
Transforms whose name does not start with "log-" return the exponential at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.types import AnyArray
from ramify.native.linear import MARGIN_BONUS

CERTAIN_MARGIN = 40.0
"""Margin added to a label that every sample has: more than any trained margin."""
MAX_BONUS = 5e-4
"""Room for the bonus of wide margins: hinge scores are lowered by it, so that they stay below 1 without ties there."""

_HINGE = re.compile(r"(log-)?l(\d+(?:\.\d+)?)-(hinge|norm)")


@dataclass(frozen=True)
class ScoreTransform:
    """Score of a node from its margin v and the log score g of its parent (PECOS: Yu et al. 2022).

    ============ ============================ =========================
    name         log score                    score in the ranking
    ============ ============================ =========================
    noop         v, g is ignored              v
    sigmoid      g + log σ(v)                 exp(log score)
    lp-hinge     g - max(0, 1 - v)^p          exp(log score)
    lp-norm      as lp-hinge                  exp(-(-log score)^(1/p))
    log-…        as without "log-"            without the exponential
    ============ ============================ =========================

    lp-norm ranks exactly as lp-hinge. Its score is exp(-‖h‖ₚ), where h are the hinge losses of the nodes on the path,
    and is spread over (0, 1], while for large p the scores of lp-hinge are all close to 0 or 1.
    """

    NOOP: ClassVar[int] = 0
    SIGMOID: ClassVar[int] = 1
    HINGE: ClassVar[int] = 2

    name: str
    kind: int
    power: float
    is_log: bool
    is_norm: bool = False

    @classmethod
    def parse(cls, name: str) -> ScoreTransform:
        """Return the transform with the given name, such as "l3-hinge", "log-sigmoid" or "noop"."""
        if name == "noop":
            return cls(name, cls.NOOP, 1.0, True)
        if name in ("sigmoid", "log-sigmoid"):
            return cls(name, cls.SIGMOID, 1.0, name.startswith("log-"))
        match = _HINGE.fullmatch(name)
        if match and float(match[2]) > 0:
            return cls(name, cls.HINGE, float(match[2]), match[1] is not None, match[3] == "norm")
        raise ValueError(
            f"unknown score transform {name!r}; use 'noop', 'sigmoid', or 'lp-hinge' or 'lp-norm' with a number p > 0, "
            "such as 'l3-hinge'; all but 'noop' also take the prefix 'log-'"
        )

    def log_score(self, v: Any, parent: Any = 0.0, *, are_labels: bool = True) -> AnyArray:
        """Log scores of nodes with margins v, below parents with the given log scores."""
        v = np.asarray(v, np.float32)
        if self.kind == self.NOOP:
            return np.asarray(v)
        if self.kind == self.SIGMOID:
            return np.asarray(parent - np.logaddexp(np.float32(0), -v), np.float32)
        hinge, excess = np.maximum(np.float32(0), 1 - v), np.clip(v - 1, 0, None if are_labels else 1)
        return np.asarray(parent - hinge ** np.float32(self.power) + MARGIN_BONUS * excess, np.float32)

    def spread(self, log_scores: AnyArray) -> AnyArray:
        """Log scores to average over trees: -‖h‖ₚ for norms, unchanged for the others."""
        if not self.is_norm:
            return log_scores
        root = np.maximum(-log_scores, 0) ** np.float32(1 / self.power)
        return np.asarray(np.where(log_scores > 0, log_scores, -root), np.float32)  # above 0: MARGIN_BONUS

    def finish(self, log_scores: AnyArray) -> AnyArray:
        """Scores of the ranking, from the results of `spread`."""
        if self.is_log:
            return np.asarray(log_scores)
        return np.asarray(np.exp(np.minimum(log_scores - np.float32(MAX_BONUS if self.kind == self.HINGE else 0), 0)))
