"""Label names and their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.sparse import indicator, indicator_from_lists, indptr_from_counts
from ramify.base.types import AnyArray, Csr, Label
from ramify.io.store import Store, StoreWriter

_MAX_DECODED = 1 << 20  # names that are kept once they were asked for


class LabelVocabulary(Sequence[Label]):
    """The names of L labels; a label's number is its place.

    Numbers are stable: names of one kind, all whole numbers or all strings, are in sorted order, so they do not depend
    on the order of the data. Other hashable names are numbered as they first appear.
    """

    def __init__(self, names: Iterable[Label]) -> None:
        self._names: list[Label] | range = names if isinstance(names, range) else list(names)
        self._packed: tuple[AnyArray, AnyArray, bool] | None = None
        self._decoded: dict[int, Label] = {}
        self._numbers: dict[Label, int] | None = None
        if len(self.numbers) != len(self._names):
            raise DataError("a label name occurs twice in the vocabulary")

    @classmethod
    def of(cls, rows: Iterable[Iterable[Label]]) -> LabelVocabulary:
        """Vocabulary of all labels in the rows."""
        seen: dict[Label, None] = {}
        for row in rows:
            seen.update(dict.fromkeys(row))
        kinds = {type(name) for name in seen}
        return cls(sorted(seen) if kinds in ({int}, {str}) else seen)  # type: ignore[type-var]

    @classmethod
    def _mapped(cls, text: AnyArray, offsets: AnyArray, tagged: bool) -> LabelVocabulary:
        """Vocabulary over stored arrays; names are decoded one by one when they are asked for."""
        vocabulary = cls(())
        vocabulary._packed = (text, offsets, tagged)
        vocabulary._numbers = None
        return vocabulary

    def __len__(self) -> int:
        return len(self._packed[1]) - 1 if self._packed else len(self._names)

    @overload
    def __getitem__(self, number: int) -> Label: ...
    @overload
    def __getitem__(self, number: slice) -> list[Label]: ...
    def __getitem__(self, number: int | slice) -> Label | list[Label]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if self._packed is None:
            return self._names[number]
        if not -len(self) <= number < len(self):
            raise IndexError(f"label number {number} of {len(self)}")
        text, offsets, tagged = self._packed
        at = number % len(self)
        if at in self._decoded:
            return self._decoded[at]
        try:
            name = bytes(text[int(offsets[at]) : int(offsets[at + 1])]).decode("utf-8", "surrogatepass")
            label = _from_json(json.loads(name)) if tagged else name
        except (ValueError, RecursionError) as error:
            raise ModelFormatError(f"the name of label {at} is damaged: {error}") from error
        if len(self._decoded) < _MAX_DECODED:
            self._decoded[at] = label
        return label

    def __iter__(self) -> Iterator[Label]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LabelVocabulary)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash((len(self), self[0] if len(self) else None))

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in self[:3])
        return f"<{len(self)} labels: {shown}{', …' if len(self) > 3 else ''}>"

    @property
    def numbers(self) -> dict[Label, int]:
        """Number of each name."""
        if self._numbers is None:
            self._numbers = {name: i for i, name in enumerate(self)}
        return self._numbers

    def is_numbers(self) -> bool:
        """Whether the names are simply 0 to L-1."""
        return isinstance(self._names, range) and self._packed is None and self._names == range(len(self._names))

    def save(self, writer: StoreWriter, prefix: str = "labels") -> dict[str, Any]:
        """Write the names; returns what `load` needs to know."""
        if self.is_numbers():
            return {"kind": "numbers", "n": len(self)}
        tagged = not all(type(name) is str for name in self)
        encoded = [
            (json.dumps(_to_json(name), ensure_ascii=False) if tagged else str(name)).encode("utf-8", "surrogatepass")
            for name in self
        ]
        offsets = indptr_from_counts([len(e) for e in encoded])
        writer.array(f"{prefix}_text", np.frombuffer(b"".join(encoded), np.uint8))
        writer.array(f"{prefix}_offsets", offsets)
        return {"kind": "tagged" if tagged else "text", "n": len(self)}

    @classmethod
    def load(cls, store: Store, info: Any, prefix: str = "labels") -> LabelVocabulary:
        """Open names that were saved with `save`."""
        kind, n = (info.get("kind"), info.get("n")) if isinstance(info, dict) else (None, None)
        if (
            kind not in ("numbers", "text", "tagged")
            or not isinstance(n, int)
            or isinstance(n, bool)
            or not 0 <= n < 2**31
        ):
            raise ModelFormatError("the manifest does not say how the label names are stored")
        if kind == "numbers":
            return cls._numbered(n)
        text = store.array(f"{prefix}_text", np.uint8, ndim=1)
        offsets = store.array(f"{prefix}_offsets", np.int64, shape=(n + 1,))
        if offsets[0] != 0 or int(offsets[-1]) != len(text) or np.any(offsets[1:] < offsets[:-1]):
            raise ModelFormatError("the borders of the label names do not fit their text")
        return cls._mapped(text, offsets, kind == "tagged")

    @classmethod
    def _numbered(cls, n: int) -> LabelVocabulary:
        vocabulary = cls(())
        vocabulary._names = range(n)
        vocabulary._numbers = None
        return vocabulary


def encode_labels(y: Any, n_rows: int | None = None) -> tuple[Csr, LabelVocabulary]:
    """Bring labels to an indicator matrix (n × L) and its vocabulary.

    `y` is a list of lists of hashable names, or an indicator matrix, whose labels are named 0 to L-1.
    """
    if sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2 and y.dtype != object):
        matrix = indicator(y)
        vocabulary = LabelVocabulary._numbered(matrix.shape[1])
    else:
        rows = label_rows(y)
        vocabulary = LabelVocabulary.of(rows)
        matrix = indicator_from_lists([[vocabulary.numbers[name] for name in row] for row in rows], len(vocabulary))
    if n_rows is not None and matrix.shape[0] != n_rows:
        raise DataError(f"X has {n_rows} rows, y has {matrix.shape[0]}")
    return matrix, vocabulary


def align_labels(y: Any, vocabulary: LabelVocabulary) -> tuple[Csr, int]:
    """Bring true labels to the numbers of a vocabulary.

    Returns an indicator (n × (L + U)) and L. The U columns behind the L of the vocabulary stand for labels that it does
    not know: they are true, but no model of that vocabulary can name them.
    """
    n_known = len(vocabulary)
    if sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2 and y.dtype != object):
        matrix = indicator(y)
        if matrix.shape[1] != n_known:
            raise DataError(f"the indicator has {matrix.shape[1]} columns, the model knows {n_known} labels")
        return matrix, n_known
    rows = label_rows(y)
    numbers, unknown = vocabulary.numbers, dict[Label, int]()
    columns = []
    for row in rows:
        columns.append([numbers[n] if n in numbers else unknown.setdefault(n, n_known + len(unknown)) for n in row])
    return indicator_from_lists(columns, n_known + len(unknown)), n_known


def label_rows(y: Any) -> list[list[Label]]:
    """Check a list of label lists."""
    if isinstance(y, str | bytes) or not hasattr(y, "__iter__"):
        raise DataError(f"y must be a list of label lists or an n × L indicator matrix; got {type(y).__name__}")
    rows: list[list[Label]] = []
    for i, row in enumerate(y):
        if isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
            raise DataError(
                f"the labels of row {i} are {row!r}; each row needs a list of labels, [{row!r}] for a single one"
            )
        names = [name.item() if isinstance(name, np.generic) else name for name in row]
        for name in names:
            try:
                hash(name)
            except TypeError:
                raise DataError(
                    f"label {name!r} of row {i} is not hashable; use a string, a number or a tuple"
                ) from None
            if name is None or (isinstance(name, float) and name != name):
                raise DataError(f"row {i} has {name!r} for a label")
        rows.append(names)
    return rows


def _to_json(name: Label) -> Any:
    """A name as JSON; a list marks a tuple, so that names of every kind come back as they were."""
    if isinstance(name, tuple):
        return [_to_json(part) for part in name]
    if isinstance(name, str | int | float | bool) or name is None:
        return name
    raise DataError(
        f"label {name!r} of type {type(name).__name__} cannot be saved; use strings, numbers or tuples of them"
    )


def _from_json(value: Any) -> Label:
    if isinstance(value, list):
        return tuple(_from_json(part) for part in value)
    if isinstance(value, dict):
        raise ModelFormatError("a label name is a JSON object")
    return value  # type: ignore[no-any-return]
