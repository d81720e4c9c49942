"""From raw scores to comparable ones, and how they combine along the path from the root to a label.

Everything is computed in log space: a path's score is a sum, never a product that runs into zero. The forms without
"log-" give its exponential at the very end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.types import AnyArray
from ramify.native.linear import MARGIN_BONUS

CERTAIN_MARGIN = 40.0
"""What a label that nothing speaks against gets on top: more than any other has."""

_HINGE = re.compile(r"(log-)?l(\d+(?:\.\d+)?)-(hinge|norm)")


@dataclass(frozen=True)
class Transform:
    """What becomes of the raw score v of a node, given the log score g of its parent.

    ============ ============================ =======================
    name         log score                    score that users see
    ============ ============================ =======================
    noop         v, whatever g                the same
    sigmoid      g + log σ(v)                 its exponential
    lp-hinge     g - max(0, 1 - v)^p          its exponential
    lp-norm      as lp-hinge                  exp(-s), s the p-th root of the shortfall
    log-…        as without "log-"            without the exponential
    ============ ============================ =======================

    lp-norm ranks exactly as lp-hinge does, but its scores are spread out: for large p those of lp-hinge are all near 0
    or 1. It is the exponential of the p-norm of what the nodes of the path fall short of a margin of 1.
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
    def parse(cls, name: str) -> Transform:
        """Find a transform by its name, such as "l3-hinge", "log-sigmoid" or "noop"."""
        if name == "noop":
            return cls(name, cls.NOOP, 1.0, True)
        if name in ("sigmoid", "log-sigmoid"):
            return cls(name, cls.SIGMOID, 1.0, name.startswith("log-"))
        match = _HINGE.fullmatch(name)
        if match and float(match[2]) > 0:
            return cls(name, cls.HINGE, float(match[2]), match[1] is not None, match[3] == "norm")
        raise ValueError(
            f"unknown score transform {name!r}; there are noop, sigmoid, log-sigmoid, and l1-hinge, l2-hinge, l3-hinge "
            "and so on, also as l3-norm, log-l3-hinge and log-l3-norm"
        )

    def log_score(self, v: Any, parent: Any = 0.0, *, are_labels: bool = True) -> AnyArray:
        """Return the log score of raw scores v below parents with the given log scores."""
        v = np.asarray(v, np.float32)
        if self.kind == self.NOOP:
            return np.asarray(v)
        if self.kind == self.SIGMOID:
            return np.asarray(parent - np.logaddexp(np.float32(0), -v), np.float32)
        short, over = np.maximum(np.float32(0), 1 - v), np.clip(v - 1, 0, None if are_labels else 1)
        return np.asarray(parent - short ** np.float32(self.power) + MARGIN_BONUS * over, np.float32)

    def spread(self, log_scores: AnyArray) -> AnyArray:
        """Return what is averaged over trees: log scores, spread out by the root for norms."""
        if not self.is_norm:
            return log_scores
        root = np.maximum(-log_scores, 0) ** np.float32(1 / self.power)
        return np.asarray(np.where(log_scores > 0, log_scores, -root), np.float32)  # over 0: the bonus of wide margins

    def finish(self, log_scores: AnyArray) -> AnyArray:
        """Return the scores that users see, from what `spread` gave."""
        if self.kind != self.NOOP:
            log_scores = np.minimum(log_scores, 0)
        return np.asarray(log_scores if self.is_log else np.exp(log_scores))
