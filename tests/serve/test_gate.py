"""Access, headers, counters, logs, and routes for those who run the service."""

from __future__ import annotations

import json
import logging
import re

import pytest
from fastapi.testclient import TestClient

from ramify.serve import Settings, create_app
from ramify.serve.logs import JsonFormatter
from ramify.serve.settings import read_token


@pytest.fixture(scope="module")
def guarded(model_path):
    with TestClient(create_app(model_path, Settings(token="secret", threads=1))) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/models", "/v1/projects", "/v1/projects/words", "/metrics", "/v1/nonsense"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic secret", "secret", "Bearer secrets", "Bearer "])
def test_without_the_token_nothing_is_answered(guarded, path, header):
    answer = guarded.get(path, headers={} if header is None else {"authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_token_opens(guarded):
    headers = {"authorization": "Bearer secret"}
    assert guarded.get("/v1/models", headers=headers).status_code == 200
    assert guarded.post("/v1/suggest", json={"input": "cat"}, headers=headers).status_code == 200
    assert guarded.post("/v1/suggest", json={"input": "cat"}).status_code == 401
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 200


def test_tokens(tmp_path, monkeypatch):
    monkeypatch.delenv("RAMIFY_SERVE_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("RAMIFY_SERVE_TOKEN", "variable")
    assert read_token(None) == "variable"
    (tmp_path / "token").write_text("file\n")
    assert read_token(str(tmp_path / "token")) == "file"
    for bad in ("", " \n", "ä", "a\tb"):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(ValueError, match="token"):
            read_token(str(tmp_path / "token"))
    assert "secret" not in repr(Settings(token="secret"))


@pytest.mark.parametrize("path", ["/v1/models", "/v1/suggest", "/", "/nonsense", "/docs", "/openapi.json"])
def test_every_answer_has_a_strict_policy(client, path):
    policy = client.get(path).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get(path).headers["x-content-type-options"] == "nosniff"


def test_other_origins_are_refused_unless_asked_for(client, model_path):
    origin = {"origin": "https://ex.org"}
    assert "access-control-allow-origin" not in client.get("/v1/models", headers=origin).headers
    settings = Settings(cors=("https://ex.org",), token="secret")
    with TestClient(create_app(model_path, settings)) as other:
        headers = {**origin, "authorization": "Bearer secret"}
        answer = other.post("/v1/suggest", json={"input": "cat"}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://ex.org"
        asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        assert other.options("/v1/suggest", headers=asked).status_code == 200  # browsers ask without the token
        foreign = {"origin": "https://evil.org", "authorization": "Bearer secret"}
        assert "access-control-allow-origin" not in other.get("/v1/models", headers=foreign).headers


def test_unknown_routes_and_methods(client):
    assert client.get("/nonsense").json()["status"] == 404
    answer = client.delete("/v1/suggest")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.headers["content-type"] == "application/problem+json"


def test_metrics(model_path):
    with TestClient(create_app(model_path, Settings(threads=1))) as client:
        client.post("/v1/suggest", json={"input": ["cat", "tree"]})
        client.post("/v1/suggest", json={})
        client.get("/nonsense/1")
        client.get("/nonsense/2")
        text = client.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert all(re.fullmatch(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})?', name) for name in values)
    assert values['ramify_requests_total{route="/v1/suggest",status="200"}'] == "1"
    assert values['ramify_requests_total{route="/v1/suggest",status="422"}'] == "1"
    assert values['ramify_requests_total{route="other",status="404"}'] == "2"
    assert values["ramify_texts_total"] == "2"
    assert values["ramify_queue_texts"] == "0"
    assert values["ramify_shed_total"] == "0"
    assert values['ramify_request_seconds_bucket{route="/v1/suggest",le="+Inf"}'] == "2"
    assert values['ramify_request_seconds_count{route="/v1/suggest"}'] == "2"
    assert any(name.startswith('ramify_model_info{model="words",version="') for name in values)
    assert int(values["process_resident_memory_bytes"]) > 1e6


def test_buckets_of_the_histogram_are_cumulative():
    from ramify.serve.metrics import BOUNDS, Metrics

    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.0011, 100.0):
        metrics.count("/", 200, seconds)
    assert metrics._latency["/"][:2] == [2, 1]
    assert metrics._latency["/"][len(BOUNDS)] == 1
    assert metrics._latency["/"][-1] == pytest.approx(100.0026)


def test_readiness(client, model_path):
    assert client.get("/readyz").json()["models"].keys() == {"words", "fields"}
    app = create_app(model_path, Settings(threads=1))
    unstarted = TestClient(app)  # without its lifespan
    assert unstarted.get("/readyz").status_code == 503
    assert unstarted.get("/healthz").status_code == 200


def test_logs_have_no_texts(client, caplog):
    with caplog.at_level(logging.INFO, "ramify.serve"):
        client.post("/v1/suggest", json={"input": "a confidential whale"})
        client.post("/v1/projects/words/suggest", data={"text": "a confidential whale"})
        client.get("/v1/labels", params={"q": "confidential"})
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == "ramify.serve"]
    assert [line["status"] for line in lines] == [200, 200, 200]
    assert {line["route"] for line in lines} >= {"/v1/suggest", "/v1/labels"}
    assert "confidential" not in json.dumps(lines)


def test_errors_in_logs_have_no_words():
    try:
        raise ValueError("a confidential whale")
    except ValueError as error:
        record = logging.LogRecord("x", 40, "f", 1, "failed", None, (type(error), error, error.__traceback__))
    line = JsonFormatter().format(record)
    assert "confidential" not in line
    assert json.loads(line)["error"] == "ValueError"


def test_what_cannot_be_served(tmp_path, model_path):
    import numpy as np

    import ramify

    with pytest.raises(ValueError, match="not a model directory"):
        create_app(tmp_path / "nothing")
    ramify.XRLinear(verbose=0).fit(np.eye(4, dtype=np.float32), [[0], [1], [0], [1]]).save(tmp_path / "numbers")
    with pytest.raises(ValueError, match="only models of texts"):
        create_app(tmp_path / "numbers")
    with pytest.raises(ValueError, match="two models are named words"):
        create_app([model_path, model_path])
    with pytest.raises(ValueError, match="no model"):
        create_app([])


def test_names_of_models_are_escaped_in_metrics(model_path):
    with TestClient(create_app({'a"b': model_path})) as client:
        client.post("/v1/projects/a%22b/suggest", data={"text": "whale"})
        text = client.get("/metrics").text
    assert 'ramify_requests_total{route="/v1/projects/a\\"b/suggest",status="200"} 1' in text
    assert 'route="/v1/projects/a"b' not in text
