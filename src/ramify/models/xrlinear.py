"""XR-Linear: linear classifiers down a label tree (Yu et al., 2022, PECOS), and its relatives by their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify.base.config import param
from ramify.base.errors import DataError
from ramify.base.mixed import Mixed
from ramify.base.progress import progress, steps
from ramify.base.sparse import as_csr, csr_from_parts
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray
from ramify.index.kmeans import TreeConfig, build_tree
from ramify.index.tree import LabelTree, paths_in_order
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.labels import representations
from ramify.models.linear import LinearModel
from ramify.rank import negatives as mining
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.linear import LinearConfig, fit_ovr, ranking_config
from ramify.rank.scores import Transform

LabelVectors = Literal["pifa", "pii", "spectral"]

_BALANCED: dict[str, Any] = {
    "method": "halves",
    "max_leaf": 100,
    "max_depth": None,
    "n_terms": 512,
    "max_iterations": 8,
    "tolerance": 0.001,
}


@dataclass(kw_only=True, eq=False, repr=False)
class XRLinear(LinearModel):
    """Finds labels by walking down a tree of label clusters, guided by a linear classifier at each node.

    >>> model = XRLinear().fit(["red fox", "red hen", "grey whale"], [["fox"], ["hen"], ["whale"]])
    >>> model.predict_topk(["a whale"], k=1).labels()[0][0][0]
    'whale'
    """

    kind: ClassVar[str] = "xr-linear"
    uses_relevance: ClassVar[bool] = True

    label_vectors: LabelVectors | tuple[LabelVectors, ...] = param(
        "pifa", "what a label looks like to the clustering; several are taken in turn by the trees of an ensemble"
    )
    tree: TreeConfig = param(factory=TreeConfig, doc="how the label tree is made")
    linear: LinearConfig = param(factory=ranking_config, doc="how the classifiers are trained")
    beam_size: int = param(50, "nodes of a level that the search follows", low=1)
    negatives: mining.Scheme = param(
        "teacher+matcher",
        "what a label is trained against: points of its cluster, points that the search sends there, or both",
    )
    node_negatives: mining.Scheme = param("teacher", "the same for the clusters above the labels")
    relevance_norm: Literal["none", "l1", "l2", "max"] = param(
        "none", "how given relevances are scaled within each point, at each level"
    )
    scores: str = param("l4-norm", "score transform of the nodes, such as l3-hinge, l12-norm, sigmoid or noop")
    leaf_scores: str | None = param(None, "score transform of the labels; None: as for the nodes")
    n_trees: int = param(1, "trees whose scores are averaged, each with a seed of its own", low=1)

    def check_params(self) -> None:
        """Check also that the score transforms exist."""
        super().check_params()
        for name in (self.scores, self.leaf_scores or self.scores):
            Transform.parse(name)

    # ---- the settings of the papers ----

    @classmethod
    def pecos(cls, **params: Any) -> Self:
        """Return the settings of PECOS's tables: balanced 16-way trees, leaves of 100, l3-hinge, beam 10."""
        return cls(
            **{**_of_the_papers(), "tree": TreeConfig(branching=16, **_BALANCED), "scores": "l3-hinge", **params}
        )

    @classmethod
    def parabel(cls, **params: Any) -> Self:
        """Return Parabel's settings (Prabhu et al., 2018): three balanced binary trees."""
        return cls(**{**_of_the_papers(), "tree": TreeConfig(branching=2, **_BALANCED), "n_trees": 3, **params})

    @classmethod
    def bonsai(cls, **params: Any) -> Self:
        """Return Bonsai's settings (Khandagale et al., 2020): three wide, shallow, unbalanced trees."""
        tree = TreeConfig(method="kmeans", branching=100, max_leaf=100, max_depth=2, balanced=False)
        return cls(**{**_of_the_papers(), "tree": tree, "n_trees": 3, **params})

    @classmethod
    def dismec(cls, **params: Any) -> Self:
        """Return DiSMEC's settings (Babbar and Schölkopf, 2017): no tree, every label against all points."""
        linear, flat = LinearConfig(threshold=0.01), TreeConfig(max_leaf=2**31 - 1)
        return cls(**{**_of_the_papers(), "tree": flat, "linear": linear, "scores": "noop", **params})

    # ---- training ----

    def fit(  # type: ignore[override]  # it names what it takes
        self,
        X: Any,
        y: Any,
        *,
        tree: LabelTree | Mapping[Any, Any] | Sequence[Any] | None = None,
        relevance: Any = None,
        negatives: Sequence[Csr | None] | None = None,
        label_features: Csr | FloatArray | None = None,
    ) -> Self:
        """Learn from points and their labels.

        Parameters
        ----------
        X : list of str, list of dicts of text fields, CSR (n × d) or ndarray (n, d)
        y : list of lists of hashable label names, or an indicator (n × L)
        tree : a tree of your own in place of the learned one: a `LabelTree`, a mapping from each label's name to its
            path, or a chain of cluster matrices (`LabelTree.from_chain`)
        relevance : cost of each positive (n × L), with an entry exactly where y has one
        negatives : for each level of the tree, points that also give negatives (n × nodes of the level above), or None
        label_features : features of the labels themselves (L × e), to cluster by in addition
        """
        return super().fit(X, y, tree=tree, relevance=relevance, negatives=negatives, label_features=label_features)

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        self.trees_ = self._fit_trees(self._fit_features(inputs), labels, names, given)

    def _fit_trees(self, X: Mixed, labels: Csr, names: LabelVocabulary, given: dict[str, Any]) -> list[LinearTree]:
        """Train all trees on features X (n × d); `given` is what `fit` was given beside X and y."""
        own_tree = _as_tree(given["tree"], names, labels.shape[1])
        relevance = None if given["relevance"] is None else as_csr(given["relevance"], "relevance")
        if relevance is not None and not _same_pattern(relevance, labels):
            raise DataError("relevance must have an entry exactly where y has one")
        trees: list[LinearTree] = []
        for number in range(self.n_trees):
            tree = own_tree
            if tree is None and labels.shape[1] <= self.tree.max_leaf:
                tree = LabelTree.flat(labels.shape[1])  # nothing to cluster
            elif tree is None:
                Z = self._label_vectors(X, labels, given["label_features"], number)
                tree = build_tree(Z, self.tree, seed=self.seed + number, threads=self.threads)
                del Z
            trees.append(self._fit_tree(X, labels, tree, relevance, given["negatives"], number))
        return trees

    def _fit_tree(
        self,
        X: Mixed,
        Y: Csr,
        tree: LabelTree,
        relevance: Csr | None,
        given: Sequence[Csr | None] | None,
        number: int,
    ) -> LinearTree:
        """Train one tree, from the root down."""
        nodes = tree.project(Y)  # Y of each level (n × nodes)
        costs = None if relevance is None else [self._scaled(R) for R in tree.project(relevance)]
        transforms = [Transform.parse(self.scores)] * (tree.depth - 1) + [
            Transform.parse(self.leaf_scores or self.scores)
        ]
        n_sparse = X.sparse.shape[1]
        levels: list[PackedLevel] = []
        title = "training" if self.n_trees == 1 else f"training tree {number + 1} of {self.n_trees}"
        with progress(title, sum(tree.widths), self.verbose) as advance:
            for t, children in enumerate(tree.levels):
                M = None
                if t > 0:
                    M = self._mine(X, nodes[t - 1], LinearTree(tree, levels, transforms[:t], n_sparse), given, t)
                W = fit_ovr(
                    X,
                    nodes[t],
                    M,
                    clusters=children,
                    config=self.linear,
                    relevance=None if costs is None else costs[t],
                    seed=self.seed + number,
                    threads=self.threads,
                    progress=steps(advance),
                )
                extra = mining.extra_margins(nodes[t], M, children, are_labels=t == tree.depth - 1)
                levels.append(PackedLevel.pack(W, children, n_sparse, self.linear.bias, self.threads, extra))
        return LinearTree(tree, levels, transforms, n_sparse)

    def _mine(self, X: Mixed, above: Csr, search: LinearTree, given: Sequence[Csr | None] | None, level: int) -> Csr:
        """Which points (n × nodes of the level above) give negatives at a level."""
        parts = []
        scheme = self.negatives if level == search.tree.depth - 1 else self.node_negatives
        if "teacher" in scheme:
            parts.append(mining.teacher(above))
        if "matcher" in scheme:
            width = min(self.beam_size, above.shape[1])
            proposed, _ = search.search(X, width, self.beam_size, resolve_threads(self.threads))
            parts.append(mining.matcher(proposed, above.shape[1]))
        extra = given[level] if given is not None and level < len(given) else None
        if extra is not None:
            parts.append(as_csr(extra, f"negatives[{level}]"))
        return mining.union(*parts)

    def _label_vectors(self, X: Mixed, Y: Csr, label_features: Any, number: int) -> Csr | FloatArray:
        kinds = (self.label_vectors,) if isinstance(self.label_vectors, str) else self.label_vectors
        kind = kinds[number % len(kinds)]
        if kind == "pii":
            return representations.pii(Y)
        if kind == "spectral":
            return representations.spectral(Y, min(24, min(Y.shape) - 2), seed=self.seed + number)
        if label_features is not None:
            features: Csr | FloatArray = X.sparse if X.sparse.shape[1] else X.dense
            return representations.pifa_with_features(features, Y, label_features, threads=self.threads)
        return representations.pifa_mixed(X, Y, threads=self.threads)

    def _scaled(self, R: Csr) -> Csr:
        if self.relevance_norm == "none":
            return R
        norm = {"l1": np.add, "max": np.maximum}.get(self.relevance_norm, np.hypot)
        starts = np.minimum(R.indptr[:-1], max(0, R.nnz - 1))
        size = norm.reduceat(R.data, starts) if R.nnz else np.ones(R.shape[0])
        size = np.where((np.diff(R.indptr) > 0) & (size > 0), size, 1.0)
        scaled = R.data / np.repeat(size, np.diff(R.indptr))
        return csr_from_parts(scaled.astype(np.float32), R.indices, R.indptr, R.shape)


def _of_the_papers() -> dict[str, Any]:
    """Return what the models of the papers have in common."""
    linear = LinearConfig(threshold=0.1)
    return {
        "linear": linear,
        "negatives": "teacher",
        "node_negatives": "teacher",
        "scores": "l2-hinge",
        "leaf_scores": None,
        "beam_size": 10,
    }


def _as_tree(given: Any, names: LabelVocabulary, n_labels: int) -> LabelTree | None:
    if given is None or isinstance(given, LabelTree):
        tree = given
    elif isinstance(given, Mapping):
        tree = LabelTree.from_paths(paths_in_order(given, names))
    else:
        tree = LabelTree.from_chain(given)
    if tree is not None and tree.n_labels != n_labels:
        raise DataError(f"the given tree has {tree.n_labels} labels, y has {n_labels}")
    return None if tree is None else tree.check_complete()


def _same_pattern(a: Csr, b: Csr) -> bool:
    return a.shape == b.shape and np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)
