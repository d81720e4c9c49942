"""`Dataset`: samples with their labels, subsets and statistics."""

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
from ramify.base.sparse import same_pattern
from ramify.base.types import AnyArray, Csr, Document, FloatArray, LongArray
from ramify.io.labels import LabelVocabulary


@dataclass(frozen=True)
class SkippedLine:
    """A skipped line of a data file and the reason."""

    line: int
    reason: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """n samples with their labels. Immutable: the methods return new data sets.

    Attributes
    ----------
    Y : (n × L) CSR of ones
        Label indicator.
    label_names : LabelVocabulary
        The L labels, in column order.
    texts : list of str, or of dicts of text fields; None if the samples are feature vectors
    X : (n × d) CSR or ndarray; None if the samples are texts
    label_texts : list of str, optional
        Description of each label.
    relevance : (n × L) CSR, optional
        Weight of each label of each sample, with the sparsity pattern of Y.
    sample_weight : (n,) array of float, optional
        Weight of each sample.
    ids : list of str or int, optional
        Sample ids of the data file.
    splits : dict of row indices
        Named subsets, such as "train" and "test".
    lines : (n,) array of int, optional
        Line of each sample in the data file, if bad lines were skipped; of Parquet, its row from 1.
    n_skipped, skipped :
        Number of bad lines that were skipped while reading, and the first of them.
    """

    Y: Csr
    label_names: LabelVocabulary
    texts: list[Document] | None = None
    X: Csr | FloatArray | None = None
    label_texts: Sequence[str] | None = None
    relevance: Csr | None = None
    ids: list[Any] | None = None
    lines: LongArray | None = None
    splits: dict[str, LongArray] = field(default_factory=dict)
    n_skipped: int = 0
    skipped: tuple[SkippedLine, ...] = ()
    name: str = ""
    sample_weight: FloatArray | None = None

    def __post_init__(self) -> None:
        if not sparse.issparse(self.Y):
            raise DataError(
                "Y must be a sparse indicator matrix, as from ramify.read or scikit-learn's MultiLabelBinarizer"
            )
        n, n_labels = self.Y.shape
        if (self.texts is None) == (self.X is None):
            raise DataError("a data set needs either texts or features")
        sizes = {"texts": self.texts, "ids": self.ids, "lines": self.lines, "sample weights": self.sample_weight}
        for what, values in sizes.items():
            if values is not None and len(values) != n:
                raise DataError(f"{len(values)} {what} for {n} rows of labels")
        if self.X is not None and self.X.shape[0] != n:
            raise DataError(f"{self.X.shape[0]} rows of features for {n} rows of labels")
        if len(self.label_names) != n_labels or (self.label_texts is not None and len(self.label_texts) != n_labels):
            raise DataError(f"Y has {n_labels} columns, but there are not as many label names or label texts")
        if self.relevance is not None and not same_pattern(self.relevance, self.Y):
            raise DataError("relevance must have an entry exactly where Y has one")

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
        """Texts or features, as passed to `fit` and `predict` of a model."""
        return self.texts if self.texts is not None else self.X

    def labels(self) -> list[list[Any]]:
        """Labels of each sample."""
        names = self.label_names if self.label_names.is_range() else list(self.label_names)
        return [[names[i] for i in row] for row in np.split(self.Y.indices, self.Y.indptr[1:-1])] if len(self) else []

    def encoded_relevance(self) -> Csr | None:
        """Relevance (n × L') in the columns that ``fit(inputs, labels())`` assigns; None if there is no relevance.

        `fit` encodes the labels that occur, in the order of `LabelVocabulary.of`: labels without a sample have no
        column, and the order may differ from that of `label_names`.
        """
        if self.relevance is None:
            return None
        vocabulary = LabelVocabulary.of(self.labels())
        columns = np.array([vocabulary.ids.get(label, -1) for label in self.label_names], np.int32)
        encoded = sparse.csr_matrix(
            (self.relevance.data.copy(), columns[self.relevance.indices], self.relevance.indptr),
            shape=(len(self), len(vocabulary)),
        )
        encoded.sort_indices()
        return encoded

    def mean_relevance(self) -> FloatArray:
        """Mean relevance (n,) of the labels of each sample; 1 for samples without labels, and without relevance."""
        if self.relevance is None:
            return np.ones(len(self), np.float32)
        n_labels = np.diff(self.Y.indptr)
        sums = np.asarray(self.relevance.sum(axis=1), np.float64).ravel()
        return np.where(n_labels > 0, sums / np.maximum(1, n_labels), 1.0).astype(np.float32)

    def subset(self, rows: AnyArray) -> Dataset:
        """Select samples by mask or indices; all labels keep their columns."""
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
            lines=None if self.lines is None else self.lines[rows],
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
            splits={},
        )

    def split(self, name: str) -> Dataset:
        """Return a named subset."""
        if name not in self.splits:
            raise DataError(f"unknown split {name!r}; available: {', '.join(self.splits) or 'none'}")
        return dataclasses.replace(self.subset(self.splits[name]), name=f"{self.name}/{name}".strip("/"))

    def stats(self, train: Dataset | None = None) -> DatasetStats:
        """Statistics of samples and labels; with `train` also unseen labels and samples that occur in `train`."""
        return dataset_stats(self, train)


@dataclass(frozen=True)
class DatasetStats:
    """Statistics of a data set; `rows` describes them."""

    samples: int
    labels: int
    used_labels: int
    labels_per_sample_mean: float
    labels_per_sample_median: float
    labels_per_sample_max: int
    samples_without_labels: int
    samples_per_label_mean: float
    samples_per_label_median: float
    samples_per_label_max: int
    labels_with_one_sample: int
    empty_samples: int
    words_or_features_mean: float
    duplicates_inside: int
    unseen_label_fraction: float | None = None
    duplicates_with_train: int | None = None
    kind: str = "texts"

    def rows(self) -> list[tuple[str, str]]:
        """Description and value of each statistic, for a table."""
        unused = f" of {self.labels:,} in the vocabulary" if self.used_labels != self.labels else ""
        percent = 100 * self.labels_with_one_sample / max(1, self.used_labels)
        per_sample = (self.labels_per_sample_mean, self.labels_per_sample_median, self.labels_per_sample_max)
        per_label = (self.samples_per_label_mean, self.samples_per_label_median, self.samples_per_label_max)
        rows = [
            ("samples", f"{self.samples:,}"),
            ("labels", f"{self.used_labels:,}{unused}"),
            ("labels per sample: mean, median, max", "{:.2f}, {:g}, {:,}".format(*per_sample)),
            ("samples per label: mean, median, max", "{:.2f}, {:g}, {:,}".format(*per_label)),
            ("labels with a single sample", f"{self.labels_with_one_sample:,} ({percent:.1f} %)"),
            ("samples without labels", f"{self.samples_without_labels:,}"),
            ("empty samples", f"{self.empty_samples:,}"),
            (
                "words per text, mean" if self.kind == "texts" else "features per sample, mean",
                f"{self.words_or_features_mean:.1f}",
            ),
            ("duplicates of an earlier sample", f"{self.duplicates_inside:,}"),
        ]
        if self.unseen_label_fraction is not None:
            rows.append(("label occurrences unseen in train", f"{100 * self.unseen_label_fraction:.2f} %"))
        if self.duplicates_with_train is not None:
            rows.append(("samples that also occur in train", f"{self.duplicates_with_train:,}"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All statistics by name."""
        return dataclasses.asdict(self)


def dataset_stats(data: Dataset, train: Dataset | None = None) -> DatasetStats:
    """Compute the statistics of a data set; see `Dataset.stats`."""
    per_sample = np.diff(data.Y.indptr)
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
        samples=len(data),
        labels=data.n_labels,
        used_labels=len(used),
        labels_per_sample_mean=float(per_sample.mean()) if len(data) else 0.0,
        labels_per_sample_median=float(np.median(per_sample)) if len(data) else 0.0,
        labels_per_sample_max=int(per_sample.max(initial=0)),
        samples_without_labels=int((per_sample == 0).sum()),
        samples_per_label_mean=float(used.mean()) if len(used) else 0.0,
        samples_per_label_median=float(np.median(used)) if len(used) else 0.0,
        samples_per_label_max=int(used.max(initial=0)),
        labels_with_one_sample=int((used == 1).sum()),
        empty_samples=int((sizes == 0).sum()),
        words_or_features_mean=float(sizes.mean()) if len(data) else 0.0,
        duplicates_inside=len(fingerprints) - len(set(fingerprints)),
        unseen_label_fraction=unseen,
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
    """Digest of the content of each sample."""

    def digest(content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=16).digest()

    if data.texts is not None:
        return [digest(_as_text(t).encode("utf-8", "surrogatepass")) for t in data.texts]
    if isinstance(data.X, np.ndarray):
        return [digest(np.ascontiguousarray(row).tobytes()) for row in data.X]
    assert data.X is not None
    p, i, v = data.X.indptr, data.X.indices, data.X.data
    return [digest(i[a:b].tobytes() + v[a:b].tobytes()) for a, b in itertools.pairwise(p)]
