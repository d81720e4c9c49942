"""Annif's REST API, version 1: models are projects, label catalogues are vocabularies."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from ramify.features import detect_languages
from ramify.serve import annif_requests as requests
from ramify.serve.bodies import Receive
from ramify.serve.problems import Problem
from ramify.serve.served import LoadedModel, to_json
from ramify.serve.service import LARGE, Scope, Service, check_type, client_of
from ramify.serve.work import Waiting
from ramify.version import __version__

LANGUAGES = {
    "de": "german", "en": "english", "fr": "french", "es": "spanish", "it": "italian", "nl": "dutch", "sv": "swedish",
}  # fmt: skip
"""Languages that can be recognized, by code."""
_SENTENCE = re.compile(r"(?<=[.!?\n])\s+")


class AnnifApi:
    """Answers of all routes; `annif_routes` documents them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._projects: dict[str, tuple[LoadedModel, bytes]] = {}

    # ---- information ----

    def info(self) -> bytes:
        """``GET /``."""
        return to_json({"title": "Annif REST API", "version": __version__}).encode()

    def projects(self) -> bytes:
        """``GET /projects``."""
        return to_json({"projects": [self._describe(loaded) for loaded in self._service.models]}).encode()

    def project(self, name: str) -> bytes:
        """``GET /projects/{id}``: Annif asks for it before each suggestion, so that it is kept."""
        loaded = self._loaded(name)
        known = self._projects.get(name)
        if known is None or known[0] is not loaded:
            known = self._projects[name] = loaded, to_json(self._describe(loaded)).encode()
        return known[1]

    def vocabs(self) -> bytes:
        """``GET /vocabs``."""
        return to_json({"vocabs": [self._vocabulary(loaded) for loaded in self._service.models]}).encode()

    def _describe(self, loaded: LoadedModel) -> dict[str, Any]:
        language = self._language(loaded)
        return {
            "project_id": loaded.name,
            "name": loaded.name,
            "language": language,
            "backend": {"backend_id": "ramify"},
            "vocab": self._vocabulary(loaded),
            "vocab_language": language,
            "is_trained": True,
            "modification_time": datetime.fromtimestamp(loaded.modified, UTC).isoformat(),
        }

    def _vocabulary(self, loaded: LoadedModel) -> dict[str, Any]:
        languages = sorted(loaded.languages) or [self._language(loaded)]
        return {"vocab_id": loaded.name, "languages": languages, "size": loaded.model.n_labels, "loaded": True}

    def _language(self, loaded: LoadedModel) -> str:
        languages = loaded.languages
        wanted = self._service.settings.language
        if wanted is not None and (wanted in languages or not languages):
            return wanted
        return languages[0] if languages else "en"

    # ---- suggestions ----

    async def suggest(self, name: str, scope: Scope, receive: Receive) -> bytes:
        """``POST /projects/{id}/suggest``."""
        check_type(scope, b"application/x-www-form-urlencoded")
        body = await self._service.body(scope, receive)
        waiting = self.begin_suggest(name, scope, body)
        if waiting is None:
            text, metadata, options = await asyncio.to_thread(requests.parse_form, body)
            waiting = self._submit(scope, self._loaded(name), [(text, metadata)], options, None)
        return await waiting

    def begin_suggest(self, name: str, scope: Scope, body: bytes) -> Waiting | None:
        """Queue a request that was read; None if it takes too long to parse for the event loop."""
        check_type(scope, b"application/x-www-form-urlencoded")
        self._service.work.check(client_of(scope), is_annif=True)
        if len(body) >= LARGE:
            return None
        text, metadata, options = requests.parse_form(body)
        return self._submit(scope, self._loaded(name), [(text, metadata)], options, None)

    async def suggest_batch(self, name: str, scope: Scope, receive: Receive) -> bytes:
        """``POST /projects/{id}/suggest-batch``."""
        check_type(scope, b"application/json")
        try:
            query = dict(parse_qsl(scope["query_string"].decode("utf-8"), keep_blank_values=True, max_num_fields=100))
        except ValueError:
            raise Problem(400, "the query is not valid") from None
        options = requests.parse_options(query)
        body = await self._service.body(scope, receive)
        if len(body) < LARGE:
            documents, identities = requests.parse_batch(body)
        else:
            documents, identities = await asyncio.to_thread(requests.parse_batch, body)
        loaded = self._loaded(name)
        options = self._with_language(loaded, options)
        if not documents:
            return b"[]"
        return await self._submit(scope, loaded, documents, options, identities)

    def _submit(
        self,
        scope: Scope,
        loaded: LoadedModel,
        documents: list[tuple[str, dict[str, str]]],
        options: requests.Options,
        identities: list[Any] | None,
    ) -> Waiting:
        options = self._with_language(loaded, options)
        texts = [requests.as_document(loaded, text, metadata) for text, metadata in documents]
        job = requests.AnnifJob(loaded, texts, options, self._service.settings.max_k, identities)
        return self._service.work.put(job, client_of(scope), is_annif=True, scope=scope)

    def _with_language(self, loaded: LoadedModel, options: requests.Options) -> requests.Options:
        if options.language is None:
            return options._replace(language=self._language(loaded))
        if options.language not in self._vocabulary(loaded)["languages"]:
            raise Problem(400, f'language "{options.language}" not supported by vocabulary')
        return options

    async def learn(self, name: str, scope: Scope, receive: Receive) -> bytes:
        """``POST /projects/{id}/learn``: models are trained by ``ramify train``."""
        check_type(scope, b"application/json")
        requests.parse_learn(await self._service.body(scope, receive))
        self._loaded(name)
        detail = f"Project '{name}' is not configured to allow learning via API"
        raise Problem(403, detail, title="Learning not allowed")

    async def detect_language(self, scope: Scope, receive: Receive) -> bytes:
        """``POST /detect-language``: the fraction of the text in each language, by sentences."""
        check_type(scope, b"application/json")
        text, codes = requests.parse_detect(await self._service.body(scope, receive))
        if not set(codes) <= LANGUAGES.keys():
            raise Problem(400, "unsupported candidate languages")
        scores = await asyncio.to_thread(language_scores, text, codes)
        results = [{"language": code, "score": score} for code, score in scores]
        return to_json({"results": results}).encode()

    def _loaded(self, name: str) -> LoadedModel:
        try:
            return self._service.models.get(name)
        except Problem:
            raise Problem(404, f"Project '{name[:200]}' not found", title="Project not found") from None


def language_scores(text: str, codes: list[str]) -> list[tuple[str | None, float]]:
    """Fraction of the characters of a text in each of some languages, and in none of them, the largest first."""
    sentences = [part for part in _SENTENCE.split(text) if part.strip()]
    total = sum(map(len, sentences))
    if not total:
        return [(None, 1.0)]
    lengths: dict[str | None, int] = {**dict.fromkeys(codes, 0), None: 0}
    codes_of = {LANGUAGES[code]: code for code in codes}
    whole = codes_of.get(detect_languages([text], threads=1)[0] or "")
    for sentence, found in zip(sentences, detect_languages(sentences, threads=1), strict=True):
        # A sentence that does not tell by itself has the language of the text.
        code = whole if found is None else codes_of.get(found)
        lengths[code] += len(sentence)
    return sorted(((code, length / total) for code, length in lengths.items()), key=lambda pair: -pair[1])
