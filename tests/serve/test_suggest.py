"""The native API: what is asked for is what the model answers; what is wrong is refused in words."""

from __future__ import annotations

import json

import numpy as np
import pytest
from serving import TEXTS

from ramify.serve.schemas import ModelCard, ModelsAnswer, SuggestAnswer, SuggestBody
from ramify.serve.suggest_request import FIELDS

TEXT = "a big whale, and an old house"


def ask(client, **request):
    answer = client.post("/v1/suggest", json=request)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    SuggestAnswer.model_validate(answer.json())
    return answer.json()


def pairs(result):
    return [(row["label"], np.float32(row["score"])) for row in result["labels"]]


def expected(ranking):
    return [[(label, np.float32(score)) for label, score in row] for row in ranking.labels()]


def test_one_text(client, model):
    answer = ask(client, input=TEXT, k=3)
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_topk([TEXT], 3))
    assert answer["model"] == "words"
    assert answer["probabilities"] is False


def test_several_texts_in_their_order(client, model):
    answer = ask(client, input=TEXTS[:8])
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_topk(TEXTS[:8], 10))


def test_records_of_text_models_are_joined(client, model):
    answer = ask(client, input={"title": "big", "body": "whale"}, k=2)
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_topk(["big\nwhale"], 2))


def test_records_and_texts_of_a_model_of_fields(client, fields_path):
    import ramify

    model = ramify.load(fields_path)
    record = {"title": "whale", "body": "big"}
    answer = ask(client, input=[record, "whale"], model="fields", k=2)
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_topk([record, {"title": "whale"}], 2))


def test_probabilities_and_threshold(client, model):
    answer = ask(client, input=TEXT, probabilities=True)
    ranking = expected(model.predict_topk([TEXT], 10, probabilities=True))
    assert [pairs(r) for r in answer["results"]] == ranking
    assert answer["probabilities"] is True
    lowest = float(ranking[0][2][1])
    answer = ask(client, input=TEXT, probabilities=True, threshold=lowest)
    assert pairs(answer["results"][0]) == ranking[0][:3]


@pytest.mark.parametrize("rule", ["default", "maximize-f1", "top-k=2", "threshold=0.3"])
def test_rules(client, model, rule):
    answer = ask(client, input=TEXTS[:4], rule=rule)
    sets = model.predict_sets(TEXTS[:4], rule=None if rule == "default" else rule)
    assert [pairs(r) for r in answer["results"]] == expected(sets)
    assert answer["probabilities"] is True
    assert all(len(r["labels"]) <= 1 for r in ask(client, input=TEXTS[:4], rule=rule, k=1)["results"])


def test_filters(client, model):
    allowed = ["http://ex.org/cat", "Wal"]  # a label and a name
    answer = ask(client, input=TEXT, allow=allowed)
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_topk([TEXT], 10, allow=allowed))
    answer = ask(client, input=TEXT, deny=["whale"])
    assert "http://ex.org/whale" not in dict(pairs(answer["results"][0]))
    assert len(answer["results"][0]["labels"]) == model.n_labels - 1
    answer = ask(client, input=TEXT, allow=allowed, rule="top-k=1")
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_sets([TEXT], rule="top-k=1", allow=allowed))


@pytest.mark.parametrize(("language", "name"), [("de", "Wal"), ("en", "whale"), ("fr", "whale")])
def test_names(client, language, name):
    assert ask(client, input="whale", k=1, language=language)["results"][0]["labels"][0]["name"] == name


def test_explanations(client, model):
    result = ask(client, input=TEXT, k=3, explain=2)["results"][0]
    best = [label for label, _ in pairs(result)[:2]]
    assert result["explanations"] == [json.loads(json.dumps(model.explain(TEXT, label).to_dict())) for label in best]
    result = ask(client, input=TEXT, k=1, explain=["Katze"])["results"][0]
    assert [row["label"] for row in result["explanations"]] == ["http://ex.org/cat"]


def test_words_are_left_out(client, model):
    answer = ask(client, input=TEXT, without=["Whale", "old"])
    assert [pairs(r) for r in answer["results"]] == expected(model.predict_topk(["a big , and an  house"], 10))


def test_the_documented_fields_are_those_that_are_read():
    assert set(FIELDS) == set(SuggestBody.model_fields)


BAD = [
    (b"{", 400, "not valid JSON"),
    (b'{"input": "a", "input": "b"}', 400, 'the key "input" occurs twice'),
    (b'{"input": NaN}', 400, "NaN"),
    (b'{"input": "a\x01b"}', 400, "control character"),
    (b'{"input": "\xff"}', 400, "not UTF-8"),
    (b'{"input": ' + b"[" * 9000 + b"]" * 9000 + b"}", 400, "nested"),
    (b'{"input": "a", "k": ' + b"9" * 5000 + b"}", 400, "not valid JSON"),
    (b"[]", 422, "must be an object"),
    (b"{}", 422, '"input" is missing'),
    (b'{"input": 7}', 422, '"input" must be a text'),
    (b'{"input": []}', 422, "empty list"),
    (b'{"input": {}}', 422, "must be a text"),
    (b'{"input": ["a", 7]}', 422, '"input"[1]'),
    (b'{"input": {"a": 7}}', 422, '"input" must be a text'),
    (b'{"input": [[["a"]]]}', 422, '"input"[0]'),
    (b'{"input": "a\\u0000b"}', 422, "NUL (U+0000) at character 1"),
    (b'{"input": "a\\u0007b"}', 422, "control character (U+0007)"),
    (b'{"input": "\\ud800"}', 422, "lone surrogate"),
    (b'{"input": {"\\ud800": "a"}}', 422, "lone surrogate"),
    (b'{"input": ["a", "a", "a", "a", "a", "a", "a", "a", "a"]}', 422, "at most 8"),
    (json.dumps({"input": "a" * 1001}).encode(), 422, "1,001 characters; the limit is 1,000"),
    (json.dumps({"input": "a" * 20_001}).encode(), 413, "more than 20,000 bytes"),
    (b'{"input": "a", "k": 0}', 422, '"k" must be between 1 and 50'),
    (b'{"input": "a", "k": 51}', 422, '"k" must be between 1 and 50'),
    (b'{"input": "a", "k": 1.5}', 422, '"k" must be an integer'),
    (b'{"input": "a", "k": true}', 422, '"k" must be an integer'),
    (b'{"input": "a", "probability": 1}', 422, 'did you mean "probabilities"?'),
    (b'{"input": "a", "nonsense": 1}', 422, "known are input"),
    (b'{"input": "a", "probabilities": "yes"}', 422, "true or false"),
    (b'{"input": "a", "probabilities": true, "model": "fields"}', 422, "no probabilities"),
    (b'{"input": "a", "rule": "default", "model": "fields"}', 422, "no decision rule of its own"),
    (b'{"input": "a", "rule": "nonsense"}', 422, "unknown decision rule"),
    (b'{"input": "a", "rule": "target-precision=0.5"}', 422, "has not been fitted"),
    (b'{"input": "a", "threshold": "1"}', 422, '"threshold" must be a number'),
    (b'{"input": "a", "threshold": 1e999}', 422, '"threshold" must be a number'),
    (b'{"input": "a", "allow": "cat"}', 422, '"allow" must be a list'),
    (b'{"input": "a", "allow": [{}]}', 422, '"allow" must be a list of labels'),
    (b'{"input": "a", "allow": ["nix"]}', 422, "knows no label 'nix'"),
    (b'{"input": "a", "explain": 21}', 422, "between 0 and 20"),
    (b'{"input": "a", "explain": ["nix"]}', 422, "nix"),
    (b'{"input": ["a", "b"], "explain": 1}', 422, "single input"),
    (b'{"input": "a", "without": [7]}', 422, "at most 1,000 words"),
    (b'{"input": "a", "language": 7}', 422, '"language" must be a text'),
    (b'{"input": "a", "model": "nix"}', 404, "there are words, fields"),
    (b'{"input": "a", "model": "\\ud800"}', 422, "lone surrogate"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD, ids=lambda value: str(value)[:50])
def test_bad_requests(client, body, status, words):
    answer = client.post("/v1/suggest", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert words in problem["detail"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
def test_content_type(client, headers):
    assert client.post("/v1/suggest", content=b'{"input": "a"}', headers=headers).status_code == 415


def test_white_space_and_any_script(client):
    for text in ("", " ", "\t\n\r\x0b\x0c", "שלום", "🌳" * 100, "a\u0301", "\u202e"):
        assert len(ask(client, input=text)["results"]) == 1


# ---- labels and models ----


def test_labels_are_found_by_name_and_id(client):
    def found(**query):
        return [row["label"] for row in client.get("/v1/labels", params=query).json()["labels"]]

    assert found(q="WAL") == ["http://ex.org/whale"]
    assert found(q="cetac") == ["http://ex.org/whale"]
    assert found(q="599.5") == ["http://ex.org/whale"]
    assert found(q="ex.org/tree") == ["http://ex.org/tree"]
    assert found(q="🌳") == ["http://ex.org/tree"]
    assert found(q="nothing has this") == []
    assert len(found(limit=3)) == 3
    assert set(found(limit=3)).isdisjoint(found(limit=3, offset=3))
    row = client.get("/v1/labels", params={"q": "Wal", "language": "de"}).json()
    assert row == {
        "model": "words", "total": 1,
        "labels": [{"label": "http://ex.org/whale", "name": "Wal", "notation": "599.5", "samples": 15}],
    }  # fmt: skip


def test_exact_matches_come_first(client):
    answer = client.get("/v1/labels", params={"q": "t"}).json()["labels"]
    assert {row["label"] for row in answer} == {  # all have a t in http
        f"http://ex.org/{word}" for word in ("whale", "cat", "tree", "house", "big", "small", "old")
    }
    first = client.get("/v1/labels", params={"q": "whale"}).json()["labels"][0]
    assert first["label"] == "http://ex.org/whale"


@pytest.mark.parametrize(
    ("query", "status"), [("limit=0", 422), ("limit=x", 422), ("model=nix", 404), ("q=%00", 422), ("offset=-1", 422)]
)
def test_bad_searches(client, query, status):
    answer = client.get(f"/v1/labels?{query}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_models(client, model):
    answer = client.get("/v1/models").json()
    ModelsAnswer.model_validate(answer)
    assert [row["name"] for row in answer["models"]] == ["words", "fields"]
    card = client.get("/v1/models/words").json()
    ModelCard.model_validate(card)
    assert (card["n_labels"], card["kind"], card["calibrated"]) == (7, "xr-linear", True)
    assert card["data"]["samples"] == 60
    assert card["calibration"]["rows"] == 12
    assert card["languages"] == ["en", "de"]
    assert card["metrics"] is None
    assert client.get("/v1/models/fields").json()["fields"] == ["title", "body"]
    assert client.get("/v1/models/nix").status_code == 404


def test_metrics_beside_the_model_are_in_its_card(client, model_path):
    path = model_path.with_name("words.metrics.json")
    path.write_text('{"P@1": 90.5}')
    try:
        assert client.get("/v1/models/words").json()["metrics"] == {"P@1": 90.5}
    finally:
        path.unlink()


def test_labels_that_are_integers(tmp_path):
    from fastapi.testclient import TestClient

    import ramify
    from ramify.serve import create_app

    ramify.XRLinear(verbose=0).fit(TEXTS, [[i % 3] for i in range(len(TEXTS))]).save(tmp_path / "numbers")
    with TestClient(create_app(tmp_path / "numbers")) as client:
        for allow in ([1], ["1"]):
            answer = client.post("/v1/suggest", json={"input": "cat", "allow": allow}).json()
            assert [row["label"] for row in answer["results"][0]["labels"]] == [1]
