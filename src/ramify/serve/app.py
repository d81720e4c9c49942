"""`create_app`: the ASGI application of the service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException

from ramify.base.errors import DataError
from ramify.serve.annif_api import AnnifApi
from ramify.serve.annif_routes import annif_router
from ramify.serve.bodies import Receive
from ramify.serve.docs_page import docs_router
from ramify.serve.gate import Gate, Handler
from ramify.serve.page import page_router
from ramify.serve.problems import Problem
from ramify.serve.routes import api_router, operations_router, problem_response
from ramify.serve.schemas import ProblemAnswer
from ramify.serve.service import Scope, Service
from ramify.serve.settings import Settings
from ramify.serve.shortcut import Begin, Shortcut
from ramify.version import __version__

Paths = str | os.PathLike[str]


def create_app(models: Paths | list[Paths] | Mapping[str, Paths], settings: Settings | None = None) -> FastAPI:
    """Make the application that serves models.

    Parameters
    ----------
    models : a model directory, a list of them, named after their directories, or directories by name; the first one is
        the default
    settings : limits, times and access

    `app.state.service` is the `Service` behind it; `app.state.shortcut` is for `http_protocol`.
    """
    service = Service(named_paths(models), settings or Settings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="Ramify",
        version=__version__,
        summary="Suggests labels for texts.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.service = service
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    annif = AnnifApi(service)
    routers = (
        api_router(service),
        annif_router(annif),
        operations_router(service),
        docs_router(),
        page_router(service),
    )
    for router in routers:
        app.include_router(router)
    _complete_openapi(app, next(iter(service.models)).name)
    app.add_middleware(Gate, service=service, handlers=_busy_routes(service, annif))
    app.state.shortcut = _shortcut(service, annif)
    if service.settings.cors:  # around the gate: browsers ask first, without the token
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return app


def _busy_routes(service: Service, annif: AnnifApi) -> dict[tuple[str, str], Handler]:
    """Routes that are answered without the router: those that clients call for every text."""
    handlers: dict[tuple[str, str], Handler] = {("POST", "/v1/suggest"): service.suggest}
    for loaded in service.models:
        path = f"/v1/projects/{loaded.name}"
        handlers["POST", f"{path}/suggest"] = partial(annif.suggest, loaded.name)
        handlers["GET", path] = partial(_project, annif, loaded.name)
    return handlers


def _shortcut(service: Service, annif: AnnifApi) -> Shortcut:
    """Those of the busy routes that get texts."""
    begin: dict[tuple[str, str], Begin] = {("POST", "/v1/suggest"): service.begin_suggest}
    for loaded in service.models:
        begin["POST", f"/v1/projects/{loaded.name}/suggest"] = partial(annif.begin_suggest, loaded.name)
    return Shortcut(service, begin)


async def _project(annif: AnnifApi, name: str, _: Scope, __: Receive) -> bytes:
    return annif.project(name)


def named_paths(models: Paths | list[Paths] | Mapping[str, Paths]) -> dict[str, Path]:
    """Model directories by name."""
    if isinstance(models, Mapping):
        return {name: Path(path) for name, path in models.items()}
    named: dict[str, Path] = {}
    for path in models if isinstance(models, list) else [models]:
        name = Path(path).resolve().name
        if name in named:
            raise DataError(f"two models are named {name}; give one another name, as in other={path}")
        named[name] = Path(path)
    return named


def _complete_openapi(app: FastAPI, model: str) -> None:
    """Put the schema of problems, which routes refer to, and a model as example into the OpenAPI document."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        document.setdefault("components", {}).setdefault("schemas", {})["ProblemAnswer"] = (
            ProblemAnswer.model_json_schema()
        )
        for methods in document["paths"].values():
            for operation in methods.values():
                for parameter in operation.get("parameters", ()):
                    if parameter["in"] == "path":
                        parameter["example"] = model
        return document

    app.openapi = openapi  # type: ignore[method-assign]


async def _on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """A parameter of the path or of the query that is out of its limits."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return problem_response(Problem(422, f'"{".".join(map(str, first["loc"][1:]))}": {first["msg"]}'))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    details = {404: "there is nothing at this path; /docs lists what there is", 405: "this path has other methods"}
    detail = details.get(error.status_code, str(error.detail))
    return problem_response(Problem(error.status_code, detail, dict(error.headers or {})))
