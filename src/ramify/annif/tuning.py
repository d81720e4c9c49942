"""``annif hyperopt``: parameters of the model with which a metric of Annif is best on a corpus."""

from __future__ import annotations

from typing import Any

import annif.eval
from annif.backend import hyperopt
from annif.exception import NotSupportedException
from annif.suggestion import SuggestionBatch

from ramify.annif.scores import rank, subject_ids, to_array

SPACE = {
    "linear.C": (0.1, 10.0),
    "linear.positive_weight": (0.5, 4.0),
    "linear.tail_weight": (0.25, 4.0),
}
"""Parameters of the linear models and their limits, which are tried on a logarithmic scale."""


class Objective(hyperopt.HPObjective):  # type: ignore[misc]
    """Trains a model on the documents of the last training, and evaluates it on those of the corpus."""

    @classmethod
    def objective(cls, trial: Any, args: dict[str, Any]) -> float:
        """Metric of one trial."""
        values = {name: trial.suggest_float(name, low, high, log=True) for name, (low, high) in args["space"].items()}
        model = args["model"].clone().set_params(**values)
        model.fit(*args["samples"])
        subjects = args["subjects"]
        ranking = rank(model, args["texts"], args["limit"])
        scores = SuggestionBatch(to_array(ranking, subject_ids(model, subjects), len(subjects)))
        batch = annif.eval.EvaluationBatch(subjects)
        batch.evaluate_many(scores, args["gold"])
        return float(batch.results(metrics=[args["metric"]])[args["metric"]])


class Optimizer(hyperopt.HyperparameterOptimizer):  # type: ignore[misc]
    """Looks for the best parameters within `SPACE`."""

    def _prepare(self, n_jobs: int = 1) -> dict[str, Any]:
        params = self._backend.params
        model = self._backend.new_model(params).set_params(threads=1 if n_jobs != 1 else None)
        known = {info.path for info in type(model).describe()}
        space = {name: limits for name, limits in SPACE.items() if name in known}
        if not space:
            raise NotSupportedException(f"the parameters of {model.kind} are not tuned by Annif; use ramify tune")
        documents = list(self._corpus.documents)
        return {
            "model": model,
            "space": space,
            "samples": self._backend.training_data(),
            "subjects": self._backend.project.subjects,
            "texts": [document.text for document in documents],
            "gold": [document.subject_set for document in documents],
            "limit": int(params["limit"]),
            "metric": self._metric,
        }

    def _postprocess(self, study: Any) -> Any:
        lines = [f"{name}={value:.4g}" for name, value in study.best_params.items()]
        return hyperopt.HPRecommendation(lines=lines, score=study.best_value)
