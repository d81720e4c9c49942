"""`fit_files`: training of `XRLinear` as stages of tasks. The driver plans them and holds no rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ramify.base.errors import DataError
from ramify.base.progress import progress
from ramify.distributed.data_tasks import Block, group_blocks, make_blocks
from ramify.distributed.engines import Engine, make_engine
from ramify.distributed.feature_tasks import features_from, is_chosen_by_texts
from ramify.distributed.files import OVERHEAD, check_read_options, find_files, read_files
from ramify.distributed.level_tasks import KEPT, MINING, merge_magnitudes
from ramify.distributed.scheduler import Run
from ramify.distributed.task import Task, shard_path
from ramify.features.concat import feature_parts
from ramify.models.xrlinear import XRLinear

ENTRY = 8
"""Bytes of an entry of a sparse matrix."""
MERGED = 16
"""Blocks whose terms one task merges."""
LABELS_PER_TASK = 4_000
"""Labels that a task represents or clusters at least: starting one takes as long as the work on a few hundred."""
WORK_PER_TASK = 6_000_000
"""The same for training, in pairs of a sample and a label: every task copies the features of its samples, and writes
its weights by feature."""
FEATURES_PER_TASK = 50_000
"""Features whose weights a task packs at least: it opens the weights of all tasks of the level."""


def fit_files(
    model: XRLinear,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    work_dir: str | os.PathLike[str],
    engine: str | Engine = "pool",
    workers: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    shared: bool = True,
    rows_per_block: int = 50_000,
    n_tasks: int = 64,
    **options: Any,
) -> Run:
    """Train an `XRLinear` on data files, by many processes or machines, to the same bits as ``fit`` in one process.

    Parameters
    ----------
    model : trained in place; its arrays are mapped from the work directory
    files : paths, or a pattern such as ``train-*.jsonl.xz``, in the order of their names; the samples of all files, one
        after the other, are the training data
    work_dir : directory for everything that is made on the way; the same call resumes from there
    engine : "process" (this one), "pool" (processes of this machine) or "ray"
    workers : pool: processes at a time; None: one for each core
    threads : threads of a task
    address : ray: address of the cluster; "auto": the one of this machine; None: a new one on this machine
    shared : ray: whether the nodes share the folders of the work directory and of the files; if not, shards travel
        through the object store, and results are written to the work directory here
    rows_per_block : samples of which features are made, and negatives found, at a time
    n_tasks : number of tasks, about, that the labels are divided into; the model does not depend on it
    options : of `ramify.read`: format, fields, label_sep, label_field, encoding, skip_bad
    """
    _check(model, options)
    if rows_per_block < 1 or n_tasks < 1:
        raise ValueError(f"rows_per_block and n_tasks must be at least 1; got {rows_per_block} and {n_tasks}")
    directory = str(Path(work_dir).resolve())
    paths = find_files(files)
    chosen = make_engine(
        engine, directory, workers=workers, threads=threads or model.threads, address=address, shared=shared
    )
    try:
        run = Run(directory, chosen, model.verbose)
        with progress(f"training {model.kind}", None, model.verbose):
            joined = _Training(run, model, n_tasks, rows_per_block).train(paths, options)
    finally:
        if isinstance(engine, str):
            chosen.close()
    trained = type(model).load(shard_path(directory, joined.key))
    vars(model).update({name: value for name, value in vars(trained).items() if name.endswith("_")})
    return run


def _check(model: XRLinear, options: dict[str, Any]) -> None:
    if type(model) is not XRLinear:
        raise TypeError(f"fit_files trains XRLinear; got {type(model).__name__}")
    model.check_params()
    check_read_options(options)
    for tfidf in feature_parts(model.features):
        if tfidf.preprocessor is not None or tfidf.tokenizer is not None:
            raise ValueError("functions of Tfidf cannot be sent to other processes; apply them to the files before")


class _Data(NamedTuple):
    """What the driver knows of the data: tasks and sizes."""

    kind: str
    n: int
    n_labels: int
    n_features: int
    n_entries: int
    is_graded: bool
    blocks: list[Block]
    labels: Task
    Y: list[Task]
    X: list[Task]
    features: Task | None

    @property
    def first_rows(self) -> list[int]:
        return [block.first for block in self.blocks]

    def bytes_of(self, n_rows: int) -> int:
        """Estimated bytes of so many rows of X, with what the work on them takes."""
        return OVERHEAD + int(3 * ENTRY * self.n_entries * n_rows / max(1, self.n))


class _Training:
    """The stages of a training."""

    def __init__(self, run: Run, model: XRLinear, n_tasks: int, rows_per_block: int) -> None:
        self._run, self._model, self._n_tasks, self._rows_per_block = run, model, n_tasks, rows_per_block
        irrelevant = ("threads", "verbose", "checkpoint_dir", "threshold", "features")
        self._settings = {name: value for name, value in model.to_dict().items() if name not in irrelevant}

    def train(self, paths: list[str], options: dict[str, Any]) -> Task:
        """Run all stages; returns the task whose shard is the model."""
        data = self._read(paths, options)
        trees: list[Task] = []
        levels: list[Task] = []
        for index in range(self._model.n_trees):
            tree = self._build_tree(data, index)
            trees.append(tree)
            for level in range(len(self._run.result(tree)["widths"])):
                above = levels[len(levels) - level :]
                levels.append(self._fit_level(data, tree, above, level, index))
        inputs = {"labels": [data.labels], "Y": data.Y, "trees": trees, "levels": levels}
        if data.features is not None:
            inputs["features"] = [data.features]
        params = {"params": self._model.to_dict(), "input_kind": data.kind, "n": data.n, "n_features": data.n_features}
        return self._one("joining the model", "level_tasks:join_model", params, inputs)

    def _one(self, title: str, function: str, params: dict[str, Any], inputs: dict[str, list[Task]]) -> Task:
        return self._run.run(title, [Task(title, function, params, inputs)])[0]

    # ---- data ----

    def _read(self, paths: list[str], options: dict[str, Any]) -> _Data:
        files = read_files(self._run, paths, {"options": options})
        found = [self._run.result(file) for file in files]
        kinds = {result["kind"] for result in found}
        if "sparse" in kinds and len(kinds) > 1:
            raise DataError("some of the files have texts, others features")
        n = sum(result["n"] for result in found)
        blocks = make_blocks([result["n"] for result in found], self._rows_per_block)
        labels = self._one("merging labels", "data_tasks:merge_labels", {}, {"files": files})
        Y = self._run.run("encoding labels", [
            Task(f"encoding labels of rows {b.first}", "data_tasks:encode_labels",
                 {"file": b.file, "begin": b.begin, "end": b.end}, {"file": [files[b.file]], "labels": [labels]},
                 cost=b.end - b.begin)
            for b in blocks
        ])  # fmt: skip
        if not any(self._run.result(task)["n_entries"] for task in Y):
            raise DataError("no row has a label; there is nothing to train on")
        features, kind = None, "sparse"
        if "sparse" in kinds:
            of_blocks = {"file": [files[block.file] for block in blocks]}
            X = self._map_blocks("copying features", "take_features", blocks, {}, of_blocks)
            n_features = found[0]["n_features"]
        else:
            kind = "fields" if "fields" in kinds else "text"
            features, X = self._make_features(files, blocks, n, _field_names(found) if kind == "fields" else None)
            n_features = self._run.result(features)["n_features"]
        n_entries = sum(self._run.result(task)["n_entries"] for task in X)
        n_labels = self._run.result(labels)["n_labels"]
        is_graded = any(result["is_graded"] for result in found)
        return _Data(kind, n, n_labels, n_features, n_entries, is_graded, blocks, labels, Y, X, features)

    def _map_blocks(
        self, title: str, function: str, blocks: list[Block], params: dict[str, Any], of_blocks: dict[str, list[Task]],
        inputs: dict[str, list[Task]] | None = None,
    ) -> list[Task]:  # fmt: skip
        """Run a task of features for each block of rows; it reads the block's input of each role, and all `inputs`."""
        return self._run.run(title, [
            Task(f"{title}: rows {b.first} to {b.first + b.end - b.begin}", f"feature_tasks:{function}",
                 {**params, "begin": b.begin, "end": b.end, **({"first": b.first} if "n" in params else {})},
                 {**{role: [tasks[i]] for role, tasks in of_blocks.items()}, **(inputs or {})}, cost=b.end - b.begin)
            for i, b in enumerate(blocks)
        ])  # fmt: skip

    def _make_features(
        self, files: list[Task], blocks: list[Block], n: int, names: list[str] | None
    ) -> tuple[Task, list[Task]]:
        """Vocabulary and weights of all texts, then X by blocks."""
        base: dict[str, Any] = {"features": self._model.features.to_dict(), "names": names}
        texts = {"file": [files[block.file] for block in blocks]}
        found: list[Task] = []
        if is_chosen_by_texts(self._model.features):
            found = self._map_blocks("sampling texts", "sample_texts", blocks, {**base, "n": n}, texts)
        chosen = self._one("choosing features", "feature_tasks:choose_features", base, {"samples": found})
        base["features"] = self._run.result(chosen)["features"]
        parts = feature_parts(features_from(base["features"]))
        given = {"languages": [chosen]}
        counted = {"counts": self._map_blocks("counting terms", "count_block", blocks, base, texts, given)}
        counts = counted["counts"]
        while len(counts) > MERGED:
            counts = self._run.run("merging terms", [
                Task(f"merging terms {i}", "feature_tasks:merge_blocks", base, {"counts": counts[i : i + MERGED]})
                for i in range(0, len(counts), MERGED)
            ])  # fmt: skip
        inputs = {"counts": counts, **given}
        features = self._one("learning terms", "feature_tasks:learn_terms", {**base, "n": n}, inputs)
        if any(tfidf.subwords is not None for tfidf in parts):
            terms = {"terms": [features]}
            dfs = self._map_blocks("counting parts of words", "count_parts", blocks, base, counted, terms)
            features = self._one("learning weights", "feature_tasks:learn_weights", base, {**terms, "parts": dfs})
        X = self._map_blocks("making features", "transform", blocks, base, counted, {"features": [features]})
        return features, X

    # ---- tree ----

    def _build_tree(self, data: _Data, index: int) -> Task:
        config, seed = self._model.tree, self._model.seed + index
        params = {"tree": config.to_dict(), "seed": seed, "n_labels": data.n_labels}
        if data.n_labels <= config.max_leaf_size:
            return self._one("building the tree", "tree_tasks:build_whole", params, {})
        kind, n_tasks = self._model.representation_of(index), self._n_label_tasks(data)
        bounds = [data.n_labels * i // n_tasks for i in range(n_tasks + 1)]
        if kind == "spectral":
            bounds = [0, data.n_labels]
            graph = {"seed": seed, "n_terms": config.n_terms}
            Z = [self._one("representing labels", "tree_tasks:represent_graph", graph, {"labels": data.Y})]
        else:
            Z = self._represent(data, kind, bounds)
        if config.method != "kmeans":
            return self._one("building the tree", "tree_tasks:build_whole", params, {"Z": Z})
        nodes = self._one("starting the tree", "tree_tasks:start", {"n_labels": data.n_labels}, {})
        split = {"tree": config.to_dict(), "seed": seed, "label_bounds": bounds}
        while not (result := self._run.result(nodes)).get("is_complete"):
            parts = self._run.run(f"clustering labels, level {result['level']}", [
                Task(f"splitting nodes {a} to {b} of level {result['level']}", "tree_tasks:split_nodes",
                     {**split, "begin": a, "end": b}, {"above": [nodes], "Z": Z}, cost=size,
                     memory=OVERHEAD + 4 * ENTRY * (config.n_terms or 1000) * size)
                for a, b, size in result["groups"]
            ])  # fmt: skip
            joined = {"tree": config.to_dict(), "n_tasks": n_tasks}
            nodes = self._one("joining nodes", "tree_tasks:join_nodes", joined, {"above": [nodes], "parts": parts})
        return nodes

    def _n_label_tasks(self, data: _Data) -> int:
        return max(1, min(self._n_tasks, data.n_labels // LABELS_PER_TASK))

    def _represent(self, data: _Data, kind: str, bounds: list[int]) -> list[Task]:
        """Z by ranges of labels."""
        params = {"n": data.n, "n_features": data.n_features, "first_rows": data.first_rows, "kind": kind,
                  "n_terms": self._model.tree.n_terms}  # fmt: skip
        return self._run.run("representing labels", [
            Task(f"representing labels {a} to {b}", "tree_tasks:represent", {**params, "begin": a, "end": b},
                 {"labels": data.Y, "X": data.X}, cost=b - a,
                 memory=data.bytes_of(min(data.n, 4 * data.n * (b - a) // data.n_labels)))
            for a, b in itertools.pairwise(bounds)
        ])  # fmt: skip

    # ---- classifiers ----

    def _fit_level(self, data: _Data, tree: Task, above: list[Task], level: int, index: int) -> Task:
        name = f"level {level + 1}" if self._model.n_trees == 1 else f"tree {index + 1}, level {level + 1}"
        widths = self._run.result(tree)["widths"]
        common = {"model": self._settings, "level": level, "n_labels": data.n_labels, "is_graded": data.is_graded}
        seed = self._model.seed + index
        mined = self._run.run(f"finding negatives, {name}", [
            Task(f"negatives of rows {data.blocks[blocks[0]].first}, {name}", "level_tasks:mine",
                 {**common, "seed": seed, "first": data.blocks[blocks[0]].first},
                 {"labels": [data.Y[i] for i in blocks], "tree": [tree], "X": [data.X[i] for i in blocks],
                  "levels": above},
                 cost=sum(data.blocks[i].end - data.blocks[i].begin for i in blocks))
            for blocks in group_blocks(data.blocks, self._rows_per_block)
        ])  # fmt: skip
        sizes = {"level": level, "n_labels": data.n_labels, "n": data.n, "n_tasks": self._n_tasks,
                 "min_work": WORK_PER_TASK}  # fmt: skip
        plan = self._one(f"planning {name}", "level_tasks:plan", sizes, {"tree": [tree], "mined": mined})
        weights = self._run.run(f"training {name}", [
            Task(f"training nodes {begin} to {end} of {name}", "level_tasks:fit_group",
                 {**common, "seed": seed, "group": [begin, end, first, last], "n": data.n,
                  "n_features": data.n_features, "first_rows": data.first_rows, "is_wide": data.n_entries >= 2**31},
                 {"tree": [tree], "mined": mined, "X": data.X}, cost=work, memory=data.bytes_of(n_rows))
            for begin, end, first, last, n_rows, work in self._run.result(plan)["groups"]
        ])  # fmt: skip
        found = [self._run.result(task)["magnitudes"] for task in weights]
        magnitudes = {kind: merge_magnitudes([result[kind] for result in found]) for kind in (KEPT, MINING)}
        n_parts = max(1, min(self._n_tasks, data.n_features // FEATURES_PER_TASK)) if widths[level] > 1 else 1
        bounds = [data.n_features * i // n_parts for i in range(n_parts + 1)]
        packed = self._run.run(f"packing {name}", [
            Task(f"packing features {a} to {b} of {name}", "level_tasks:pack",
                 {**common, "features": [a, b], "magnitudes": magnitudes}, {"tree": [tree], "weights": weights},
                 cost=b - a)
            for a, b in itertools.pairwise(bounds)
        ])  # fmt: skip
        return self._one(f"joining {name}", "level_tasks:join_level", {}, {"parts": packed, "weights": weights})


def _field_names(found: list[dict[str, Any]]) -> list[str]:
    """Text fields of all files, in the order in which they occur; a plain text is the field ``text``."""
    names = dict.fromkeys(name for result in found for name in result["columns"] or ())
    if any(result["columns"] is None for result in found):
        names.setdefault("text")
    return list(names)
