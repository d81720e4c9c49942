"""What is mutated: models, checkpoints of their trainings, and entries of the embedding cache.

A subject opens a mutant and uses it. It returns if there is an answer, and raises `Refused` if the mutant is refused in
words; anything else is a finding.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import ramify

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]
from golden.make import LABELS, MODELS, TEXTS
from mutations import Directory, Random, mutate

from ramify.io.store import FORMAT_VERSION
from ramify.models import encoded, level_checkpoints, member_checkpoints
from ramify.nn import trainer
from ramify.nn.encoders.cache import cached
from ramify.nn.encoders.tokenizer import TextTokenizer

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / f"v{FORMAT_VERSION}"
TO_THE_END = 0.1
"""Fraction of the mutants of checkpoints with which the training goes on to its end."""
QUERIES = ["a red fox", "hen eggs whale " * 60, "", "zzz", "red red brown grey"]
BATCH = 60
"""How often the queries are repeated for a batch, which other code searches for than for a few rows."""


class Refused(Exception):
    """The mutant was refused in words."""


class Subject(Protocol):
    """Makes and opens mutants."""

    def reach(self, stage: int, loop: Callable[[], None]) -> None:
        """Come to where the mutants of a stage are opened, and call `loop`, which tries them."""

    def try_mutant(self, random: Random, note: Callable[[str], None]) -> None:
        """Make a mutant, tell its mutations, open and use it."""


class SavedModel:
    """A model directory: it is opened and asked."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._source = Directory(source, [Directory(GOLDEN / other) for other in sorted(MODELS)])
        self._path, self._present = folder / "mutant", dict[str, bytes]()
        self._source.write(self._path)
        self._query(np.random.default_rng(0), verify=True)  # imports and allocates what is needed once

    def reach(self, stage: int, loop: Callable[[], None]) -> None:
        """Try mutants: nothing has to be done before."""
        loop()

    def try_mutant(self, random: Random, note: Callable[[str], None]) -> None:
        """Open a mutant and ask it."""
        model = self._source.copy()
        note(mutate(model, random))
        model.write(self._path, self._present)
        try:
            self._query(random, verify=bool(random.integers(2)))
        except ramify.ModelFormatError as error:
            raise Refused from error

    def _query(self, random: Random, verify: bool) -> None:
        model = ramify.load(self._path, verify=verify)
        model.threads = 1
        times = BATCH if random.random() < 0.1 else 1
        if model.input_kind_ in ("sparse", "dense"):
            n_rows = len(QUERIES) * times
            inputs: Any = np.ones((n_rows, model.n_features_in_), np.float32) if model.n_features_in_ < 1000 else None
        else:
            inputs = ([{"title": text} for text in QUERIES] if model.input_kind_ == "fields" else QUERIES) * times
        if inputs is not None:
            model.predict_topk(inputs, k=(1, 3, 100)[int(random.integers(3))]).labels()
        if model.is_calibrated:
            model.predict_proba(inputs)
            model.predict(inputs)
            if model.catalogue_ is not None:
                model.catalogue_.display_name("fox")


def calibrated_model(folder: Path) -> SavedModel:
    """A model with fields of texts, probabilities, a decision rule and names of labels."""
    texts, labels = [{"title": text} for text in TEXTS * 4], LABELS * 4
    catalogue = {"fox": {"label_en": "fox", "label_de": "Fuchs"}}
    model = ramify.XRLinear(verbose=0, threads=1).fit(texts, labels, label_catalogue=catalogue)
    model.calibrate(texts, labels)
    model.save(folder / "source")
    return SavedModel(folder / "source", folder)


class Checkpoint:
    """The checkpoints of an interrupted training: it resumes, or refuses them.

    What a training does before it reads a checkpoint is the same for all mutants of it. So the training waits there and
    reads mutant after mutant. A neural training also goes on to its next checkpoint there, since it restores all that
    it changes; the others begin again with a mutant that was not refused.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._path = kind, folder / "checkpoints"
        linear = (level_checkpoints, "save_checkpoint", level_checkpoints, "load_checkpoint")
        members = (member_checkpoints, "save_member", member_checkpoints, "load_member")
        neural = (trainer, "save_checkpoint", encoded, "train")
        writers = {"xr-linear": linear, "one-vs-all": linear, "ensemble": members, "hybrid": members}
        self._writer, self._save, self._reader, self._load = writers.get(kind, neural)
        self._is_neural = self._load == "train"
        n_saves = self._train(None)
        snapshots = []
        for after in sorted({1, (n_saves + 1) // 2, n_saves}):
            shutil.rmtree(self._path, ignore_errors=True)
            self._train(after)
            snapshots.append({path.name: Directory(path) for path in self._path.iterdir()})
        everything = [directory for snapshot in snapshots for directory in snapshot.values()]
        for directory in everything:
            directory.others = everything
        self._stages = [(snapshot, name) for snapshot in snapshots for name in snapshot]

    def reach(self, stage: int, loop: Callable[[], None]) -> None:
        """Train until the checkpoint of a stage is to be read, and try mutants of it there."""
        self._snapshot, self._name = self._stages[stage % len(self._stages)]
        self._write()
        load = getattr(self._reader, self._load)

        def read_mutants(*args: Any, **options: Any) -> Any:
            path = options["checkpoint"] if self._is_neural else args[0]
            if path.name != self._name:
                return load(*args, **options)
            setattr(self._reader, self._load, load)
            self._read = lambda: self._stopping(1, lambda: load(*args, **options))
            loop()
            raise KeyboardInterrupt

        setattr(self._reader, self._load, read_mutants)
        try:
            self._model().fit(TEXTS, LABELS)
        except KeyboardInterrupt:
            pass
        finally:
            setattr(self._reader, self._load, load)

    def try_mutant(self, random: Random, note: Callable[[str], None]) -> None:
        """Mutate a checkpoint, read it and go on."""
        copy = self._snapshot[self._name].copy()
        note(mutate(copy, random))
        copy.write(self._path / self._name, self._present)
        to_the_end = random.random() < TO_THE_END
        try:
            self._read()
            if to_the_end or not self._is_neural:
                # Most resume only to the next checkpoint: by then all that was read has been used.
                self._train(None if to_the_end else 1)
        except (ramify.ModelFormatError, ramify.DataError) as error:  # DataError: the training diverges
            raise Refused from error
        finally:
            if self._is_changed():
                self._write()

    def _write(self) -> None:
        """Write all checkpoints of an interrupted training, as they were."""
        shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir()
        self._present = dict[str, bytes]()
        for name, directory in self._snapshot.items():
            directory.write(self._path / name, self._present if name == self._name else None)
        self._before = self._identities()

    def _is_changed(self) -> bool:
        """Whether a training wrote or removed checkpoints."""
        return self._identities() != self._before

    def _identities(self) -> dict[str, int]:
        return {entry.name: entry.inode() for entry in os.scandir(self._path)} if self._path.exists() else {}

    def _train(self, stop_after: int | None) -> int:
        """Train until so many checkpoints were written; return their number."""
        return self._stopping(stop_after, lambda: self._model().fit(TEXTS, LABELS))

    def _model(self) -> Any:
        return MODELS[self._kind]().set_params(checkpoint_dir=str(self._path))

    def _stopping(self, stop_after: int | None, run: Callable[[], Any]) -> int:
        """Run until so many checkpoints were written; return their number."""
        save, n_saves = getattr(self._writer, self._save), 0

        def save_and_count(*args: Any) -> None:
            nonlocal n_saves
            save(*args)
            n_saves += 1
            if n_saves == stop_after:
                raise KeyboardInterrupt

        setattr(self._writer, self._save, save_and_count)
        try:
            run()
        except KeyboardInterrupt:
            if stop_after is None:
                raise
        finally:
            setattr(self._writer, self._save, save)
        return n_saves


class Cache:
    """An entry of the embedding cache: it is used, or computed again, and valid in any case."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder, self._kind = folder / "cache", kind
        self._source = {path.name: Directory(path) for path in self._fill()}
        for directory in self._source.values():
            directory.others = list(self._source.values())

    def reach(self, stage: int, loop: Callable[[], None]) -> None:
        """Try mutants: nothing has to be done before."""
        loop()

    def try_mutant(self, random: Random, note: Callable[[str], None]) -> None:
        """Mutate an entry and ask the cache for it."""
        ((name, source),) = self._source.items()
        copy = source.copy()
        note(mutate(copy, random))
        copy.write(self._folder / name)
        before = (self._folder / name / "manifest.json").stat().st_ino
        self._use()
        self._use()  # what a damaged entry was replaced by
        if (self._folder / name / "manifest.json").stat().st_ino != before:
            raise Refused

    def _fill(self) -> list[Path]:
        self._folder.mkdir()
        self._use()
        return list(self._folder.iterdir())

    def _use(self) -> None:
        if self._kind == "tokens":
            tokens = tokenizer().cached(QUERIES, str(self._folder))
            ids, mask = tokens.padded()
            assert ids.shape == mask.shape
            assert len(ids) == len(QUERIES)
            assert 0 <= ids.min() <= ids.max() < 8
        else:
            embeddings = cached(self._folder / "embeddings", _embeddings, _is_valid)["embeddings"]
            assert embeddings.shape == (5, 4)
            assert np.isfinite(embeddings).all()


def _embeddings() -> dict[str, Any]:
    return {"embeddings": np.arange(20, dtype=np.float32).reshape(5, 4)}


def _is_valid(arrays: dict[str, Any]) -> bool:
    array = arrays.get("embeddings")
    return array is not None and array.shape == (5, 4) and array.dtype == np.float32 and bool(np.isfinite(array).all())


def tokenizer() -> TextTokenizer:
    """Return a tokenizer of a few words."""
    import tokenizers

    words = {word: i for i, word in enumerate(["[UNK]", "a", "red", "fox", "hen", "eggs", "whale", "brown"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return TextTokenizer(backend, max_length=64, n_windows=2)


CHECKPOINTED = [kind for kind in sorted(MODELS) if hasattr(MODELS[kind](), "checkpoint_dir")]
SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    **{kind: lambda folder, kind=kind: SavedModel(GOLDEN / kind, folder) for kind in sorted(MODELS)},
    "calibrated": calibrated_model,
    **{f"{kind}-checkpoint": lambda folder, kind=kind: Checkpoint(kind, folder) for kind in CHECKPOINTED},
    **{f"{kind}-cache": lambda folder, kind=kind: Cache(kind, folder) for kind in ("tokens", "embeddings")},
}


def scratch_directory() -> Any:
    """Return a temporary directory, in memory where there is such a file system: mutants are many small files."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
