"""The routes behind the page: its files, the map of the index, facts about labels, reports."""

from __future__ import annotations

import re

import numpy as np
import pytest
from page_models import HOSTILE, TOPICS

import ramify


@pytest.fixture(scope="module")
def client(paths):
    from fastapi.testclient import TestClient

    from ramify.serve import Settings, create_app

    with TestClient(create_app(paths, Settings(threads=1, reload_every=0))) as client:
        yield client


def test_files_of_the_page_are_cached_by_their_content(client):
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    files = re.findall(r'(?:src|href)="(static/[^"]+)"', answer.text)
    assert len(files) >= 4
    for name in files:
        found = client.get(f"/{name}")
        assert found.status_code == 200, name
        again = client.get(f"/{name}", headers={"if-none-match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/nothing.js").status_code == 404


def test_the_page_has_no_inline_code_and_loads_nothing_from_elsewhere(client):
    page = client.get("/").text
    assert not re.search(r"<style|style=|\son\w+=|<script>|javascript:", page)
    for name in ("main.js", "suggest.js", "explain.js", "map.js", "compare.js", "report.js", "api.js", "dom.js"):
        script = client.get(f"/static/{name}").text
        assert "innerHTML" not in script, name
        assert not re.search(r"https?://", script), name


def test_every_label_is_in_the_map_of_the_tree(client):
    def labels_below(node_id):
        node = client.get(f"/v1/models/linear/index?node={node_id}").json()
        below = [entry["label"] for entry in node.get("labels", [])]
        for child in node.get("children", []):
            found = labels_below(child["id"])
            assert len(found) == child["n_labels"]
            below += found
        assert len(below) == node["n_labels"]
        assert len(node["typical"]) == min(4, len(below))
        return below

    assert sorted(labels_below("0.0")) == sorted(TOPICS)


def test_a_cluster_of_the_tree_knows_its_path(client, paths):
    facts = client.get("/v1/models/linear/label", params={"label": HOSTILE}).json()
    cluster = facts["clusters"][0]
    assert cluster["path"][0]["id"] == "0.0"
    node = client.get(f"/v1/models/linear/index?node={cluster['id']}").json()
    assert HOSTILE in [entry["label"] for entry in node["labels"]]
    similar = [entry["label"] for entry in facts["similar"]]
    beside = {entry["label"] for entry in node["labels"]} - {HOSTILE}
    assert set(similar[: len(beside)]) == beside  # those of its own cluster come first
    assert HOSTILE not in similar
    counts = ramify.load(paths["linear"]).label_counts_
    assert facts["samples"] == counts.counts[list(ramify.load(paths["linear"]).labels_).index(HOSTILE)]


def test_the_map_of_a_label_graph_shows_the_clusters_of_a_label(client, paths):
    model = ramify.load(paths["graph"])
    graph = model.members_[0].graph
    for i, label in enumerate(model.labels_):
        facts = client.get("/v1/models/graph/label", params={"label": label}).json()
        edges = np.flatnonzero(graph.labels == i)
        strong = np.exp(graph.scores[edges]) >= 0.01
        clusters = {f"1.{c}" for c in graph.edge_clusters()[edges][strong]}
        assert {cluster["id"] for cluster in facts["clusters"]} == clusters
        scores = [cluster["score"] for cluster in facts["clusters"]]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == pytest.approx(float(np.exp(graph.scores[edges]).max()))
    root = client.get("/v1/models/graph/index").json()
    assert [child["id"] for child in root["children"]] == [f"1.{c}" for c in range(graph.n_clusters)]


@pytest.mark.parametrize("node", ["9.0", "0.1", "1.99999", "x", "1.-1", "1.1.1", "", "1.²"])
@pytest.mark.parametrize("name", ["linear", "graph"])
def test_a_node_that_does_not_exist(client, name, node):
    answer = client.get(f"/v1/models/{name}/index", params={"node": node})
    assert answer.status_code == 404
    assert "root is 0.0" in answer.json()["detail"]


def test_what_there_is_not(client):
    assert "no clusters" in client.get("/v1/models/popular/index").json()["detail"]
    assert client.get("/v1/models/popular/label", params={"label": HOSTILE}).json()["clusters"] == []
    assert client.get("/v1/models/linear/label", params={"label": "nothing"}).status_code == 404
    answer = client.get("/v1/models/graph/report")
    assert answer.status_code == 404
    assert "graph.report.html" in answer.json()["detail"]


def test_labels_that_are_no_texts(tmp_path):
    from fastapi.testclient import TestClient

    from ramify.serve import create_app

    labels = [("a", 1), 7, "7", "x", 2.5, "[1"]
    texts = ["first", "second", "third", "fourth", "fifth", "sixth"]
    ramify.Popular().fit(texts, [[label] for label in labels]).save(tmp_path / "mixed")
    with TestClient(create_app(tmp_path / "mixed")) as client:

        def found(text):
            return client.get("/v1/models/mixed/label", params={"label": text}).json().get("label")

        assert [found(text) for text in ('["a",1]', "7", "x", "2.5", "[1")] == [["a", 1], "7", "x", 2.5, "[1"]
        for text in ("[[", '{"a": 1}', "null", "[[1]]", "8"):
            assert client.get("/v1/models/mixed/label", params={"label": text}).status_code == 404


def test_a_report_may_not_run_scripts(client):
    answer = client.get("/v1/models/linear/report")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in answer.text
    assert HOSTILE not in answer.text
