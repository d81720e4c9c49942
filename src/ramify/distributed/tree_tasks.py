"""Tasks that build the label tree: representations of labels by ranges of labels, then the nodes of a level at a time.

The upper part of the tree is one task, since k-means of the root needs all labels; all nodes below are split apart.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.sparse import as_csr, csr_from_parts, indptr_from_counts, normalize_rows, pattern
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, LongArray
from ramify.distributed.data_tasks import take_rows
from ramify.distributed.task import Job, Shard
from ramify.index.kmeans import MAX_DEPTH, TreeConfig, build_tree, split_node
from ramify.index.tree import LabelTree
from ramify.labels.representations import spectral


def represent(job: Job) -> dict[str, Any]:
    """Z of a range of labels, PIFA or PII, the entries that are clustered."""
    begin, end, first_rows = job.params["begin"], job.params["end"], job.params["first_rows"]
    left = side_by_side([shard.rows("by_label", begin, end) for shard in job.inputs["labels"]], job.params["n"])
    if job.params["kind"] == "pii":
        Z = normalize_rows(pattern(left))
    else:
        rows, left = compact_columns(left)
        X = take_rows(job.inputs["X"], first_rows, rows, job.params["n_features"])
        Z = native.matrix.spmm(same_index(left, X), X, resolve_threads(None), unit_rows=True)
    job.write_csr("Z", _largest(as_csr(Z, "Z"), job.params["n_terms"]))
    return {}


def represent_graph(job: Job) -> dict[str, Any]:
    """Z of all labels, from the graph of samples and labels: needs the labels of all samples, but no features."""
    Y = pattern(below_each_other([shard.csr("Y") for shard in job.inputs["labels"]]))
    Z = as_csr(sparse.csr_matrix(spectral(Y, seed=job.params["seed"])), "Z")
    job.write_csr("Z", _largest(Z, job.params["n_terms"]))
    return {}


def _largest(Z: Csr, n_terms: int | None) -> Csr:
    """Keep the entries that are clustered."""
    return Z if n_terms is None else native.matrix.largest_entries(Z, n_terms, resolve_threads(None))


def side_by_side(parts: list[Csr], n: int) -> Csr:
    """Matrices whose columns are the rows of each block, as one with n columns."""
    joined = sparse.hstack(parts, format="csr", dtype=np.float32)
    assert joined.shape[1] == n
    joined.sort_indices()
    return joined


def below_each_other(parts: list[Csr]) -> Csr:
    """Rows of all blocks as one matrix."""
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def compact_columns(matrix: Csr) -> tuple[LongArray, Csr]:
    """Columns that have entries, ascending, and the matrix with these columns only."""
    n, index = matrix.shape[1], matrix.indptr.dtype
    if 16 * matrix.nnz < n:  # few entries: less memory than a mark for every column
        used, indices = np.unique(matrix.indices, return_inverse=True)
    else:
        is_used = np.zeros(n, bool)
        is_used[matrix.indices] = True
        used = np.flatnonzero(is_used)
        indices = (np.cumsum(is_used, dtype=np.int32) - 1)[matrix.indices]
    return used.astype(np.int64), csr_from_parts(
        matrix.data, indices.astype(index, copy=False), matrix.indptr, (matrix.shape[0], len(used))
    )


def same_index(matrix: Csr, other: Csr) -> Csr:
    """Return the matrix with index arrays of the type that another one has."""
    index = other.indptr.dtype
    return csr_from_parts(matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index), matrix.shape)


def build_whole(job: Job) -> dict[str, Any]:
    """Build the tree in one task: balanced 2-means, or a flat tree of few labels."""
    config, n_labels = TreeConfig.from_dict(job.params["tree"]), job.params["n_labels"]
    if n_labels <= config.max_leaf_size:
        tree = LabelTree.flat(n_labels)
    else:
        tree = build_tree(_stack(job.inputs["Z"]), config, seed=job.params["seed"])
    return _write_tree(job, tree)


def _stack(shards: list[Shard]) -> Csr:
    return as_csr(below_each_other([shard.csr("Z") for shard in shards]), "Z")


def _write_tree(job: Job, tree: LabelTree) -> dict[str, Any]:
    return {"tree": tree.save_to(job.writer, "tree_"), "widths": tree.widths, "is_complete": True}


def start(job: Job) -> dict[str, Any]:
    """Return the root, with all labels."""
    n_labels = job.params["n_labels"]
    job.writer.array("labels", np.arange(n_labels, dtype=np.int32))
    job.writer.array("nodes", np.array([0, n_labels], np.int64))
    return {"level": 0, "largest": n_labels, "groups": [[0, 1, n_labels]]}


def split_nodes(job: Job) -> dict[str, Any]:
    """Split a range of nodes of a level: the labels of their children, one after the other."""
    config, above = TreeConfig.from_dict(job.params["tree"]), job.inputs["above"][0]
    nodes, labels = above.array("nodes"), above.array("labels")
    level, begin, end = above.result["level"], job.params["begin"], job.params["end"]
    mine = labels[int(nodes[begin]) : int(nodes[end])]
    Z = _rows_of_labels(job.inputs["Z"], job.params["label_bounds"], mine)
    children, counts = [], []
    for node in range(begin, end):
        local = np.arange(int(nodes[node] - nodes[begin]), int(nodes[node + 1] - nodes[begin]), dtype=np.int32)
        parts = split_node(Z, local, (level, node), config, job.params["seed"], resolve_threads(None))
        children += [mine[part] for part in parts]
        counts.append(len(parts))
    job.writer.array("labels", np.concatenate(children).astype(np.int32))
    job.writer.array("sizes", np.array([len(child) for child in children], np.int64))
    job.writer.array("counts", np.array(counts, np.int64))
    return {}


def _rows_of_labels(shards: list[Shard], bounds: list[int], labels: Any) -> Csr:
    """Rows of Z in the order of some labels, from the shards of ranges of labels."""
    order = np.argsort(labels, kind="stable")
    ascending = labels[order]
    cuts = np.searchsorted(ascending, bounds)
    parts = [
        shard.csr("Z")[ascending[cuts[i] : cuts[i + 1]] - bounds[i]]
        for i, shard in enumerate(shards)
        if cuts[i] < cuts[i + 1]
    ]
    place = np.empty(len(labels), np.int64)
    place[order] = np.arange(len(labels))
    return as_csr(sparse.vstack(parts, format="csr")[place], "Z")


def join_nodes(job: Job) -> dict[str, Any]:
    """Join the children of all nodes of a level; if none has to be split further, the tree."""
    config, above, parts = TreeConfig.from_dict(job.params["tree"]), job.inputs["above"][0], job.inputs["parts"]
    level = above.result["level"] + 1
    sizes = np.concatenate([part.array("sizes") for part in parts])
    children = indptr_from_counts(np.concatenate([part.array("counts") for part in parts]))
    largest = int(sizes.max())
    levels = [above.array(f"children{t}") for t in range(level - 1)] + [children]
    if level == (config.max_depth or MAX_DEPTH) or largest <= config.max_leaf_size:
        labels = np.concatenate([part.array("labels") for part in parts])
        return _write_tree(job, LabelTree((*levels, indptr_from_counts(sizes)), labels, len(labels)))
    job.writer.array_parts("labels", [part.array("labels") for part in parts])
    nodes = indptr_from_counts(sizes)
    job.writer.array("nodes", nodes)
    for t, indptr in enumerate(levels):
        job.writer.array(f"children{t}", indptr)
    return {"level": level, "largest": largest, "groups": even_groups(nodes, job.params["n_tasks"])}


def even_groups(indptr: LongArray, n_groups: int) -> list[list[int]]:
    """Divide items of given sizes (differences of indptr) into ranges: begin, end and size of each."""
    total = int(indptr[-1])
    cuts = np.searchsorted(indptr, np.linspace(0, total, n_groups + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], cuts, [len(indptr) - 1]])).tolist()
    return [[a, b, int(indptr[b] - indptr[a])] for a, b in itertools.pairwise(bounds)]


def load_tree(shard: Shard, n_labels: int) -> LabelTree:
    """Open the tree that a task has finished."""
    return LabelTree.load_from(shard.store, shard.result["tree"], "tree_", n_labels)
