"""Parameters and their optimiser: tables of which a step uses a few rows, and small dense arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ramify import native
from ramify.base.types import AnyArray, FloatArray, LongArray

Arrays = dict[str, AnyArray]
"""Arrays by name: what a part has learned, or what its optimiser remembers."""


@dataclass(frozen=True)
class Adam:
    """Settings of one step."""

    rate: float
    step: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    @property
    def numbers(self) -> native.neural.Adam:
        """What native code takes."""
        return self.rate, self.beta1, self.beta2, self.epsilon, self.weight_decay, self.step


@dataclass(eq=False)
class RowTable:
    """A table (n, D) with an offset for each row, trained by Adam on the rows that a step uses.

    Moments are made when a row is first used, so that a table of a million rows costs no more than it must. They rest
    while their row is not used; the bias correction counts all steps, as in torch's SparseAdam.
    """

    weights: FloatArray
    offset: FloatArray | None
    _slots: LongArray | None = field(init=False, default=None, repr=False)
    _moments: tuple[FloatArray, FloatArray] | None = field(init=False, default=None, repr=False)
    _n_slots: int = field(init=False, default=0, repr=False)

    def arrays(self) -> Arrays:
        """What is trained; the arrays themselves."""
        return {"weights": self.weights} if self.offset is None else {"weights": self.weights, "offset": self.offset}

    def moments(self) -> Arrays:
        """What Adam remembers, none before the first step."""
        if self._slots is None or self._moments is None:
            return {}
        return {"slots": self._slots, **_two(tuple(part[: self._n_slots] for part in self._moments))}

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        if moments:
            self._slots = np.array(moments["slots"])
            self._moments = np.array(moments["first"]), np.array(moments["second"])
            self._n_slots = len(self._moments[0])

    def forget(self) -> None:
        """Drop the moments."""
        self._slots, self._moments, self._n_slots = None, None, 0

    def _room(self, n: int) -> tuple[FloatArray, FloatArray]:
        width = self.weights.shape[1] + 1
        return np.zeros((n, width), np.float32), np.zeros((n, width), np.float32)

    def dot(self, pairs: native.neural.Pairs, width: int, vectors: FloatArray, threads: int) -> FloatArray:
        """Products (n, width) of vectors (n, D) with the rows on their lists."""
        assert self.offset is not None
        return native.neural.gather_dot(pairs, width, self.weights, self.offset, vectors, threads)

    def dot_back(self, pairs: native.neural.Pairs, gradients: FloatArray, threads: int) -> FloatArray:
        """Gradients of the vectors (n, D) from those of the products (n, width)."""
        return native.neural.gather_dot_backward(pairs, self.weights, gradients, threads)

    def step(
        self, pairs: native.neural.Pairs, gradients: FloatArray, vectors: FloatArray, adam: Adam, threads: int
    ) -> None:
        """Move the rows in use; the gradient of a row is Σ gradient · vector over its pairs.

        A row all of whose pairs have a gradient of 0 is not in use.
        """
        rows = pairs[0]
        if self._slots is None or self._moments is None:
            self._slots, self._moments = np.full(len(self.weights), -1, np.int64), self._room(0)
        new = rows[self._slots[rows] < 0]
        if len(new):
            self._slots[new] = self._n_slots + np.arange(len(new))
            self._n_slots += len(new)
            if self._n_slots > len(self._moments[0]):
                old = self._moments
                self._moments = self._room(min(len(self.weights), max(self._n_slots, 2 * len(old[0]))))
                for before, now in zip(old, self._moments, strict=True):
                    now[: len(before)] = before
        native.neural.adam_rows(
            pairs,
            gradients,
            vectors,
            self.weights,
            self.offset,
            self._slots[rows],
            self._moments,
            adam.numbers,
            threads,
        )


class DenseParameter:
    """A small array, trained by Adam as a whole."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self._moments: tuple[FloatArray, FloatArray] | None = None

    def arrays(self) -> Arrays:
        """What is trained; the array itself."""
        return {"values": self.values}

    def moments(self) -> Arrays:
        """What Adam remembers, none before the first step."""
        return {} if self._moments is None else _two(self._moments)

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        if moments:
            self._moments = np.array(moments["first"]), np.array(moments["second"])

    def forget(self) -> None:
        """Drop the moments."""
        self._moments = None

    def step(self, gradients: FloatArray, adam: Adam) -> None:
        """Move the array against its gradients."""
        native.neural.adam_dense(
            self.values, np.ascontiguousarray(gradients, np.float32), self.ready_moments(), adam.numbers
        )

    def ready_moments(self) -> tuple[FloatArray, FloatArray]:
        """Moments to change in place, noughts before the first step."""
        if self._moments is None:
            self._moments = np.zeros_like(self.values), np.zeros_like(self.values)
        return self._moments


class Parts:
    """Base of what is made of tables and parameters: their arrays and moments together, each under its part's name."""

    def parts(self) -> dict[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        raise NotImplementedError

    def arrays(self) -> Arrays:
        """What is trained; the arrays themselves."""
        return {f"{name}.{key}": a for name, part in self.parts().items() for key, a in part.arrays().items()}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all arrays."""
        for name, array in self.arrays().items():
            array[...] = arrays[name]

    def moments(self) -> Arrays:
        """What the optimiser remembers."""
        return {f"{name}.{key}": a for name, part in self.parts().items() for key, a in part.moments().items()}

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        for name, part in self.parts().items():
            own = f"{name}."
            part.set_moments({key[len(own) :]: a for key, a in moments.items() if key.startswith(own)})


def _two(moments: tuple[FloatArray, ...]) -> Arrays:
    return {"first": moments[0], "second": moments[1]}


def named_arrays(owner: str, arrays: Arrays) -> Arrays:
    """Put the name of their owner before the names of arrays."""
    return {f"{owner}.{name}": array for name, array in arrays.items()}


def arrays_of(owner: str, arrays: Mapping[str, AnyArray]) -> Arrays:
    """Pick the arrays of an owner, by their own names."""
    return {name[len(owner) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{owner}.")}
