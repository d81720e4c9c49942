"""Routes of the page: its files, the map of an index, what is known of a label, and the report of a model."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ramify.base.html import theme
from ramify.serve.bodies import decode_json
from ramify.serve.page.index_map import IndexMap, make_map
from ramify.serve.problems import Problem
from ramify.serve.routes import json_response
from ramify.serve.served import LoadedModel, to_json
from ramify.serve.service import Service
from ramify.serve.suggest_request import as_label

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
N_SIMILAR = 12
N_NEIGHBORS = 3
"""Labels of its own cluster from which on no other clusters are asked for similar labels."""
MAX_CLUSTERS = 8
MAX_REPORT = 32 << 20
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
"""Content-Security-Policy of a report: its own style sheet, nothing else."""


def page_router(service: Service) -> APIRouter:
    """Routes of the page; none of them is part of the documented API."""
    router = APIRouter(include_in_schema=False)
    files = _read_files()
    maps: dict[tuple[str, int], tuple[LoadedModel, IndexMap]] = {}

    async def index_map(loaded: LoadedModel, tree: int) -> IndexMap:
        known = maps.get((loaded.name, tree))
        if known is None or known[0] is not loaded:
            known = maps[loaded.name, tree] = loaded, await asyncio.to_thread(make_map, loaded.model, tree)
        return known[1]

    @router.get("/")
    async def index(request: Request) -> Response:
        return _file(request, *files["index.html"])

    @router.get("/static/{name}")
    async def static(request: Request, name: str) -> Response:
        if name not in files:
            raise Problem(404, "there is no such file")
        return _file(request, *files[name])

    @router.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        return _file(request, *files["icon.svg"])

    @router.get("/v1/models/{name}/index")
    async def index_node(
        name: str,
        node: Annotated[str, Query(max_length=40)] = "0.0",
        tree: Annotated[int, Query(ge=0, le=1000)] = 0,
        language: str | None = None,
    ) -> Response:
        """A node of the index with its clusters or labels."""
        loaded = service.models.get(name)
        found = await index_map(loaded, tree)
        described = await asyncio.to_thread(lambda: _named(found.node(node), loaded, found, language))
        described["n_trees"] = len(getattr(loaded.model, "trees_", [])) or 1
        return json_response(to_json(described).encode())

    @router.get("/v1/models/{name}/label")
    async def label_facts(name: str, label: str, language: str | None = None) -> Response:
        """What is known of a label: samples, its clusters, labels beside it."""
        loaded = service.models.get(name)
        label_id = await asyncio.to_thread(_label_id, loaded, label)  # the first one makes an index of all labels
        try:
            found: IndexMap | None = await index_map(loaded, 0)
        except Problem:
            found = None
        facts = await asyncio.to_thread(_label_facts, loaded, found, label_id, language)
        return json_response(to_json(facts).encode())

    @router.get("/v1/models/{name}/report")
    async def report(name: str) -> Response:
        """Return the report that ``ramify evaluate DIR FILE --report DIR.report.html`` has written beside the model."""
        path = service.models.get(name).path.resolve()
        path = path.with_name(f"{path.name}.report.html")
        body = await asyncio.to_thread(lambda: path.read_bytes() if path.is_file() else b"")
        if not body or len(body) > MAX_REPORT:
            raise Problem(404, f"there is no report: ramify evaluate {path.name[:-12]} TEST --report {path.name}")
        headers = {"content-security-policy": REPORT_POLICY, "cache-control": "no-cache"}
        return Response(body, media_type=TYPES["html"], headers=headers)

    return router


# ---- files ----


def _read_files() -> dict[str, tuple[bytes, str, str]]:
    """Content, type and entity tag of each file of the page."""
    found = {"theme.css": theme().encode()}
    for item in resources.files("ramify.serve.page").joinpath("static").iterdir():
        if item.name.rpartition(".")[2] in TYPES:
            found[item.name] = item.read_bytes()
    return {
        name: (body, TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:20]}"')
        for name, body in found.items()
    }


def _file(request: Request, body: bytes, kind: str, tag: str) -> Response:
    headers = {"etag": tag, "cache-control": "no-cache"}  # asked again each time, and answered in a few bytes
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)


# ---- labels ----


def _label_id(loaded: LoadedModel, text: str) -> int:
    """Id of a label that the page has written as a text: as JSON, unless it is a text itself."""
    ids = loaded.model.labels_.ids
    found = ids.get(text)
    if found is None:
        with contextlib.suppress(Problem):
            found = ids.get(as_label(decode_json(text.encode()), "label"))
    if found is None:
        raise Problem(404, f"the model {loaded.name} does not know this label")
    return int(found)


def _label(loaded: LoadedModel, label_id: int, language: str | None) -> dict[str, Any]:
    label = loaded.model.labels_[label_id]
    entry = loaded.entry(label)
    count = int(loaded.model.label_counts_.counts[label_id])
    return {"label": label, "name": None if entry is None else entry.name(language), "samples": count}


def _shown(loaded: LoadedModel, label_id: int, language: str | None) -> str:
    found = _label(loaded, label_id, language)
    return str(found["label"] if found["name"] is None else found["name"])


def _named(node: dict[str, Any], loaded: LoadedModel, found: IndexMap, language: str | None) -> dict[str, Any]:
    """Return a node with the names of labels instead of their ids."""
    named = {**node, "typical": [_shown(loaded, i, language) for i in node["typical"]]}
    for key in ("path", "children"):
        if key in node:
            named[key] = [_named(child, loaded, found, language) for child in node[key]]
    if "labels" in node:
        named["labels"] = [{**_label(loaded, i, language), "score": score} for i, score in node["labels"]]
    return named


def _label_facts(loaded: LoadedModel, found: IndexMap | None, label_id: int, language: str | None) -> dict[str, Any]:
    facts: dict[str, Any] = {**_label(loaded, label_id, language), "clusters": [], "similar": []}
    if found is None:
        return facts
    similar: dict[int, float] = {}

    def add(node: dict[str, Any], weight: float) -> None:
        for other, score in node.get("labels", []):
            if other != label_id:
                similar[other] = max(similar.get(other, 0.0), weight * (1.0 if score is None else score))

    for node_id, score in found.clusters_of(label_id)[:MAX_CLUSTERS]:
        node = found.node(node_id)
        add(node, 1.0 if score is None else score)
        if len(similar) < N_NEIGHBORS and node["path"]:  # a small cluster: the clusters beside it, too
            for child in found.node(node["path"][-1]["id"])["children"][:MAX_CLUSTERS]:
                add(found.node(child["id"]), 0.5)
        cluster = _named({key: value for key, value in node.items() if key != "labels"}, loaded, found, language)
        facts["clusters"].append({**cluster, "score": score})
    counts = loaded.model.label_counts_.counts
    order = sorted(similar, key=lambda i: (-similar[i], -int(counts[i]), i))[:N_SIMILAR]
    facts["similar"] = [_label(loaded, i, language) for i in order]
    return facts
