"""What all decision rules have in common: the base class, the held-out rows that they are fitted to, F1 by sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from ramify import native
from ramify.base.types import AnyArray, BoolArray, Csr, FloatArray, IntArray, LongArray
from ramify.io.store import Store, StoreWriter


@dataclass(frozen=True)
class HeldOut:
    """Candidates (n, k) with their probabilities, best first, and the true labels of held-out rows.

    The first `n_labels` columns of `truth` are the labels of the model, the others labels that it does not know.
    """

    ids: IntArray
    probabilities: FloatArray
    truth: Csr
    n_labels: int

    @property
    def hits(self) -> BoolArray:
        """Whether each candidate (n, k) is true."""
        return native.matrix.ranking_hits(self.ids, self.truth, 1).view(bool)

    @property
    def n_true(self) -> LongArray:
        """Number of true labels (n,)."""
        return np.asarray(np.diff(self.truth.indptr), np.int64)


@dataclass(frozen=True)
class DecisionRule(ABC):
    """Base of all rules. The fields of a rule are its parameters and what `fit` has found."""

    name: ClassVar[str] = ""
    """Name on the command line and in files."""
    needs_probabilities: ClassVar[bool] = True
    has_guarantee: ClassVar[bool] = False
    """Whether `fit` must see other rows than those that the probabilities were fitted to."""
    found_by_fit: ClassVar[tuple[str, ...]] = ()
    """Fields that `fit` sets; the others are parameters."""

    @abstractmethod
    def fit(self, data: HeldOut) -> Self:
        """Return the rule, fitted to held-out rows."""

    @abstractmethod
    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Which candidates (n, k) are chosen, given their probabilities (n, k), best first, -inf for padding."""

    @property
    def width(self) -> int:
        """Candidates that the rule looks at in the first place; more, while all of a row are chosen."""
        return 100

    def is_settled(self, width: int) -> bool:
        """Whether more candidates than this cannot change the choice."""
        return False

    def is_fitted_by(self, fitted: DecisionRule | None) -> bool:
        """Whether another rule is this one after `fit`: of its kind and parameters, while this one is not fitted."""
        if type(fitted) is not type(self):
            return False
        made = {f.name: f.default for f in fields(self) if f.name in self.found_by_fit}
        values = ((getattr(self, f.name), made.get(f.name, getattr(fitted, f.name))) for f in fields(self))
        return all(np.array_equal(own, other) for own, other in values)

    def to_dict(self) -> dict[str, Any]:
        """Name, parameters and what was fitted, as plain values."""
        return {"name": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the rule into a model directory; return its description for the manifest."""
        return self.to_dict()

    @classmethod
    def load_from(cls, store: Store, info: dict[str, Any], prefix: str, n_labels: int) -> Self:
        """Open what `save_to` wrote."""
        return cls(**info)

    def _not_fitted(self) -> ValueError:
        return ValueError(
            f"{self!r} has not been fitted; pass it to calibrate(X, y, rule=...) with held-out rows (in the shell: "
            f"ramify calibrate --rule {self.name})"
        )


def mean_f1(hits: BoolArray, n_true: LongArray, counts: AnyArray) -> float:
    """Mean F1 over rows with a true label, if the first counts (n,) candidates are chosen."""
    counts = np.minimum(np.asarray(counts, np.int64), hits.shape[1])
    last = np.maximum(counts - 1, 0)[:, None]
    found = np.where(counts > 0, np.take_along_axis(np.cumsum(hits, axis=1), last, 1)[:, 0], 0)
    rows = n_true > 0
    return float(np.mean(2 * found[rows] / (counts + n_true)[rows])) if rows.any() else 0.0


def check_fraction(cls: str, name: str, value: Any) -> None:
    """Check that a parameter is a number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ValueError(f"{cls}.{name} must be a number between 0 and 1; got {value!r}")
