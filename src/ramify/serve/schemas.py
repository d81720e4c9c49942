"""The requests and answers of the API, for its OpenAPI document.

`suggest_request` checks requests and `suggestions` writes answers, without these classes; a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ramify.serve.problems import PROBLEM_TYPE
from ramify.serve.settings import Settings

_LIMITS = Settings()
LabelValue = str | int | float | bool | list[Any]
Record = Annotated[dict[str, str], Field(min_length=1)]


class SuggestBody(BaseModel):
    """Texts, and what is wanted for them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"input": "Solve a linear system of equations.", "k": 5}]},
    )

    input: str | Record | Annotated[list[str | Record], Field(min_length=1, max_length=_LIMITS.max_texts)] = Field(
        description="A text, a record of text fields, or a list of them; each of at most "
        f"{_LIMITS.max_text:,} characters."
    )
    model: str | None = Field(None, description="Name of the model; the first one if it is left out.")
    k: Annotated[int, Field(ge=1, le=_LIMITS.max_k)] | None = Field(
        None, description="Largest number of labels of each text; 10, or all that the rule chooses."
    )
    probabilities: bool | None = Field(None, description="Probabilities in place of raw scores.")
    rule: str | None = Field(
        None,
        description='Decision rule that chooses the labels: "default" is that of the model, others are "maximize-f1", '
        '"top-k=3", "threshold=0.4" and so on.',
    )
    threshold: float | None = Field(None, description="Only labels with at least this score or probability.")
    allow: Annotated[list[LabelValue], Field(max_length=_LIMITS.max_filter)] | None = Field(
        None, description="Only these labels, or names of the catalogue."
    )
    deny: Annotated[list[LabelValue], Field(max_length=_LIMITS.max_filter)] | None = Field(
        None, description="None of these labels, or names of the catalogue."
    )
    explain: (
        bool
        | Annotated[int, Field(ge=0, le=_LIMITS.max_explained)]
        | Annotated[list[LabelValue], Field(max_length=_LIMITS.max_explained)]
        | None
    ) = Field(None, description="Explain this many of the best labels, or these labels; for a single input.")
    without: Annotated[list[str], Field(max_length=_LIMITS.max_words)] | None = Field(
        None, description="Words that are taken out of the texts first: the exact scores without them."
    )
    language: str | None = Field(None, description="Language of the names, as the catalogue writes it, such as en.")


class Suggestion(BaseModel):
    """A label of a text."""

    label: LabelValue
    name: str | None = Field(description="Its name in the label catalogue.")
    score: float


class Level(BaseModel):
    """A node on the path to a label: margin = bias + the sum of the contributions."""

    title: str
    margin: float
    bias: float
    log_score: float
    contributions: list[tuple[str, float]]


class ExplanationAnswer(BaseModel):
    """Why a label has its score."""

    label: LabelValue
    name: str | None
    score: float
    probability: float | None
    method: str = Field(description='"linear": exact contributions; "leave-one-out": how much the score falls.')
    terms: list[tuple[str, float]]
    levels: list[Level]
    parts: dict[str, float]


class SuggestResult(BaseModel):
    """Labels of one text, best first."""

    labels: list[Suggestion]
    explanations: list[ExplanationAnswer] | None = None


class SuggestAnswer(BaseModel):
    """Labels of all texts, in their order."""

    model: str
    version: str = Field(description="Changes when the model is replaced.")
    probabilities: bool = Field(description="Whether the scores are probabilities.")
    results: list[SuggestResult]


class LabelAnswer(BaseModel):
    """A label that was found."""

    label: LabelValue
    name: str | None
    notation: str | None
    samples: int = Field(description="Training samples with this label.")


class LabelsAnswer(BaseModel):
    """Labels that were found, the best first."""

    model: str
    total: int
    labels: list[LabelAnswer]


class ModelSummary(BaseModel):
    """A model that is served."""

    name: str
    kind: str
    version: str
    n_labels: int
    input: str = Field(description='"text" or "fields".')
    fields: list[str]
    calibrated: bool
    rule: str | None
    languages: list[str]
    modified: str


class ModelData(BaseModel):
    """What a model was trained on."""

    samples: int
    labels_per_sample: float
    labels_with_one_sample: int
    median_samples_per_label: float


class ModelCard(ModelSummary):
    """Everything about a model that helps to use it."""

    description: str
    params: dict[str, Any]
    data: ModelData
    metrics: Any = Field(description="Content of DIR.metrics.json beside the model, or null.")
    calibration: dict[str, Any] | None
    size: int = Field(description="Bytes of its files.")
    library_version: str


class ModelsAnswer(BaseModel):
    """All models; the first one is the default."""

    models: list[ModelSummary]


class ProblemAnswer(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


REASONS = {
    400: "The request is not valid JSON, or not valid HTTP.",
    401: "The token is missing or wrong.",
    403: "The service does not do this.",
    404: "There is no such model, project or route.",
    405: "The route has other methods.",
    408: "The client took too long to send the request.",
    413: "The request is too large.",
    415: "The content type is another one.",
    422: "A field is missing, unknown or out of its limits; the answer names it.",
    429: "This client has too many texts in the queue.",
    503: "The service has too much to do, or is not ready.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document the problems that a route may answer with."""
    schema = {"$ref": "#/components/schemas/ProblemAnswer"}
    return {s: {"description": REASONS[s], "content": {PROBLEM_TYPE: {"schema": schema}}} for s in statuses}


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Document a JSON body that the route reads by itself."""
    schema = model.model_json_schema()
    assert "$defs" not in schema, "a schema in openapi_extra cannot refer to others"
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
