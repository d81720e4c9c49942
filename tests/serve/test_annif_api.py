"""Annif's REST API, version 1, as its clients use it."""

from __future__ import annotations

import threading
from datetime import datetime

import numpy as np
import pytest
from fastapi.testclient import TestClient
from serving import TEXTS

from ramify.serve import annif_requests, create_app
from ramify.serve.annif_api import language_scores

PROJECT = "/v1/projects/words"


def subjects(answer):
    assert answer.status_code == 200, answer.text
    return [(hit["uri"], np.float32(hit["score"])) for hit in answer.json()["results"]]


def test_information(client):
    assert client.get("/v1/").json().keys() == {"title", "version"}
    project = client.get(PROJECT).json()
    assert project == {
        "project_id": "words", "name": "words", "language": "en", "backend": {"backend_id": "ramify"},
        "vocab": {"vocab_id": "words", "languages": ["de", "en"], "size": 7, "loaded": True},
        "vocab_language": "en", "is_trained": True, "modification_time": project["modification_time"],
    }  # fmt: skip
    assert datetime.fromisoformat(project["modification_time"]).tzinfo is not None
    projects = client.get("/v1/projects").json()["projects"]
    assert [row["project_id"] for row in projects] == ["words", "fields"]
    assert projects[0] == project
    vocabularies = client.get("/v1/vocabs").json()["vocabs"]
    assert vocabularies[0] == project["vocab"]


def test_suggest(client, model):
    answer = client.post(f"{PROJECT}/suggest", data={"text": "big whale", "project": "x", "metadata_title": "y"})
    ranking = model.predict_topk(["big whale"], 10, probabilities=True).labels()[0]
    assert subjects(answer) == [(label, np.float32(score)) for label, score in ranking if score > 0]
    assert answer.json()["results"][0].keys() == {"uri", "label", "notation", "score"}


def test_options(client):
    def ask(**fields):
        return client.post(f"{PROJECT}/suggest", data={"text": "big whale", **fields})

    every = subjects(ask())
    assert subjects(ask(limit=2)) == every[:2]
    assert subjects(ask(limit=0)) == []
    assert subjects(ask(limit=100_000)) == subjects(ask(limit=10**20)) == every
    assert subjects(ask(threshold=float(every[1][1]))) == every[:2]
    hits = {hit["uri"]: hit for hit in ask(language="de").json()["results"]}
    assert hits["http://ex.org/whale"]["label"] == "Wal"
    assert hits["http://ex.org/whale"]["notation"] == "599.5"
    assert hits["http://ex.org/big"]["label"] == "http://ex.org/big"
    assert hits["http://ex.org/big"]["notation"] is None


def test_metadata_are_text_fields(client, fields_path):
    import ramify

    model = ramify.load(fields_path)
    answer = client.post(
        "/v1/projects/fields/suggest", data={"text": "x", "metadata_body": "whale", "metadata_other": "cat"}
    )
    ranking = model.predict_topk([{"title": "x", "body": "whale"}], 10).labels()[0]
    assert [uri for uri, _ in subjects(answer)] == [label for label, score in ranking if score > 0]
    assert all(0 < score <= 1 for _, score in subjects(answer))


def test_strange_characters_are_no_reason_to_find_nothing(client):
    expected = subjects(client.post(f"{PROJECT}/suggest", data={"text": "big whale"}))
    assert subjects(client.post(f"{PROJECT}/suggest", data={"text": "big\0whale\x07"})) == expected
    documents = {"documents": [{"text": "big whale \ud800"}]}
    import json

    answer = client.post(
        f"{PROJECT}/suggest-batch", content=json.dumps(documents), headers={"content-type": "application/json"}
    )
    assert [hit["uri"] for hit in answer.json()[0]["results"]] == [uri for uri, _ in expected]


def test_batches(client, model):
    documents = [{"text": text, "document_id": f"d{i}"} for i, text in enumerate(TEXTS)]
    documents[3].pop("document_id")
    answer = client.post(f"{PROJECT}/suggest-batch?limit=2&threshold=0.0001", json={"documents": documents})
    assert answer.status_code == 200
    rows = answer.json()
    assert [row["document_id"] for row in rows] == ["d0", "d1", "d2", None, *(f"d{i}" for i in range(4, 12))]
    ranking = model.predict_topk(TEXTS, 2, probabilities=True).labels()
    found = [[hit["uri"] for hit in row["results"]] for row in rows]
    assert found == [[label for label, score in row if score >= 0.0001] for row in ranking]
    assert client.post(f"{PROJECT}/suggest-batch", json={"documents": []}).json() == []


def test_a_text_without_a_word_has_no_subjects(client):
    for text in ("", " \n\t "):
        assert subjects(client.post(f"{PROJECT}/suggest", data={"text": text})) == []
        assert subjects(client.post("/v1/projects/fields/suggest", data={"text": text})) == []
    documents = [{"text": ""}, {"text": "whale"}, {"text": "\0"}]
    rows = client.post(f"{PROJECT}/suggest-batch", json={"documents": documents}).json()
    assert [bool(row["results"]) for row in rows] == [False, True, False]
    fields = client.post("/v1/projects/fields/suggest", data={"text": "", "metadata_body": "whale"})
    assert subjects(fields)


def test_learning_is_not_allowed(client):
    answer = client.post(f"{PROJECT}/learn", json=[{"text": "a", "subjects": [{"uri": "http://ex.org/cat"}]}])
    assert answer.status_code == 403
    assert answer.json()["title"] == "Learning not allowed"


def test_languages(client):
    def ask(text, *codes):
        return client.post("/v1/detect-language", json={"text": text, "languages": codes}).json()["results"]

    assert ask("Das Haus ist nicht groß.", "de", "en")[0] == {"language": "de", "score": 1.0}
    mixed = {
        row["language"]: row["score"] for row in ask("Das Haus ist nicht groß. This is not the house.", "de", "en")
    }
    assert mixed["de"] == pytest.approx(1 - mixed["en"])
    assert mixed[None] == 0
    assert ask("Das Haus ist nicht groß.", "en")[0]["language"] is None
    assert ask("", "en") == [{"language": None, "score": 1.0}]


FORM = {"content-type": "application/x-www-form-urlencoded"}
BAD = [
    ("GET", "/v1/projects/nix", None, 404, "Project 'nix' not found"),
    ("POST", "/v1/projects/nix/suggest", {"data": {"text": "a"}}, 404, "not found"),
    ("POST", "/v1/projects/nix/learn", {"json": []}, 404, "not found"),
    ("POST", f"{PROJECT}/suggest", {"data": {"limit": 1}}, 400, "'text' is a required property"),
    ("POST", f"{PROJECT}/suggest", {"content": b"", "headers": FORM}, 400, "'text' is a required property"),
    ("POST", f"{PROJECT}/suggest", {"content": b"\xff", "headers": FORM}, 400, "not valid"),
    ("POST", f"{PROJECT}/suggest", {"data": {"text": "a", "limit": -1}}, 400, "'limit'"),
    ("POST", f"{PROJECT}/suggest", {"data": {"text": "a", "limit": "x"}}, 400, "'limit'"),
    ("POST", f"{PROJECT}/suggest", {"data": {"text": "a", "threshold": 2}}, 400, "'threshold'"),
    ("POST", f"{PROJECT}/suggest", {"data": {"text": "a", "threshold": "nan"}}, 400, "'threshold'"),
    ("POST", f"{PROJECT}/suggest", {"data": {"text": "a", "language": "fi"}}, 400, "not supported by vocabulary"),
    ("POST", f"{PROJECT}/suggest", {"json": {"text": "a"}}, 415, "application/x-www-form-urlencoded"),
    ("POST", f"{PROJECT}/suggest", {"data": {"text": "a" * 20_001}}, 413, "bytes"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {}}, 400, "'documents' is a required property"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {"documents": "a"}}, 400, "'array'"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {"documents": [{"text": "a"}] * 33}}, 400, "too many items"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {"documents": [{"text": 7}]}}, 400, "documents.0"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {"documents": [{"text": "", "metadata": 7}]}}, 400, "metadata"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {"documents": [{"text": "", "document_id": 7}]}}, 400, "document_id"),
    ("POST", f"{PROJECT}/suggest-batch", {"json": {"documents": [{"text": "", "document_id": None}]}}, 400, "null"),
    ("POST", f"{PROJECT}/suggest-batch?language=fi", {"json": {"documents": []}}, 400, "not supported by vocabulary"),
    ("POST", f"{PROJECT}/learn", {"json": {}}, 400, "not a list"),
    ("POST", f"{PROJECT}/learn", {"json": [7]}, 400, "'0'"),
    ("POST", f"{PROJECT}/learn", {"json": [{"text": 7}]}, 400, "'text'"),
    ("POST", f"{PROJECT}/learn", {"json": [{"text": "", "subjects": {}}]}, 400, "'0.subjects'"),
    ("POST", f"{PROJECT}/learn", {"json": [{"text": "", "subjects": [{"label": "a"}]}]}, 400, "'uri'"),
    ("POST", f"{PROJECT}/learn", {"json": [{"subjects": [{"uri": "a", "label": 7}]}]}, 400, "label"),
    ("POST", f"{PROJECT}/suggest-batch?limit=x", {"json": {"documents": []}}, 400, "'limit'"),
    ("POST", "/v1/detect-language", {"json": {"text": "a"}}, 400, "required"),
    ("POST", "/v1/detect-language", {"json": {"text": "a", "languages": ["english"]}}, 400, "codes"),
    ("POST", "/v1/detect-language", {"json": {"text": "a", "languages": ["xx"]}}, 400, "unsupported candidate"),
]


@pytest.mark.parametrize(("method", "path", "options", "status", "words"), BAD)
def test_bad_requests(client, method, path, options, status, words):
    answer = client.request(method, path, **(options or {}))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]


def test_long_texts_do_not_keep_other_requests_waiting(model_path, monkeypatch):
    """Large forms and batches are parsed outside of the event loop."""
    parsed = []
    for name in ("parse_form", "parse_batch"):
        parse = getattr(annif_requests, name)
        monkeypatch.setattr(
            annif_requests, name, lambda body, parse=parse: parsed.append(threading.current_thread()) or parse(body)
        )
    texts = ("whale " * 5, "whale " * 100_000)
    with TestClient(create_app(model_path)) as client:
        for text in texts:
            assert client.post(f"{PROJECT}/suggest", data={"text": text}).json()["results"]
            assert client.post(f"{PROJECT}/suggest-batch", json={"documents": [{"text": text}]}).json()[0]["results"]
    loop = parsed[0]
    assert [thread is loop for thread in parsed] == [True, True, False, False]


def test_fractions_of_a_long_text_have_the_sum_1():
    scores = language_scores("Das ist ein Haus. " * 30_000, ["de", "en"])
    assert scores == [("de", 1.0), ("en", 0.0), (None, 0.0)]
    assert language_scores(" \n ", ["de"]) == [(None, 1.0)]
