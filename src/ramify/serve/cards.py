"""What a service tells about its models."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ramify.serve.served import LoadedModel

_MAX_METRICS = 1 << 20


def summary(loaded: LoadedModel) -> dict[str, Any]:
    """One row of the list of models."""
    model = loaded.model
    return {
        "name": loaded.name,
        "kind": loaded.kind,
        "version": loaded.version,
        "n_labels": model.n_labels,
        "input": model.input_kind_,
        "fields": list(loaded.fields) if model.input_kind_ == "fields" else [],
        "calibrated": model.is_calibrated,
        "rule": None if model.rule_ is None else model.rule_.name,
        "languages": loaded.languages,
        "modified": datetime.fromtimestamp(loaded.modified, UTC).isoformat(),
    }


def card(loaded: LoadedModel) -> dict[str, Any]:
    """Everything about a model that helps to use it."""
    model = loaded.model
    counts = model.label_counts_.counts
    calibration = None
    if model.calibration_ is not None:
        rule = None if model.rule_ is None else model.rule_.to_dict()
        calibration = {"rows": model.calibration_.n_rows, "rule": rule}
    return {
        **summary(loaded),
        "description": (type(model).__doc__ or "").strip().splitlines()[0],
        "params": json.loads(json.dumps(model.to_dict(), default=str)),
        "data": {
            "samples": model.label_counts_.n_samples,
            "labels_per_sample": float(counts.sum() / max(1, model.label_counts_.n_samples)),
            "labels_with_one_sample": int((counts == 1).sum()),
            "median_samples_per_label": float(np.median(counts)) if len(counts) else 0.0,
        },
        "metrics": _metrics(loaded),
        "calibration": calibration,
        "size": loaded.size,
        "library_version": loaded.library_version,
    }


def _metrics(loaded: LoadedModel) -> Any:
    """Results that ``ramify evaluate DIR FILE --json > DIR.metrics.json`` has written beside the model."""
    path = loaded.path.resolve()
    path = path.with_name(f"{path.name}.metrics.json")
    try:
        return json.loads(path.read_bytes()[:_MAX_METRICS])
    except (OSError, ValueError, RecursionError):
        return None
