"""The OpenAPI document: complete, true, and usable offline."""

from __future__ import annotations

import contextlib
import re
from urllib.parse import urljoin

import pytest
from serving import in_thread

from ramify.serve import Settings, create_app


def test_every_route_is_documented(client):
    api = client.get("/openapi.json").json()
    assert api["paths"].keys() == {
        "/v1/suggest", "/v1/labels", "/v1/models", "/v1/models/{name}", "/healthz", "/readyz", "/metrics", "/v1/",
        "/v1/projects", "/v1/projects/{project_id}", "/v1/vocabs", "/v1/projects/{project_id}/suggest",
        "/v1/projects/{project_id}/suggest-batch", "/v1/projects/{project_id}/learn", "/v1/detect-language",
    }  # fmt: skip
    suggest = api["paths"]["/v1/suggest"]["post"]
    schema = suggest["requestBody"]["content"]["application/json"]["schema"]
    answer = client.post("/v1/suggest", json=schema["examples"][0])
    assert answer.status_code == 200
    parameters = api["paths"]["/v1/projects/{project_id}/suggest"]["post"]["parameters"]
    assert [(parameter["name"], parameter["example"]) for parameter in parameters] == [("project_id", "words")]
    assert all("summary" in operation for methods in api["paths"].values() for operation in methods.values())


def test_the_page_of_the_documentation_loads_nothing_from_elsewhere(client):
    page = client.get("/docs").text
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {"docs/docs.js", "docs/docs.css", "static/theme.css", "openapi.json"} <= set(parts)
    for part in parts:
        answer = client.get(urljoin("/docs", part))
        assert answer.status_code == 200
        assert not re.findall(r"https?://", answer.text if part != "openapi.json" else "")
    assert "<script>" not in page
    assert "style=" not in page


def test_requests_made_from_the_document_get_documented_answers(model_path, fields_path):
    """schemathesis makes valid and invalid requests of every route."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.specs.openapi import checks as openapi

    given_settings = Settings(threads=2, reload_every=0)
    checks = [
        schemathesis.checks.not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
        openapi.response_headers_conformance,
        openapi.negative_data_rejection,
    ]
    n = 0
    with in_thread(create_app([model_path, fields_path], given_settings), given_settings) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()
            for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

                @settings(
                    max_examples=5, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )  # fmt: skip
                @given(case=operation.as_strategy(generation_mode=mode))
                def check(case):
                    nonlocal n
                    n += 1
                    for name in ("project_id", "name"):  # of every second request those of a model
                        if n % 2 and case.path_parameters and name in case.path_parameters:
                            case.path_parameters[name] = "words"
                    case.call_and_validate(checks=checks)

                with contextlib.suppress(Unsatisfiable):  # a route without parameters has no invalid request
                    check()
    assert n > 50
