"""Suggestions for the texts of a request, as JSON."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from ramify.base.errors import DataError
from ramify.models.explain import without_words
from ramify.rank.decision_rule import DecisionRule
from ramify.rank.decisions import requested_rule
from ramify.serve.problems import Problem
from ramify.serve.served import LoadedModel, to_json
from ramify.serve.suggest_request import Document, SuggestRequest

DEFAULT_K = 10
Rows = list[tuple[list[int], list[float]]]
"""Label ids and scores of each text, best first."""


class SuggestJob:
    """What ``POST /v1/suggest`` asks for, as a job of the `WorkQueue`."""

    __slots__ = ("_filter", "_key", "_language", "_loaded", "_request", "_rule", "are_probabilities", "documents")

    def __init__(self, loaded: LoadedModel, request: SuggestRequest) -> None:
        self._loaded, self._request, self._language = loaded, request, loaded.language(request.language)
        model = loaded.model
        self._rule: DecisionRule | None = None
        self._filter = None
        self.are_probabilities = request.probabilities
        self.documents: list[Document] = request.documents
        if model.input_kind_ != "text" or any(type(document) is not str for document in request.documents):
            self.documents = [loaded.document(document) for document in request.documents]
        if request.probabilities and not model.is_calibrated:
            raise Problem(422, f"the model {loaded.name} has no probabilities; leave out the field, or calibrate it")
        if request.rule is not None:
            self._rule = _rule(loaded, request.rule)
            self.are_probabilities = model.is_calibrated
        if request.allow is not None or request.deny is not None:
            self._filter = loaded.label_filter(request.allow, request.deny)
        self._key: Hashable = (loaded.version, loaded.name, self.k, request.probabilities, self._rule, id(self._filter))
        if request.without:
            self._key = (id(self), self._key)

    @property
    def key(self) -> Hashable:
        """Jobs with the same model and options are ranked together."""
        return self._key

    @property
    def k(self) -> int:
        """Largest number of labels; a rule chooses by itself if none is given."""
        return self._request.k or (DEFAULT_K if self._rule is None else 0)

    def rank(self, documents: list[Any]) -> Rows:
        """Rank the labels of documents, those of other jobs with the same key included."""
        model = self._loaded.model
        if self._request.without:
            words = {word.lower() for word in self._request.without}
            documents = self.documents = [without_words(document, words) for document in documents]
        try:
            if self._rule is None:
                ranking = model.predict_topk(
                    documents, self.k, probabilities=self._request.probabilities, allow=self._filter
                )
            else:
                ranking = model.predict_sets(documents, rule=self._rule, allow=self._filter)
        except ValueError as error:  # an option that does not suit the model
            raise Problem(422, str(error)) from None
        return list(zip(ranking.ids.tolist(), ranking.scores.tolist(), strict=True))

    def finish(self, rows: Rows) -> bytes:
        """Answer with the rows of this request."""
        loaded, request = self._loaded, self._request
        results = [f'{{"labels":[{label_list(loaded, *row, self._language, self._lowest, self.k)}]}}' for row in rows]
        if request.explain:
            explanations = to_json(self._explanations(rows[0]))
            results = [f'{results[0][:-1]},"explanations":{explanations}}}']
        kind = "true" if self.are_probabilities else "false"
        return f'{loaded.answer_head},"probabilities":{kind},"results":[{",".join(results)}]}}'.encode()

    @property
    def _lowest(self) -> float:
        return -math.inf if self._request.threshold is None else self._request.threshold

    def _explanations(self, row: tuple[list[int], list[float]]) -> list[dict[str, Any]]:
        model, given = self._loaded.model, self._request.explain
        if isinstance(given, list):
            wanted = self._loaded.known(given) or []
        else:
            ids = [i for i, score in zip(*row, strict=True) if i >= 0 and score >= self._lowest]
            wanted = [model.labels_[i] for i in ids[:given]]
        explained = []
        for label in wanted:
            try:
                explanation = model.explain(self.documents[0], label)
            except DataError as error:
                raise Problem(422, f'"explain": {error}') from None
            explained.append(explanation.to_dict())
        return explained


def label_list(
    loaded: LoadedModel, ids: list[int], scores: list[float], language: str | None, lowest: float, k: int
) -> str:
    """JSON of the labels of a text from a score on, at most k (0: all), without the brackets."""
    known, parts = loaded.fragments(language), []
    for i, score in zip(ids, scores, strict=True):
        if i < 0 or score < lowest:
            break
        # Nine digits are a number in single precision.
        parts.append(f"{known.get(i) or loaded.fragment(i, language)}{score:.9g}}}")
    return ",".join(parts[:k] if k else parts)


def _rule(loaded: LoadedModel, text: str) -> DecisionRule:
    try:
        return requested_rule(text, loaded.model.rule_)
    except ValueError as error:
        raise Problem(422, f"model {loaded.name}: {error}") from None
