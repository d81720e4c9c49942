"""``/docs``: a page that shows the OpenAPI document and sends requests; it loads nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

_TYPES = {"docs.html": "text/html", "docs.js": "text/javascript", "docs.css": "text/css"}


def docs_router() -> APIRouter:
    """Routes of the page; none of them is part of the documented API."""
    router = APIRouter(include_in_schema=False)
    folder = files("ramify.serve.docs_page") / "static"
    contents = {name: (folder / name).read_bytes() for name in _TYPES}

    def add(path: str, name: str) -> None:
        async def answer() -> Response:
            return Response(contents[name], media_type=f"{_TYPES[name]}; charset=utf-8")

        router.add_api_route(path, answer, methods=["GET"])

    add("/docs", "docs.html")
    add("/docs/docs.js", "docs.js")
    add("/docs/docs.css", "docs.css")
    return router
