"""Parameters and their optimizer: row-sparse Adam for large tables, Adam for dense arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.nn.ranks import Ranks, Shard, current_ranks

Arrays = dict[str, AnyArray]
"""Arrays by name: parameters or optimizer state."""
SavedArrays = Mapping[str, AnyArray | Shard]
"""The same as a checkpoint has them: of what is divided among ranks, each rank has its shard."""
Value = TypeVar("Value")

MAX_MAGNITUDE = 1e15
"""Largest magnitude of a number in a checkpoint; those of a training are far below, and larger ones overflow."""


def checked(
    arrays: Mapping[str, AnyArray],
    name: str,
    dtype: npt.DTypeLike,
    shape: tuple[int, ...],
    bounds: tuple[int, int] | None = None,
) -> AnyArray:
    """Return an array of a checkpoint that has this dtype, shape and, with `bounds`, low <= values < high.

    Kernels trust the state that they train on, and NumPy would broadcast an array of another shape.
    """
    array = arrays.get(name)
    if array is None or array.dtype != np.dtype(dtype) or array.shape != shape:
        found = "missing" if array is None else f"{array.dtype} {array.shape}"
        raise ModelFormatError(f"the checkpoint's array {name!r} is {found}; expected {np.dtype(dtype)} {shape}")
    if array.dtype.kind == "f" and array.size and not max(array.max(), -array.min()) <= MAX_MAGNITUDE:  # or NaN
        raise ModelFormatError(f"the checkpoint's array {name!r} has NaN, or magnitudes above {MAX_MAGNITUDE:g}")
    if bounds is not None and array.size and not (bounds[0] <= array.min() and array.max() < bounds[1]):
        raise ModelFormatError(f"the checkpoint's array {name!r} has values outside {bounds[0]} to {bounds[1] - 1}")
    return array


def restored(
    arrays: Mapping[str, AnyArray],
    name: str,
    dtype: npt.DTypeLike,
    shape: tuple[int, ...],
    bounds: tuple[int, int] | None = None,
) -> AnyArray:
    """Return a copy of a `checked` array."""
    return np.array(checked(arrays, name, dtype, shape, bounds))


@dataclass(frozen=True)
class Adam:
    """Settings of one Adam step (Kingma and Ba, 2015), with decoupled weight decay (AdamW); `step` counts from 1."""

    learning_rate: float
    step: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    @property
    def native(self) -> native.neural.AdamOptions:
        """The settings as the native bindings take them."""
        return native.neural.AdamOptions(**vars(self))


@dataclass(eq=False)
class RowTable:
    """A table (n, D) with an optional bias (n,), of which a step updates only the rows in use.

    Moments are allocated when a row is first used, so a table of a million rows costs no more than the rows that are
    trained. They stay unchanged while their row is not used; the bias correction counts all steps, as in torch's
    SparseAdam.
    """

    weights: FloatArray
    bias: FloatArray | None
    n_rows: int = field(init=False)
    _slots: LongArray | None = field(init=False, default=None, repr=False)
    _moments: tuple[FloatArray, FloatArray] | None = field(init=False, default=None, repr=False)
    _n_slots: int = field(init=False, default=0, repr=False)

    def __post_init__(self) -> None:
        self.n_rows = len(self.weights)

    def arrays(self) -> Arrays:
        """Return the trained arrays themselves, not copies."""
        return {"weights": self.weights} if self.bias is None else {"weights": self.weights, "bias": self.bias}

    def whole(self) -> tuple[FloatArray, FloatArray]:
        """Weights (n, D) and bias (n,) of all rows."""
        assert self.bias is not None
        return self.weights, self.bias

    def saved(self, arrays: Arrays) -> SavedArrays:
        """Arrays with the names of `arrays()`, as a checkpoint has them."""
        return arrays

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Mapping[str, AnyArray]:
        """Reverse `saved`: what this process holds of the arrays of a checkpoint."""
        return arrays

    def merged(self, ids: IntArray, scores: FloatArray, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids of all rows, and scores (n, k), given those that each rank has found among its own rows."""
        return ids, scores

    def optimizer_state(self) -> SavedArrays:
        """Return Adam's moments and the slot of each row; empty before the first step."""
        return self._own_state()

    def _own_state(self) -> Arrays:
        if self._slots is None or self._moments is None:
            return {}
        first, second = (part[: self._n_slots] for part in self._moments)
        return {"slots": self._slots, "first": first, "second": second}

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        if not state:
            return
        n, dim = self.weights.shape
        n_slots = len(state["first"]) if "first" in state else 0
        slots = restored(state, "slots", np.int64, (n,), (-1, n_slots))
        if len(np.unique(slots[slots >= 0])) != n_slots or np.count_nonzero(slots >= 0) != n_slots:
            raise ModelFormatError("the checkpoint's slots are not one for each row in use")
        first, second = (restored(state, name, np.float32, (n_slots, dim + 1)) for name in ("first", "second"))
        self._slots, self._moments, self._n_slots = slots, (first, second), n_slots

    def reset_optimizer(self) -> None:
        """Drop the optimizer state."""
        self._slots, self._moments, self._n_slots = None, None, 0

    def dot(
        self,
        pairs: native.neural.Pairs,
        width: int,
        embeddings: FloatArray,
        threads: int,
        bias_shift: FloatArray | None = None,
    ) -> FloatArray:
        """Products (n, width) of embeddings (n, D) with their candidate rows, plus the bias, and a shift of it (n,)."""
        assert self.bias is not None
        bias = self.bias if bias_shift is None else self.bias + bias_shift
        return native.neural.gather_dot(pairs, width, self.weights, bias, embeddings, threads)

    def dot_backward(self, pairs: native.neural.Pairs, gradients: FloatArray, threads: int) -> FloatArray:
        """Gradients of the embeddings (n, D), given those of the products (n, width)."""
        return native.neural.gather_dot_backward(pairs, self.weights, gradients, threads)

    def step(
        self, pairs: native.neural.Pairs, gradients: FloatArray, embeddings: FloatArray, adam: Adam, threads: int
    ) -> None:
        """Update the rows in use; the gradient of a row is Σ gradient · embedding over its pairs.

        A row all of whose pairs have zero gradient is not in use.
        """
        rows = pairs[0]
        if self._slots is None or self._moments is None:
            self._slots, self._moments = np.full(len(self.weights), -1, np.int64), self._zero_moments(0)
        new = rows[self._slots[rows] < 0]
        if len(new):
            self._slots[new] = self._n_slots + np.arange(len(new))
            self._n_slots += len(new)
            if self._n_slots > len(self._moments[0]):
                self._grow(min(len(self.weights), max(self._n_slots, 2 * len(self._moments[0]))))
        slots = self._slots[rows]
        native.neural.adam_rows(
            pairs, gradients, embeddings, self.weights, self.bias, slots, self._moments, adam.native, threads
        )

    def _grow(self, n_slots: int) -> None:
        assert self._moments is not None
        old, self._moments = self._moments, self._zero_moments(n_slots)
        for before, now in zip(old, self._moments, strict=True):
            now[: len(before)] = before

    def _zero_moments(self, n: int) -> tuple[FloatArray, FloatArray]:
        shape = n, self.weights.shape[1] + 1  # the last column belongs to the bias
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)


class ShardedTable(RowTable):
    """A table of which each rank holds, and updates, a range of the rows. Methods are called by all ranks together."""

    def __init__(self, weights: FloatArray, bias: FloatArray, ranks: Ranks) -> None:
        self.ranks, self.own = ranks, ranks.part(len(weights))
        super().__init__(weights[self.own].copy(), bias[self.own].copy())
        self.n_rows = len(weights)

    def whole(self) -> tuple[FloatArray, FloatArray]:
        """Weights (n, D) and bias (n,) of all rows, from all ranks, in mapped files."""
        weights, bias = (self.ranks.concatenate(part, in_file=True) for part in super().whole())
        return weights, bias

    def saved(self, arrays: Arrays) -> SavedArrays:
        """Arrays with the names of `arrays()`, as shards."""
        return {name: Shard.of(array, self.ranks) for name, array in arrays.items()}

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Mapping[str, AnyArray]:
        """Reverse `saved`: the rows of this rank."""
        own = self.arrays()
        shapes = {name: (self.n_rows, *array.shape[1:]) for name, array in own.items()}
        return {
            name: np.array(checked(arrays, name, array.dtype, shapes[name])[self.own]) for name, array in own.items()
        }

    def merged(self, ids: IntArray, scores: FloatArray, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids of all rows, and scores (n, k), of the best of all ranks."""
        ids = np.where(ids >= 0, ids + np.int32(self.own.start), -1).astype(np.int32)
        (n, k), size = ids.shape, self.ranks.size

        def of_all_ranks(part: AnyArray) -> AnyArray:
            return self.ranks.concatenate(part).reshape(size, n, k).swapaxes(0, 1).reshape(n, size * k)

        return native.matrix.list_topk(of_all_ranks(ids), of_all_ranks(scores), k, threads)

    def optimizer_state(self) -> SavedArrays:
        """Return the shard of this rank of the state of one table."""
        state = self._own_state()
        if not state:
            return state
        n_slots = self.ranks.concatenate(np.array([self._n_slots]))
        before = int(n_slots[: self.ranks.rank].sum())
        state["slots"] = np.where(state["slots"] >= 0, state["slots"] + before, -1)
        return self.saved(state)

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore the rows of this rank from the state of one table, or of any number of ranks."""
        if not state:
            return
        shape = len(state.get("first", ())), self.weights.shape[1] + 1
        slots = np.array(checked(state, "slots", np.int64, (self.n_rows,), (-1, shape[0]))[self.own])
        used = slots >= 0
        moments = {name: checked(state, name, np.float32, shape)[slots[used]] for name in ("first", "second")}
        slots[used] = np.arange(int(used.sum()))
        super().set_optimizer_state({"slots": slots, **moments})

    def dot(
        self,
        pairs: native.neural.Pairs,
        width: int,
        embeddings: FloatArray,
        threads: int,
        bias_shift: FloatArray | None = None,
    ) -> FloatArray:
        """Products (n, width) of embeddings (n, D) with their candidate rows, plus the bias, and a shift of it (n,)."""
        shift = None if bias_shift is None else bias_shift[self.own]
        return self.ranks.sum(super().dot(self._own_pairs(pairs), width, embeddings, threads, shift))

    def dot_backward(self, pairs: native.neural.Pairs, gradients: FloatArray, threads: int) -> FloatArray:
        """Gradients of the embeddings (n, D), given those of the products (n, width)."""
        return self.ranks.sum(super().dot_backward(self._own_pairs(pairs), gradients, threads))

    def step(
        self, pairs: native.neural.Pairs, gradients: FloatArray, embeddings: FloatArray, adam: Adam, threads: int
    ) -> None:
        """Update the rows of this rank that are in use."""
        super().step(self._own_pairs(pairs), gradients, embeddings, adam, threads)

    def _own_pairs(self, pairs: native.neural.Pairs) -> native.neural.Pairs:
        """Pairs of the rows of this rank, which are a range of the ascending rows."""
        rows, indptr, positions = pairs
        first, last = np.searchsorted(rows, (self.own.start, self.own.stop))
        own = slice(indptr[first], indptr[last])
        return rows[first:last] - np.int32(self.own.start), indptr[first : last + 1] - indptr[first], positions[own]


def label_table(weights: FloatArray, bias: FloatArray) -> RowTable:
    """Table of label classifiers, weights (L, D) and bias (L,); divided among the ranks if there are several."""
    ranks = current_ranks()
    return RowTable(weights, bias) if ranks.size == 1 else ShardedTable(weights, bias, ranks)


class DenseParameter:
    """An array that every step updates as a whole."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self._moments: tuple[FloatArray, FloatArray] | None = None

    def arrays(self) -> Arrays:
        """Return the trained array itself, not a copy."""
        return {"values": self.values}

    def optimizer_state(self) -> Arrays:
        """Return Adam's moments; empty before the first step."""
        return {} if self._moments is None else dict(zip(("first", "second"), self._moments, strict=True))

    def saved(self, arrays: Arrays) -> SavedArrays:
        """Return the arrays: every rank has all of them."""
        return arrays

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Mapping[str, AnyArray]:
        """Return the arrays: every rank has all of them."""
        return arrays

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        if state:
            first, second = (restored(state, name, np.float32, self.values.shape) for name in ("first", "second"))
            self._moments = first, second

    def reset_optimizer(self) -> None:
        """Drop the optimizer state."""
        self._moments = None

    def step(self, gradients: FloatArray, adam: Adam) -> None:
        """Update the array, given its gradients."""
        gradients = np.ascontiguousarray(gradients, np.float32)
        native.neural.adam_dense(self.values, gradients, self.moments(), adam.native)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return the moments for an update in place; zeros before the first step."""
        if self._moments is None:
            self._moments = np.zeros_like(self.values), np.zeros_like(self.values)
        return self._moments


class Trainable:
    """Base of encoders and heads that are made of tables and dense parameters."""

    def parameters(self) -> Mapping[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        raise NotImplementedError

    def arrays(self) -> Arrays:
        """Return the trained arrays themselves, each under the name of its parameter."""
        return {f"{name}.{key}": a for name, part in self.parameters().items() for key, a in part.arrays().items()}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all arrays."""
        for name, array in self.arrays().items():
            array[...] = checked(arrays, name, array.dtype, array.shape)

    def saved(self, arrays: Arrays) -> SavedArrays:
        """Arrays with the names of `arrays()`, as a checkpoint has them."""
        parts = ((name, part.saved(select_prefix(name, arrays))) for name, part in self.parameters().items())
        return {f"{name}.{key}": array for name, part in parts for key, array in part.items()}

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Arrays:
        """Reverse `saved`: what this process holds of the arrays of a checkpoint."""
        parts = ((name, part.own_part(select_prefix(name, arrays))) for name, part in self.parameters().items())
        return {f"{name}.{key}": array for name, part in parts for key, array in part.items()}

    def optimizer_state(self) -> SavedArrays:
        """Return the optimizer state of all parameters, as a checkpoint has it."""
        return {
            f"{name}.{key}": a for name, part in self.parameters().items() for key, a in part.optimizer_state().items()
        }

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        for name, part in self.parameters().items():
            part.set_optimizer_state(select_prefix(name, state))

    def reset_optimizer(self) -> None:
        """Drop the optimizer state of all parameters."""
        for part in self.parameters().values():
            part.reset_optimizer()


def add_prefix(owner: str, arrays: Mapping[str, Value]) -> dict[str, Value]:
    """Prefix the names of arrays with that of their owner."""
    return {f"{owner}.{name}": array for name, array in arrays.items()}


def select_prefix(owner: str, arrays: Mapping[str, AnyArray]) -> Arrays:
    """Select the arrays of an owner, without the prefix."""
    return {name[len(owner) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{owner}.")}
