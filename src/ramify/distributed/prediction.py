"""`predict_files`: rankings of the samples of many files, by many processes or machines."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.types import Label
from ramify.distributed.data_tasks import Block, documents, keys_of, labels_of, make_blocks
from ramify.distributed.engines import Engine, make_engine
from ramify.distributed.files import check_read_options, find_files, read_files
from ramify.distributed.scheduler import Run
from ramify.distributed.task import Job, Task
from ramify.io.store import MANIFEST
from ramify.metrics.report import Evaluation, evaluate
from ramify.models import load
from ramify.models.base import Model


class FilePredictions(NamedTuple):
    """Rankings of the samples of files, in order, mapped from the work directory.

    Attributes
    ----------
    paths : the files
    model : the model that ranked
    run : what was done
    """

    paths: list[str]
    model: Model
    run: Run
    blocks: list[Block]
    files: list[Task]
    tasks: list[Task]

    def __len__(self) -> int:
        """Return the number of samples."""
        return sum(block.end - block.begin for block in self.blocks)

    def rankings(self) -> Iterator[tuple[int, Ranking, list[Any] | None]]:
        """Yield, block by block, the index of the file, the ranking and the ids of the samples, if they have any."""
        for block, task in zip(self.blocks, self.tasks, strict=True):
            shard = self.run.shard(task)
            keys = keys_of(self.run.shard(self.files[block.file]))
            ranking = Ranking.trusted(
                shard.array("ids"),
                shard.array("scores"),
                self.model.n_labels,
                self.model.labels_,
                shard.result["are_probabilities"],
                self.model.catalogue_,
            )
            yield block.file, ranking, None if keys is None else keys[block.begin : block.end]

    def labels(self) -> list[list[Label]]:
        """Labels of all samples, as the files have them."""
        rows: list[list[Label]] = []
        for block in self.blocks:
            rows += labels_of(self.run.shard(self.files[block.file]), block.begin, block.end)
        return rows

    def ranking(self) -> Ranking:
        """Ranking of all samples."""
        return Ranking.concat([ranking for _, ranking, _ in self.rankings()])

    def evaluate(self, **options: Any) -> Evaluation:
        """Compare with the labels of the files; options of `ramify.evaluate`. The metrics are those of all rows."""
        return evaluate(self.ranking(), self.labels(), self.model.label_counts_, **options)


def predict_files(
    model: str | os.PathLike[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    work_dir: str | os.PathLike[str],
    k: int = 10,
    probabilities: bool = False,
    engine: str | Engine = "pool",
    workers: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    rows_per_block: int = 50_000,
    verbose: int = 1,
    **options: Any,
) -> FilePredictions:
    """Rank the labels of all samples of data files, by many processes or machines; any model.

    Parameters
    ----------
    model : directory of a saved model, which all machines see
    files, work_dir, engine, workers, threads, address, options : as of `fit_files`
    k : labels of each sample
    probabilities : as of `predict_topk`
    rows_per_block : samples of a task
    """
    check_read_options(options)
    directory, model_path = str(Path(work_dir).resolve()), str(Path(model).resolve())
    loaded = load(model_path)
    k = min(k, loaded.n_labels)
    if options.get("fields") is None and loaded.input_kind_ == "text":
        options["fields"] = ["text"]
    paths = find_files(files)
    chosen = make_engine(engine, directory, workers=workers, threads=threads, address=address)
    try:
        run = Run(directory, chosen, verbose)
        read = read_files(run, paths, {"options": options})
        blocks = make_blocks([run.result(task)["n"] for task in read], rows_per_block)
        params = {"model": _digest(model_path), "k": k, "probabilities": probabilities}
        tasks = [
            Task(
                f"ranking rows {block.first} to {block.first + block.end - block.begin}",
                "prediction:predict_block",
                {**params, "begin": block.begin, "end": block.end},
                {"file": [read[block.file]]},
                paths=[model_path],
                cost=block.end - block.begin,
            )
            for block in blocks
        ]
        run.run("ranking", tasks)
    finally:
        if isinstance(engine, str):
            chosen.close()
    return FilePredictions(paths, loaded, run, blocks, read, tasks)


def _digest(model: str) -> str:
    """Hash of a saved model: its manifest has the hashes of all files."""
    return hashlib.sha256((Path(model) / MANIFEST).read_bytes()).hexdigest()


@functools.lru_cache(maxsize=2)
def _opened(path: str, digest: str) -> Model:
    """Open a model, once for all tasks that a process runs."""
    if _digest(path) != digest:
        raise DataError(f"{path} was replaced while it was in use; run the command again")
    return load(path).set_params(threads=None, verbose=0)


def predict_block(job: Job) -> dict[str, Any]:
    """Ids and scores (rows, k) of a block."""
    model, file = _opened(job.paths[0], job.params["model"]), job.inputs["file"][0]
    begin, end = job.params["begin"], job.params["end"]
    X: Any
    if file.result["kind"] == "sparse":
        X = file.csr("X")[begin:end]
    else:
        names = file.result["columns"] or ["text"]
        X = documents(file, begin, end, names if model.input_kind_ == "fields" else None)
    ranking = model.predict_topk(X, job.params["k"], probabilities=job.params["probabilities"])
    job.writer.array("ids", np.ascontiguousarray(ranking.ids))
    job.writer.array("scores", np.ascontiguousarray(ranking.scores))
    return {"are_probabilities": ranking.are_probabilities}
