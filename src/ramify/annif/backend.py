"""The backend `ramify` of Annif: trains a Ramify model on the documents of a project and suggests subjects with it.

The labels of the model are the URIs of the subjects, with their names: the directory `ramify-model` of a project is a
model like any other, which ``ramify serve`` and ``ramify evaluate`` take.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from annif.backend import hyperopt
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.suggestion import SuggestionBatch
from annif.util import boolean

from ramify.annif.scores import rank, subject_ids, to_array
from ramify.annif.tuning import Objective, Optimizer
from ramify.base.config import parse_value
from ramify.base.errors import RamifyError
from ramify.base.types import IntArray
from ramify.models import load, model_class
from ramify.models.base import Model

_ANNIF = frozenset(
    ("name", "language", "backend", "analyzer", "vocab", "limit", "access", "transform", "allow_learn", "source")
)
"""Settings of a project that Annif reads."""
_OWN = frozenset(("model", "calibrate"))
Samples = tuple[list[str], list[list[str]]]
"""Texts, and the URIs of the subjects of each."""


class RamifyBackend(hyperopt.AnnifHyperoptBackend):  # type: ignore[misc]
    """Settings: `model`, such as xr-linear; `calibrate`, true for probabilities; and every parameter of the model."""

    name = "ramify"

    MODEL_DIRECTORY = "ramify-model"
    TRAIN_FILE = "ramify-train.jsonl.gz"  # the name tells Annif that it is not part of the model
    DEFAULT_PARAMETERS: ClassVar[dict[str, Any]] = {"model": "xr-linear", "calibrate": False}

    _model: Model | None = None
    _subjects: IntArray | None = None

    # ---- training ----

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        path = Path(self.datadir) / self.TRAIN_FILE
        if corpus == "cached":
            self.info("Reusing cached training data from previous run.")
        else:
            if corpus.is_empty():
                raise NotSupportedException("Cannot train ramify project with no documents")
            self.info("reading documents")
            _write(path, corpus.documents, self.project.subjects)
        texts, labels = self.training_data()
        if not any(labels):
            raise NotSupportedException("Cannot train ramify project: no document has a subject of the vocabulary")
        model = self.new_model(params).set_params(threads=jobs or None)
        self.info(f"training {model!r} on {len(texts)} documents")
        try:
            fit = model.fit_calibrated if boolean(params["calibrate"]) else model.fit
            fit(texts, labels, label_catalogue=_names(self.project.subjects, labels))
            model.set_params(threads=None).save(Path(self.datadir) / self.MODEL_DIRECTORY)
        except (RamifyError, OSError) as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error
        self._model = self._subjects = None

    def training_data(self) -> Samples:
        """Documents of the last training."""
        path = Path(self.datadir) / self.TRAIN_FILE
        if not path.exists():
            raise NotInitializedException(f"training data {path} not found", backend_id=self.backend_id)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        return [record["text"] for record in records], [record["labels"] for record in records]

    def new_model(self, params: Mapping[str, Any]) -> Model:
        """Return an untrained model with the parameters of the project; unknown ones are refused."""
        try:
            model = model_class(params["model"])(verbose=0)
            for name, value in params.items():
                if name not in _ANNIF | _OWN:
                    model.set_params(**{name: parse_value(value) if isinstance(value, str) else value})
            model.check_params()
        except (ValueError, TypeError) as error:
            raise ConfigurationException(str(error), backend_id=self.backend_id) from error
        return model

    # ---- suggestions ----

    def initialize(self, parallel: bool = False) -> None:
        """Open the model; where processes work in parallel, each of them uses one thread."""
        if self._model is None:
            path = Path(self.datadir) / self.MODEL_DIRECTORY
            if not path.exists():
                raise NotInitializedException(f"model {path} not found", backend_id=self.backend_id)
            try:
                self._model = load(path).set_params(verbose=0)
            except RamifyError as error:
                raise OperationFailedException(str(error), backend_id=self.backend_id) from error
            self._subjects = subject_ids(self._model, self.project.subjects)
        if parallel:
            self._model.set_params(threads=1)

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        assert self._model is not None
        assert self._subjects is not None
        ranking = rank(self._model, [document.text for document in documents], int(params["limit"]))
        return SuggestionBatch(to_array(ranking, self._subjects, len(self.project.subjects)))

    # ---- hyperparameters ----

    def get_hp_optimizer(self, corpus: Any, metric: str) -> Optimizer:
        """Return what looks for parameters of the model with which a metric is best on a corpus."""
        return Optimizer(self, corpus, metric, Objective)


def _write(path: Path, documents: Iterable[Any], subjects: Any) -> None:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for document in documents:
            uris = [subjects[i].uri for i in document.subject_set]
            text = document.text.encode("utf-8", "replace").decode()
            file.write(json.dumps({"text": text, "labels": uris}, ensure_ascii=False) + "\n")


def _names(subjects: Any, labels: list[list[str]]) -> dict[str, dict[str, Any]]:
    """Names and notations of the subjects that documents have."""
    names = {}
    for uri in {uri for row in labels for uri in row}:
        subject = subjects[subjects.by_uri(uri)]
        names[uri] = {"names": dict(subject.labels or {}), "notation": subject.notation}
    return names
