"""Routes of Annif's REST API, version 1, with their documentation; `annif_api` answers them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from ramify.serve.annif_api import AnnifApi
from ramify.serve.annif_requests import MAX_DOCUMENTS
from ramify.serve.routes import json_response
from ramify.serve.schemas import problems

ProjectId = Annotated[str, Path(description="Name of a model.")]


class ApiInfo(BaseModel):
    """Title and version of the service."""

    title: str
    version: str


class Backend(BaseModel):
    """Backend of a project."""

    backend_id: str


class Vocabulary(BaseModel):
    """Labels of a model."""

    vocab_id: str
    languages: list[str]
    size: int
    loaded: bool


class Project(BaseModel):
    """A model, as Annif describes it."""

    project_id: str
    name: str
    language: str
    backend: Backend
    vocab: Vocabulary
    vocab_language: str
    is_trained: bool
    modification_time: str


class Projects(BaseModel):
    """All models."""

    projects: list[Project]


class Vocabularies(BaseModel):
    """All vocabularies."""

    vocabs: list[Vocabulary]


class Subject(BaseModel):
    """A suggestion."""

    uri: str
    label: str
    notation: str | None
    score: float = Field(gt=0, le=1)


class Subjects(BaseModel):
    """Suggestions for a document, best first."""

    results: list[Subject]


class DocumentSubjects(Subjects):
    """Suggestions for a document of a batch."""

    document_id: str | None


class DetectedLanguage(BaseModel):
    """Fraction of a text in a language; null: in none of the candidates."""

    language: str | None
    score: float


class DetectedLanguages(BaseModel):
    """Candidate languages, the best first."""

    results: list[DetectedLanguage]


_STRING = {"type": "string"}
_LIMIT = {"type": "integer", "minimum": 0, "default": 10}
_THRESHOLD = {"type": "number", "minimum": 0, "maximum": 1, "default": 0}
_DOCUMENT = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": _STRING,
        "document_id": {"type": "string"},
        "metadata": {"type": "object", "additionalProperties": _STRING},
    },
}
_FORM = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": _STRING, "limit": _LIMIT, "threshold": _THRESHOLD, "language": _STRING},
    "additionalProperties": _STRING,
    "example": {"text": "Solve a linear system of equations.", "limit": 5},
}
_BATCH = {
    "type": "object",
    "required": ["documents"],
    "properties": {"documents": {"type": "array", "maxItems": MAX_DOCUMENTS, "items": _DOCUMENT}},
    "example": {"documents": [{"text": "Solve a linear system of equations.", "document_id": "1"}]},
}
_SUBJECT = {"type": "object", "required": ["uri"], "properties": {"uri": _STRING, "label": _STRING}}
_INDEXED = {
    "type": "object",
    "properties": {
        "text": _STRING,
        "metadata": {"type": "object", "additionalProperties": _STRING},
        "subjects": {"type": "array", "items": _SUBJECT},
    },
}
_LEARN = {
    "type": "array",
    "items": _INDEXED,
    "example": [{"text": "Solve a linear system of equations.", "subjects": [{"uri": "http://example.org/algebra"}]}],
}
_DETECT = {
    "type": "object",
    "required": ["text", "languages"],
    "properties": {
        "text": _STRING,
        "languages": {
            "type": "array", "minItems": 1, "maxItems": 5, "items": {"type": "string", "minLength": 2, "maxLength": 3}
        },
    },
    "example": {"text": "Das Haus ist nicht groß.", "languages": ["de", "en"]},
}  # fmt: skip
_QUERY = [
    {"name": "limit", "in": "query", "schema": _LIMIT},
    {"name": "threshold", "in": "query", "schema": _THRESHOLD},
    {"name": "language", "in": "query", "schema": _STRING},
]


def annif_router(api: AnnifApi) -> APIRouter:
    """Routes below /v1."""
    router = APIRouter(prefix="/v1", tags=["Annif"])

    def add(path: str, function: Any, answer: Any, statuses: tuple[int, ...], extra: Any = None) -> None:
        router.add_api_route(
            path,
            function,
            methods=["GET" if extra is None else "POST"],
            summary=function.__doc__.splitlines()[0].rstrip("."),
            response_class=Response,
            responses={200: {"model": answer}, **problems(*statuses)},
            openapi_extra=extra,
        )

    async def info() -> Response:
        """Title and version."""
        return json_response(api.info())

    async def projects() -> Response:
        """List the projects."""
        return json_response(api.projects())

    async def project(project_id: ProjectId) -> Response:
        """Show a project."""
        return json_response(api.project(project_id))

    async def vocabs() -> Response:
        """List the vocabularies."""
        return json_response(api.vocabs())

    async def suggest(project_id: ProjectId, request: Request) -> Response:
        """Suggest subjects for a text."""
        return json_response(await api.suggest(project_id, request.scope, request.receive))

    async def suggest_batch(project_id: ProjectId, request: Request) -> Response:
        """Suggest subjects for up to 32 documents."""
        return json_response(await api.suggest_batch(project_id, request.scope, request.receive))

    async def learn(project_id: ProjectId, request: Request) -> Response:
        """Learn from documents (not allowed)."""
        return json_response(await api.learn(project_id, request.scope, request.receive))

    async def detect_language(request: Request) -> Response:
        """Detect the language of a text."""
        return json_response(await api.detect_language(request.scope, request.receive))

    busy = (400, 401, 404, 408, 413, 415, 429, 503)
    add("/", info, ApiInfo, (401,))
    add("/projects", projects, Projects, (401,))
    add("/projects/{project_id}", project, Project, (401, 404))
    add("/vocabs", vocabs, Vocabularies, (401,))
    add("/projects/{project_id}/suggest", suggest, Subjects, busy, _body(_FORM, "application/x-www-form-urlencoded"))
    add(
        "/projects/{project_id}/suggest-batch", suggest_batch, list[DocumentSubjects], busy,
        {**_body(_BATCH), "parameters": _QUERY},
    )  # fmt: skip
    add("/projects/{project_id}/learn", learn, None, (400, 401, 403, 404, 408, 413, 415), _body(_LEARN))
    add("/detect-language", detect_language, DetectedLanguages, (400, 401, 408, 413, 415), _body(_DETECT))
    return router


def _body(schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}
