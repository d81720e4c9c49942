"""The `Dataset`: points, their labels, and what can be counted about them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.types import AnyArray, Csr, Document, FloatArray, LongArray
from ramify.io.labels import LabelVocabulary


@dataclass(frozen=True)
class SkippedLine:
    """A line that was left out, and why."""

    line: int
    reason: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """n points with their labels. Nothing in it is ever changed; the methods return new ones.

    Attributes
    ----------
    Y : (n × L) CSR of ones
        Labels of each point.
    label_names : LabelVocabulary
        Name of each of the L labels.
    texts : list of str, or of dicts of text fields; None for points that are features
    X : (n × d) CSR or ndarray; None for points that are texts
    label_texts : list of str, optional
        A description of each label.
    relevance : (n × L) CSR, optional
        A weight for each label of each point, with the pattern of Y.
    ids : list of str, optional
        The points' own names.
    splits : dict of row numbers
        Named parts, such as "train" and "test".
    n_skipped, skipped :
        How many bad lines were left out while reading, and the first of them.
    """

    Y: Csr
    label_names: LabelVocabulary
    texts: list[Document] | None = None
    X: Csr | FloatArray | None = None
    label_texts: Sequence[str] | None = None
    relevance: Csr | None = None
    ids: list[str] | None = None
    splits: dict[str, LongArray] = field(default_factory=dict)
    n_skipped: int = 0
    skipped: tuple[SkippedLine, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if not sparse.issparse(self.Y):
            raise DataError(
                "Y must be a sparse indicator matrix; ramify.read makes one, or scikit-learn's MultiLabelBinarizer"
            )
        n, n_labels = self.Y.shape
        if (self.texts is None) == (self.X is None):
            raise DataError("a data set holds either texts or features")
        sizes = {"texts": self.texts, "ids": self.ids}
        for what, values in sizes.items():
            if values is not None and len(values) != n:
                raise DataError(f"{len(values)} {what} for {n} rows of labels")
        if self.X is not None and self.X.shape[0] != n:
            raise DataError(f"{self.X.shape[0]} rows of features for {n} rows of labels")
        if len(self.label_names) != n_labels or (self.label_texts is not None and len(self.label_texts) != n_labels):
            raise DataError(f"the label names or label texts do not number {n_labels}")

    def __len__(self) -> int:
        return int(self.Y.shape[0])

    def __repr__(self) -> str:
        kind = "texts" if self.texts is not None else "feature vectors"
        splits = "".join(f", {k}: {len(v):,}" for k, v in self.splits.items())
        return f"<Dataset {self.name}: {len(self):,} {kind}, {self.n_labels:,} labels{splits}>"

    @property
    def n_labels(self) -> int:
        """Number of labels L."""
        return int(self.Y.shape[1])

    @property
    def inputs(self) -> Any:
        """What a model's `fit` and `predict` take."""
        return self.texts if self.texts is not None else self.X

    def labels(self) -> list[list[Any]]:
        """Label names of each point."""
        names = list(self.label_names)
        return [[names[i] for i in row] for row in np.split(self.Y.indices, self.Y.indptr[1:-1])] if len(self) else []

    def subset(self, rows: AnyArray) -> Dataset:
        """Return some of the points, with all the labels."""
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return dataclasses.replace(
            self,
            Y=self.Y[rows],
            texts=None if self.texts is None else [self.texts[i] for i in rows],
            X=None if self.X is None else self.X[rows],
            relevance=None if self.relevance is None else self.relevance[rows],
            ids=None if self.ids is None else [self.ids[i] for i in rows],
            splits={},
        )

    def split(self, name: str) -> Dataset:
        """Return the points of a named part."""
        if name not in self.splits:
            raise DataError(f"there is no part {name!r}; there are: {', '.join(self.splits) or 'none'}")
        return dataclasses.replace(self.subset(self.splits[name]), name=f"{self.name}/{name}".strip("/"))

    def stats(self, train: Dataset | None = None) -> DatasetStats:
        """Count points and labels; with `train`, also what of this set the training data do not know."""
        return dataset_stats(self, train)


@dataclass(frozen=True)
class DatasetStats:
    """Counts of a data set; see `rows` for their names."""

    points: int
    labels: int
    used_labels: int
    labels_per_point_mean: float
    labels_per_point_median: float
    labels_per_point_max: int
    points_without_labels: int
    points_per_label_mean: float
    points_per_label_median: float
    points_per_label_max: int
    labels_with_one_point: int
    empty_points: int
    words_or_features_mean: float
    duplicates_inside: int
    unseen_label_share: float | None = None
    duplicates_with_train: int | None = None
    kind: str = "texts"

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each count, for a table."""
        share = 100 * self.labels_with_one_point / max(1, self.used_labels)
        unit = "words a text" if self.kind == "texts" else "features a point"
        rows = [
            ("points", f"{self.points:,}"),
            (
                "labels",
                f"{self.used_labels:,}" + (f" of {self.labels:,} named" if self.used_labels != self.labels else ""),
            ),
            (
                "labels a point: mean, median, most",
                f"{self.labels_per_point_mean:.2f}, {self.labels_per_point_median:g}, {self.labels_per_point_max:,}",
            ),
            (
                "points a label: mean, median, most",
                f"{self.points_per_label_mean:.2f}, {self.points_per_label_median:g}, {self.points_per_label_max:,}",
            ),
            ("labels with a single point", f"{self.labels_with_one_point:,} ({share:.1f} %)"),
            ("points without labels", f"{self.points_without_labels:,}"),
            ("empty points", f"{self.empty_points:,}"),
            (unit + ", mean", f"{self.words_or_features_mean:.1f}"),
            ("points that repeat an earlier one", f"{self.duplicates_inside:,}"),
        ]
        if self.unseen_label_share is not None:
            rows.append(("label occurrences unseen in train", f"{100 * self.unseen_label_share:.2f} %"))
        if self.duplicates_with_train is not None:
            rows.append(("points that also stand in train", f"{self.duplicates_with_train:,}"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All counts."""
        return dataclasses.asdict(self)


def dataset_stats(data: Dataset, train: Dataset | None = None) -> DatasetStats:
    """Count points and labels of a data set."""
    per_point = np.diff(data.Y.indptr)
    per_label = np.bincount(data.Y.indices, minlength=data.n_labels)
    used = per_label[per_label > 0]
    sizes = _sizes(data)
    fingerprints = _fingerprints(data)
    unseen = duplicates = None
    if train is not None:
        trained = np.bincount(train.Y.indices, minlength=train.n_labels)
        known = {name for name, count in zip(train.label_names, trained, strict=True) if count}
        is_known = np.fromiter((name in known for name in data.label_names), bool, count=data.n_labels)
        unseen = float(1.0 - is_known[data.Y.indices].mean()) if data.Y.nnz else 0.0
        in_train = set(_fingerprints(train))
        duplicates = sum(f in in_train for f in fingerprints)
    return DatasetStats(
        points=len(data),
        labels=data.n_labels,
        used_labels=len(used),
        labels_per_point_mean=float(per_point.mean()) if len(data) else 0.0,
        labels_per_point_median=float(np.median(per_point)) if len(data) else 0.0,
        labels_per_point_max=int(per_point.max(initial=0)),
        points_without_labels=int((per_point == 0).sum()),
        points_per_label_mean=float(used.mean()) if len(used) else 0.0,
        points_per_label_median=float(np.median(used)) if len(used) else 0.0,
        points_per_label_max=int(used.max(initial=0)),
        labels_with_one_point=int((used == 1).sum()),
        empty_points=int((sizes == 0).sum()),
        words_or_features_mean=float(sizes.mean()) if len(data) else 0.0,
        duplicates_inside=len(fingerprints) - len(set(fingerprints)),
        unseen_label_share=unseen,
        duplicates_with_train=duplicates,
        kind="texts" if data.texts is not None else "features",
    )


def _as_text(document: Document) -> str:
    return document if isinstance(document, str) else "\x1f".join(document.values())


def _sizes(data: Dataset) -> AnyArray:
    if data.texts is not None:
        return np.fromiter(
            (len(_as_text(t).replace("\x1f", " ").split()) for t in data.texts), np.int64, count=len(data)
        )
    if isinstance(data.X, np.ndarray):
        return np.asarray((data.X != 0).sum(axis=1))
    assert data.X is not None
    return np.diff(data.X.indptr)


def _fingerprints(data: Dataset) -> list[bytes]:
    """A digest of each point's content."""

    def digest(content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=16).digest()

    if data.texts is not None:
        return [digest(_as_text(t).encode("utf-8", "surrogatepass")) for t in data.texts]
    if isinstance(data.X, np.ndarray):
        return [digest(np.ascontiguousarray(row).tobytes()) for row in data.X]
    assert data.X is not None
    p, i, v = data.X.indptr, data.X.indices, data.X.data
    return [digest(i[a:b].tobytes() + v[a:b].tobytes()) for a, b in itertools.pairwise(p)]
