"""Labels and their ids: the vocabulary of a model, encoding of y."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.frames import as_array, column_names, is_frame, is_missing, numeric_matrix, to_list, to_python
from ramify.base.sparse import ascends, indicator, indicator_from_lists, indptr_from_counts
from ramify.base.types import AnyArray, Csr, Label
from ramify.io.store import Store, StoreWriter

_MAX_DECODED = 1 << 20  # size of the cache of decoded labels
_DECODED_AT_ONCE = 4096  # labels of an iteration


class LabelVocabulary(Sequence[Label]):
    """The L labels in the order of their ids 0 to L-1.

    Labels that are all integers or all strings are sorted, so their ids do not depend on the order of the data. Other
    hashable labels get ids in the order of first occurrence.
    """

    def __init__(self, labels: Iterable[Label]) -> None:
        self._labels: list[Label] | range = labels if isinstance(labels, range) else list(labels)
        self._packed: tuple[AnyArray, AnyArray, bool] | None = None
        self._decoded: dict[int, Label] = {}
        self._ids: dict[Label, int] | None = None
        if not isinstance(labels, range) and len(self.ids) != len(self._labels):  # ids of a range take no memory
            raise DataError("a label occurs twice in the vocabulary")

    @classmethod
    def of(cls, rows: Iterable[Iterable[Label]]) -> LabelVocabulary:
        """Vocabulary of all labels in the rows."""
        seen: dict[Label, None] = {}
        for row in rows:
            seen.update(dict.fromkeys(row))
        types = {type(label) for label in seen}
        return cls(sorted(seen) if types in ({int}, {str}) else seen)  # type: ignore[type-var]

    @classmethod
    def _mapped(cls, text: AnyArray, offsets: AnyArray, tagged: bool) -> LabelVocabulary:
        """Vocabulary over stored arrays; labels are decoded on access."""
        vocabulary = cls(())
        vocabulary._packed = (text, offsets, tagged)
        vocabulary._ids = None
        return vocabulary

    def __len__(self) -> int:
        return len(self._packed[1]) - 1 if self._packed else len(self._labels)

    @overload
    def __getitem__(self, index: int) -> Label: ...
    @overload
    def __getitem__(self, index: slice) -> list[Label]: ...
    def __getitem__(self, index: int | slice) -> Label | list[Label]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._packed is None:
            return self._labels[index]
        if not -len(self) <= index < len(self):
            raise IndexError(f"label id {index} is out of range for {len(self)} labels")
        text, offsets, tagged = self._packed
        i = index % len(self)
        if i in self._decoded:
            return self._decoded[i]
        label = _decode(bytes(text[int(offsets[i]) : int(offsets[i + 1])]), i, tagged)
        if len(self._decoded) < _MAX_DECODED:
            self._decoded[i] = label
        return label

    def __iter__(self) -> Iterator[Label]:
        return iter(self._labels) if self._packed is None else self._decode_all(*self._packed)

    @staticmethod
    def _decode_all(text: AnyArray, offsets: AnyArray, tagged: bool) -> Iterator[Label]:
        """All labels in order; slices of bytes take a tenth of the time of slices of arrays."""
        for begin in range(0, len(offsets) - 1, _DECODED_AT_ONCE):
            ends = offsets[begin : begin + _DECODED_AT_ONCE + 1].tolist()
            content = text[ends[0] : ends[-1]].tobytes()
            for i, (a, b) in enumerate(itertools.pairwise(ends), begin):
                yield _decode(content[a - ends[0] : b - ends[0]], i, tagged)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelVocabulary) or len(self) != len(other):
            return False
        if self.is_range() and other.is_range():
            return True
        return all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((len(self), self[0] if len(self) else None))

    def __repr__(self) -> str:
        shown = ", ".join(repr(label) for label in self[:3])
        return f"<{len(self)} labels: {shown}{', …' if len(self) > 3 else ''}>"

    @property
    def ids(self) -> dict[Label, int]:
        """Id of each label."""
        if self._ids is None:
            self._ids = {label: i for i, label in enumerate(self)}
        return self._ids

    def from_text(self, text: Label) -> Label:
        """Return the label that a text of a file or a request stands for: "7" is 7 where the labels are integers."""
        if text in self.ids or not isinstance(text, str) or not text.removeprefix("-").isdecimal():
            return text
        return int(text) if int(text) in self.ids else text

    def is_range(self) -> bool:
        """Whether the labels are their own ids, 0 to L-1."""
        return isinstance(self._labels, range) and self._packed is None and self._labels == range(len(self._labels))

    def save(self, writer: StoreWriter, prefix: str = "labels") -> dict[str, Any]:
        """Write the labels; returns the information for `load`."""
        if self.is_range():
            return {"kind": "range", "n": len(self)}
        if self._packed is not None:
            text, offsets, tagged = self._packed
            writer.array(f"{prefix}_text", text)
            writer.array(f"{prefix}_offsets", offsets)
            return {"kind": "tagged" if tagged else "text", "n": len(self)}
        tagged = not all(type(label) is str for label in self)
        encoded = [
            (json.dumps(_to_json(label), ensure_ascii=False) if tagged else str(label)).encode("utf-8", "surrogatepass")
            for label in self
        ]
        offsets = indptr_from_counts([len(e) for e in encoded])
        writer.array(f"{prefix}_text", np.frombuffer(b"".join(encoded), np.uint8))
        writer.array(f"{prefix}_offsets", offsets)
        return {"kind": "tagged" if tagged else "text", "n": len(self)}

    @classmethod
    def load(cls, store: Store, info: Any, prefix: str = "labels", *, may_be_empty: bool = False) -> LabelVocabulary:
        """Open a vocabulary written by `save`. Every model has labels; some part of its training data may have none."""
        kind, n = (info.get("kind"), info.get("n")) if isinstance(info, dict) else (None, None)
        if (
            kind not in ("range", "text", "tagged")
            or not isinstance(n, int)
            or isinstance(n, bool)
            or not (0 if may_be_empty else 1) <= n < 2**31
        ):
            raise ModelFormatError("the manifest has no valid description of the labels")
        if kind == "range":
            return cls._range(n)
        text = store.array(f"{prefix}_text", np.uint8, ndim=1)
        offsets = store.array(f"{prefix}_offsets", np.int64, shape=(n + 1,))
        if not ascends(offsets, len(text)):
            raise ModelFormatError("the offsets of the labels do not match their text")
        return cls._mapped(text, offsets, kind == "tagged")

    @classmethod
    def _range(cls, n: int) -> LabelVocabulary:
        """Labels 0 to n-1, without building the dict of ids."""
        vocabulary = cls(())
        vocabulary._labels = range(n)
        vocabulary._ids = None
        return vocabulary


def _decode(encoded: bytes, i: int, tagged: bool) -> Label:
    """Label i from its bytes."""
    try:
        decoded = encoded.decode("utf-8", "surrogatepass")
        return _from_json(json.loads(decoded)) if tagged else decoded
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"label {i} is damaged: {error}") from error


def encode_labels(y: Any, n_rows: int | None = None) -> tuple[Csr, LabelVocabulary]:
    """Convert labels to an indicator matrix (n × L) and its vocabulary.

    `y` is a list or column of lists of hashable labels; an indicator matrix, whose labels are 0 to L-1; or a data frame
    of 0 and 1, whose columns are the labels.
    """
    if y is None:
        raise DataError("training requires y to be passed, but the target y is None")
    y = as_array(y)
    if is_frame(y):
        matrix, vocabulary = _frame_indicator(y)
    elif _is_matrix(y):
        matrix = indicator(y)
        vocabulary = LabelVocabulary._range(matrix.shape[1])
    else:
        rows = label_rows(y)
        vocabulary = LabelVocabulary.of(rows)
        matrix = indicator_from_lists([[vocabulary.ids[label] for label in row] for row in rows], len(vocabulary))
    if n_rows is not None and matrix.shape[0] != n_rows:
        raise DataError(f"X has {n_rows} rows, but y has {matrix.shape[0]}")
    return matrix, vocabulary


def align_labels(y: Any, vocabulary: LabelVocabulary) -> tuple[Csr, int]:
    """Encode true labels with the ids of a vocabulary.

    Returns an indicator (n × (L + U)) and L. The last U columns are the labels that are not in the vocabulary: a model
    with this vocabulary cannot predict them.
    """
    n_known = len(vocabulary)
    y = as_array(y)
    if is_frame(y):
        matrix, names = _frame_indicator(y)
        y = [[names[i] for i in row] for row in np.split(matrix.indices, matrix.indptr[1:-1])]
    if _is_matrix(y):
        matrix = indicator(y)
        if matrix.shape[1] != n_known:
            raise DataError(f"the indicator has {matrix.shape[1]} columns, but the model has {n_known} labels")
        return matrix, n_known
    ids, unknown = vocabulary.ids, dict[Label, int]()
    columns = []
    for row in label_rows(y):
        columns.append([ids[x] if x in ids else unknown.setdefault(x, n_known + len(unknown)) for x in row])
    return indicator_from_lists(columns, n_known + len(unknown)), n_known


def _frame_indicator(y: Any) -> tuple[Csr, LabelVocabulary]:
    """Indicator and labels of a data frame with a column for each label."""
    matrix = numeric_matrix(y)
    if matrix is None:
        raise DataError(
            "y is a data frame, but its columns are not all 0 and 1; pass a column of label lists, as in y['labels'], "
            "or a column for each label"
        )
    return indicator(matrix), LabelVocabulary(to_python(name) for name in column_names(y))


def _is_matrix(y: Any) -> bool:
    return sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2 and y.dtype != object)


def label_rows(y: Any) -> list[list[Label]]:
    """Validate a list of label lists."""
    if isinstance(y, str | bytes) or not hasattr(y, "__iter__"):
        raise DataError(f"y must be a list of label lists or an n × L indicator matrix; got {type(y).__name__}")
    rows: list[list[Label]] = []
    for i, row in enumerate(to_list(y)):
        labels = row if type(row) is list else _checked_row(row, i)
        rows.append([label if type(label) in _PLAIN else _checked_label(label, i) for label in labels])
    return rows


_PLAIN = frozenset({str, int})


def _checked_row(row: Any, i: int) -> Any:
    row = to_python(row)
    if is_missing(row):
        raise DataError(f"the labels of row {i} are missing ({row!r}); pass an empty list for a row without labels")
    if isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
        raise DataError(f"the labels of row {i} are {row!r}; each row must be a list of labels, such as [{row!r}]")
    return to_list(row)


def _checked_label(label: Any, row: int) -> Label:
    label = to_python(label)
    try:
        hash(label)
    except TypeError:
        raise DataError(f"label {label!r} of row {row} is not hashable; use a string, a number or a tuple") from None
    if is_missing(label):
        raise DataError(f"row {row} has the label {label!r}; remove or replace it")
    return label  # type: ignore[no-any-return]


def _to_json(label: Label) -> Any:
    """Convert a label to JSON; a list represents a tuple."""
    if isinstance(label, tuple):
        return [_to_json(part) for part in label]
    if isinstance(label, str | int | float | bool) or label is None:
        return label
    raise DataError(
        f"label {label!r} of type {type(label).__name__} cannot be saved; use strings, numbers or tuples of them"
    )


def _from_json(value: Any) -> Label:
    if isinstance(value, list):
        return tuple(_from_json(part) for part in value)
    if isinstance(value, dict):
        raise ModelFormatError("a label is a JSON object")
    return value  # type: ignore[no-any-return]
