"""Tasks that train the classifiers of a level of the tree, and join the model.

For each level: by blocks of rows, the nodes and the negatives of each sample (`mine`); a division of the nodes into
groups of about the same work (`plan`); by groups, the classifiers (`fit_group`); by ranges of features, their weights
packed for search (`pack`); the level as one (`join_level`). The model is joined from these without being in memory.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.mixed import Mixed
from ramify.base.sparse import indptr_from_counts, pattern
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.distributed.data_tasks import take_rows
from ramify.distributed.task import Job, Shard
from ramify.distributed.tree_tasks import below_each_other, compact_columns, load_tree, side_by_side
from ramify.io.labels import LabelVocabulary
from ramify.metrics.propensity import LabelCounts
from ramify.models.features import load_features
from ramify.models.xrlinear import XRLinear
from ramify.rank import negatives as mining
from ramify.rank.beam import LinearTree, PackedLevel, constant_terms
from ramify.rank.linear import fit_ovr, normalize_relevance
from ramify.rank.score_transforms import ScoreTransform

KEPT, MINING = "kept", "mining"
"""Weights as the model keeps them, and as they propose negatives."""


def _level(shard: Shard, kind: str) -> PackedLevel:
    bias = shard.array("bias")
    starts, blocks, codebook = (shard.array(f"{kind}_{name}") for name in ("block_starts", "blocks", "codebook"))
    return PackedLevel(starts, blocks, codebook, bias, np.empty((len(bias), 0), np.float32))


def transforms(model: XRLinear, depth: int) -> list[ScoreTransform]:
    """Score transforms of all levels."""
    last = ScoreTransform.parse(model.label_score_transform or model.score_transform)
    return [ScoreTransform.parse(model.score_transform)] * (depth - 1) + [last]


def mine(job: Job) -> dict[str, Any]:
    """Nodes of a level that the samples of some blocks belong to, and the clusters that take them as negatives.

    If labels have weights, the nodes have the relevance of the samples.
    """
    model, level = XRLinear.from_dict(job.params["model"]), job.params["level"]
    weighted = below_each_other([shard.csr("Y") for shard in job.inputs["labels"]])
    tree = load_tree(job.inputs["tree"][0], weighted.shape[1])
    nodes = tree.project(pattern(weighted))
    positives = nodes[level]
    if job.params["is_graded"]:
        positives = normalize_relevance(tree.project(weighted)[level], model.relevance_norm)
    job.write_rows("Y", positives.T.tocsr())
    if level == 0:
        return {"has_pool": False}
    X = Mixed.of(below_each_other([shard.csr("X") for shard in job.inputs["X"]]))
    above = [_level(shard, MINING) for shard in job.inputs["levels"]]
    matcher = LinearTree(tree, above, transforms(model, tree.depth)[:level], X.shape[1])
    seed, first = job.params["seed"], job.params["first"]
    M, pool = model.mine_negatives(X, nodes[level - 1], matcher, level, seed, first_row=first)
    job.write_rows("M", M.T.tocsr())
    if pool is not M:
        job.write_rows("pool", pool.T.tocsr())
    return {"has_pool": pool is not M}


def plan(job: Job) -> dict[str, Any]:
    """Divide the nodes of a level into groups of about the same work: begin, end, clusters, samples and work of each.

    A cluster is divided only where the solver divides it in any case.
    """
    tree = load_tree(job.inputs["tree"][0], job.params["n_labels"])
    level = job.params["level"]
    children = tree.levels[level]
    sizes = np.zeros(len(children) - 1, np.int64)
    if level == 0:
        sizes += job.params["n"]
    for shard in job.inputs["mined"] if level else ():
        sizes[shard.array("M_ids")] += np.diff(shard.array("M_indptr"))
    size = native.linear.job_size(int(children[-1]))
    n_jobs = -(-np.diff(children) // size)
    cluster = np.repeat(np.arange(len(sizes)), n_jobs)
    first = children[cluster] + size * (np.arange(len(cluster)) - np.repeat(indptr_from_counts(n_jobs)[:-1], n_jobs))
    last = np.minimum(first + size, children[cluster + 1])
    work = indptr_from_counts((sizes[cluster] + 1) * (last - first + 8))
    n_tasks = max(1, min(job.params["n_tasks"], int(work[-1]) // job.params["min_work"]))
    cuts = np.searchsorted(work, np.linspace(0, work[-1], n_tasks + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], cuts, [len(cluster)]])).tolist()
    groups = []
    for a, b in itertools.pairwise(bounds):
        clusters = int(cluster[a]), int(cluster[b - 1]) + 1
        n_rows = int(min(job.params["n"], sizes[clusters[0] : clusters[1]].sum()))
        groups.append([int(first[a]), int(last[b - 1]), *clusters, n_rows, int(work[b] - work[a])])
    return {"groups": groups}


def _columns(shards: list[Shard], name: str, begin: int, end: int, n: int) -> Csr:
    """Rows begin to end, of nodes or clusters, over all samples."""
    return side_by_side([shard.rows(name, begin, end) for shard in shards], n)


def fit_group(job: Job) -> dict[str, Any]:
    """Train the classifiers of a group of nodes; their weights, by feature."""
    model, level, n = XRLinear.from_dict(job.params["model"]), job.params["level"], job.params["n"]
    begin, end, first_cluster, last_cluster = job.params["group"]
    tree = load_tree(job.inputs["tree"][0], job.params["n_labels"])
    children = tree.levels[level]
    clusters = children[first_cluster : last_cluster + 1] - children[first_cluster]
    first, last, d = int(children[first_cluster]), int(children[last_cluster]), job.params["n_features"]
    mined = job.inputs["mined"]
    Y = _columns(mined, "Y", first, last, n)
    M = _columns(mined, "M", first_cluster, last_cluster, n) if level else None
    are_labels = level == tree.depth - 1
    pool = M
    if any(shard.result["has_pool"] for shard in mined):
        pool = _columns(mined, "pool", first_cluster, last_cluster, n)
    _, (Y_all, pool_all) = _compact(Y, pool)
    extra = mining.extra_margins(pattern(Y_all), pool_all, clusters, are_labels=are_labels, n_rows=n)
    rows, (Y, M) = _compact(Y, M)
    W = fit_ovr(
        take_rows(job.inputs["X"], job.params["first_rows"], rows, d),
        pattern(Y),
        M,
        relevance=Y if job.params["is_graded"] else None,
        clusters=clusters,
        config=model.linear if are_labels else model.node_linear(),
        seed=job.params["seed"],
        cut=native.linear.Cut(first, int(children[-1]), n, job.params["is_wide"], begin - first, end - first),
    )[begin - first : end - first]
    job.writer.array("bias", constant_terms(W, model.linear.bias, extra[begin - first : end - first]))
    job.write_rows("W", W.T.tocsr()[:d])
    magnitudes = dict.fromkeys((KEPT, MINING), _magnitudes(W, d))
    if not are_labels:
        magnitudes[KEPT] = _magnitudes(model.prune_node_weights(W, d), d)
    return {"magnitudes": magnitudes, "n_weights": int(W.nnz)}


def _compact(Y: Csr, M: Csr | None) -> tuple[LongArray | None, tuple[Csr, Csr | None]]:
    """Samples that Y (nodes × n) or M (clusters × n) selects, and both by sample, without the others; None: all."""
    if M is None:
        return None, (Y.T.tocsr(), None)
    rows, both = compact_columns(sparse.vstack([Y, M], format="csr"))
    return rows, (both[: Y.shape[0]].T.tocsr(), both[Y.shape[0] :].T.tocsr())


def _magnitudes(W: Csr, n_features: int) -> list[float]:
    found = np.abs(W.data[(W.indices < n_features) & (W.data != 0)])
    return [float(found.min()), float(found.max())] if len(found) else [0.0, 0.0]


def merge_magnitudes(parts: list[list[float]]) -> list[float]:
    """Smallest and largest magnitude of the weights of all groups; both 0 if there are none."""
    found = [part for part in parts if part[1] > 0] or [[0.0, 0.0]]
    return [min(smallest for smallest, _ in found), max(largest for _, largest in found)]


def pack(job: Job) -> dict[str, Any]:
    """Pack the weights of a range of features for search."""
    model = XRLinear.from_dict(job.params["model"])
    tree = load_tree(job.inputs["tree"][0], job.params["n_labels"])
    level, (begin, end) = job.params["level"], job.params["features"]
    n_nodes = tree.widths[level]
    by_feature = side_by_side([shard.rows("W", begin, end) for shard in job.inputs["weights"]], n_nodes)
    W = by_feature.T.tocsr()
    parts = {KEPT: W}
    if level < tree.depth - 1:
        parts = {KEPT: model.prune_node_weights(W, end - begin), MINING: W}
    for kind, part in parts.items():
        smallest, largest = job.params["magnitudes"][kind]
        starts, blocks, codebook = native.linear.pack_weights(
            part, end - begin, tree.levels[level], resolve_threads(None), (smallest, largest)
        )
        job.writer.array(f"{kind}_block_starts", starts)
        job.writer.array(f"{kind}_blocks", blocks)
        job.writer.array(f"{kind}_codebook", codebook)
    return {"kinds": list(parts)}


def join_level(job: Job) -> dict[str, Any]:
    """Join the packed features of a level."""
    parts = job.inputs["parts"]
    for kind in parts[0].result["kinds"]:
        starts = [part.array(f"{kind}_block_starts") for part in parts]
        tables = [part.array(f"{kind}_blocks") for part in parts]
        sizes = [int(start[-1]) for start in starts]
        offsets = indptr_from_counts(sizes)
        if offsets[-1] > np.iinfo(np.uint32).max:
            raise ValueError("the weights of one level exceed 16 GB")
        shifted: list[AnyArray] = [
            (start[:-1] + np.uint32(offset)) for start, offset in zip(starts, offsets, strict=False)
        ]
        job.writer.array_parts(f"{kind}_block_starts", [*shifted, offsets[-1:].astype(np.uint32)])
        padding = np.zeros(len(tables[-1]) - 4 * sizes[-1], np.uint8)
        blocks = [table[: 4 * size] for table, size in zip(tables, sizes, strict=True)]
        job.writer.array_parts(f"{kind}_blocks", [*blocks, padding])
        job.writer.array(f"{kind}_codebook", parts[0].array(f"{kind}_codebook"))
    job.writer.array_parts("bias", [shard.array("bias") for shard in job.inputs["weights"]])
    return {}


def join_model(job: Job) -> None:
    """Write the model directory; all arrays are memory-mapped and copied."""
    model, labels = XRLinear.from_dict(job.params["params"]), job.inputs["labels"][0]
    n_labels, kind, n_features = labels.result["n_labels"], job.params["input_kind"], job.params["n_features"]
    model.labels_ = LabelVocabulary.load(labels.store, labels.result["labels"])
    model.input_kind_, model.n_features_in_ = kind, None
    if kind == "sparse":
        model.n_features_in_ = n_features
    else:
        features = job.inputs["features"][0]
        model.features_ = load_features(
            features.store, features.result["features"], "features_", type(model.features), kind
        )
    counts = np.zeros(n_labels, np.int64)
    for shard in job.inputs["Y"]:
        counts[shard.array("by_label_ids")] += np.diff(shard.array("by_label_indptr"))
    model.label_counts_ = LabelCounts(job.params["n"], counts)
    model.calibration_, model.rule_, model.catalogue_ = None, None, None
    model.trees_, at = [], 0
    for shard in job.inputs["trees"]:
        tree = load_tree(shard, n_labels)
        levels = [_level(level, KEPT) for level in job.inputs["levels"][at : at + tree.depth]]
        model.trees_.append(LinearTree(tree, levels, transforms(model, tree.depth), n_features))
        at += tree.depth
    job.writer.manifest(model.kind, job.params["params"], model.write_state(job.writer))
