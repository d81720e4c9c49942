"""Routes of the native API, and of those who run the service."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from ramify.serve import schemas
from ramify.serve.bodies import check_characters
from ramify.serve.cards import card, summary
from ramify.serve.label_search import LabelSearch
from ramify.serve.metrics import CONTENT_TYPE
from ramify.serve.problems import Problem
from ramify.serve.schemas import body_schema, problems
from ramify.serve.served import to_json
from ramify.serve.service import Service

MAX_FOUND = 1000


def api_router(service: Service) -> APIRouter:
    """Routes below /v1."""
    router = APIRouter(prefix="/v1", tags=["suggestions"])

    @router.post(
        "/suggest",
        summary="Suggest labels for texts",
        response_class=Response,
        responses={
            200: {"model": schemas.SuggestAnswer, "content": {"application/json": {"example": _EXAMPLE}}},
            **problems(400, 401, 404, 408, 413, 415, 422, 429, 503),
        },
        openapi_extra=body_schema(schemas.SuggestBody),
    )
    async def suggest(request: Request) -> Response:
        """Rank the labels of one text or of several; each option is described in the request."""
        return json_response(await service.suggest(request.scope, request.receive))

    @router.get(
        "/labels", summary="Find labels", response_class=Response,
        responses={200: {"model": schemas.LabelsAnswer}, **problems(401, 404, 422)},
    )  # fmt: skip
    async def labels(
        q: Annotated[
            str, Query(description="Text in the label, a name, a synonym or a notation.", max_length=200)
        ] = "",
        model: Annotated[str | None, Query(description="Name of the model; the first one if left out.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_FOUND)] = 20,
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
        language: Annotated[str | None, Query(description="Language of the names.")] = None,
    ) -> Response:
        """Search in labels and their names; without a text the most frequent labels."""

        def find(name: str, search: LabelSearch) -> bytes:
            found, total = search.find(q, limit, offset)
            rows = [search.describe(i, language) for i in found]
            return to_json({"model": name, "total": total, "labels": rows}).encode()

        check_characters(q, '"q"')
        loaded = service.models.get(model)
        search = await service.search(loaded)
        return json_response(await asyncio.to_thread(find, loaded.name, search))

    @router.get(
        "/models", summary="List the models", response_class=Response,
        responses={200: {"model": schemas.ModelsAnswer}, **problems(401)},
    )  # fmt: skip
    async def models() -> Response:
        """List the models that are served; the first one is the default."""
        return json_response(to_json({"models": [summary(loaded) for loaded in service.models]}).encode())

    @router.get(
        "/models/{name}", summary="Card of a model", response_class=Response,
        responses={200: {"model": schemas.ModelCard}, **problems(401, 404)},
    )  # fmt: skip
    async def model_card(name: str) -> Response:
        """Kind, labels, data, metrics, calibration, size and version of a model."""
        return json_response(to_json(card(service.models.get(name))).encode())

    return router


def operations_router(service: Service) -> APIRouter:
    """Health and metrics."""
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", summary="Is the process alive?", response_model=dict[str, str])
    async def healthz() -> dict[str, str]:
        """Answer as soon as the process runs."""
        return {"status": "ok"}

    @router.get("/readyz", summary="Can it answer?", response_model=dict[str, Any], responses=problems(503))
    async def readyz() -> dict[str, Any]:
        """Answer 503 before the models are loaded, while the service shuts down, and while its queue is full."""
        texts, limit = service.work.texts, service.settings.max_queue
        if not service.is_ready or texts >= limit:
            raise Problem(503, "the service is not ready, or its queue is full", {"retry-after": "1"})
        return {"status": "ready", "queue": texts, "models": {m.name: m.version for m in service.models}}

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse, responses=problems(401))
    async def metrics() -> Response:
        """Requests, texts, latency, queue, shed requests, versions of the models and memory of this process."""
        return PlainTextResponse(service.metrics.render(service.models, service.work), media_type=CONTENT_TYPE)

    return router


def json_response(body: bytes) -> Response:
    """Answer with JSON that is already encoded."""
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})


def problem_response(problem: Problem) -> Response:
    """Answer with a problem."""
    headers = {name.decode(): value.decode() for name, value in problem.raw_headers()}
    return Response(problem.body(), status_code=problem.status, headers=headers)


_EXAMPLE = {
    "model": "demo",
    "version": "3f9c0a1b2c3d",
    "probabilities": False,
    "results": [{"labels": [{"label": "module:numpy.linalg", "name": None, "score": 0.71}]}],
}
