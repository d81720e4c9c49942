from __future__ import annotations

import pytest

import ramify

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from page_models import save_models
from serving import CATALOGUE, LABELS, TEXTS


@pytest.fixture(scope="session")
def model() -> ramify.XRLinear:
    """Animals, plants and houses; calibrated, with names in two languages."""
    model = ramify.XRLinear(verbose=0).fit(TEXTS * 5, LABELS * 5, label_catalogue=CATALOGUE)
    return model.calibrate(TEXTS, LABELS)


@pytest.fixture(scope="session")
def model_path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "words"
    model.save(path)
    return path


@pytest.fixture(scope="session")
def fields_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "fields"
    records = [{"title": text, "body": "nothing"} for text in TEXTS]
    ramify.XRLinear(verbose=0).fit(records, LABELS).save(path)
    return path


@pytest.fixture(scope="module")
def client(model_path, fields_path):
    """A client of the application itself, without a network."""
    from fastapi.testclient import TestClient

    from ramify.serve import Settings, create_app

    settings = Settings(max_text=1000, max_body=20_000, max_texts=8, max_k=50, threads=2, reload_every=0)
    with TestClient(create_app([model_path, fields_path], settings)) as client:
        yield client


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
    """Models of the page, by name."""
    return save_models(tmp_path_factory.mktemp("page"))
