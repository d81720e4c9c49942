"""Checkpoints of models that are made of other models."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from golden.make import COMMON, LABELS, NAMES, TEXTS
from stores import change_array

import ramify
from ramify import ModelFormatError
from ramify.models import level_checkpoints, member_checkpoints

NAMED = {"label_catalogue": NAMES}
MEMBERS = ramify.XRLinear(tree=ramify.TreeConfig(max_leaf_size=2), **COMMON), ramify.KNN(**COMMON)
MODELS = {
    "ensemble": lambda: ramify.Ensemble(MEMBERS, **COMMON),
    "hybrid": lambda: ramify.Hybrid(
        (*MEMBERS, ramify.LabelMatcher(n_trees=4, **COMMON)), n_trees=4, n_folds=2, **COMMON
    ),
    "nested": lambda: ramify.Ensemble((ramify.Hybrid(MEMBERS, n_trees=4, n_folds=1, **COMMON), MEMBERS[0]), **COMMON),
}


def digest(model, path):
    model.save(path)
    arrays = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.glob("*.npy")}
    return arrays, model.predict_topk(TEXTS, 3).scores.tolist()


def interrupt_after(monkeypatch, module, name, n):
    """Interrupt after the n-th checkpoint is written; return the list that grows with each."""
    saved, save = [], getattr(module, name)

    def save_and_count(path, *args):
        save(path, *args)
        saved.append(path.name)
        if len(saved) == n:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, name, save_and_count)
    return saved


@pytest.fixture(params=list(MODELS))
def make(request):
    return MODELS[request.param]


def test_an_interrupted_training_resumes_to_the_same_bits(make, tmp_path, monkeypatch):
    """Members that were finished are not trained again, and nothing is left of the checkpoints."""
    expected = digest(make().fit(TEXTS, LABELS, **NAMED), tmp_path / "expected")
    resumable = make().set_params(checkpoint_dir=str(tmp_path / "checkpoints"))
    with monkeypatch.context() as patch:
        finished = interrupt_after(patch, member_checkpoints, "save_member", 10**9)
        resumable.fit(TEXTS, LABELS, **NAMED)
    for n in {1, len(finished) // 2, len(finished)}:
        with monkeypatch.context() as patch:
            interrupt_after(patch, member_checkpoints, "save_member", n)
            with pytest.raises(KeyboardInterrupt):
                resumable.fit(TEXTS, LABELS, **NAMED)
        with monkeypatch.context() as patch:
            rest = interrupt_after(patch, member_checkpoints, "save_member", 10**9)
            found = digest(resumable.clone().set_params(threads=2).fit(TEXTS, LABELS, **NAMED), tmp_path / "found")
        assert rest == finished[n:]
        assert found == expected
        assert not list((tmp_path / "checkpoints").iterdir())


def test_the_training_of_a_member_resumes_too(make, tmp_path, monkeypatch):
    expected = digest(make().fit(TEXTS, LABELS, **NAMED), tmp_path / "expected")
    resumable = make().set_params(checkpoint_dir=str(tmp_path / "checkpoints"))
    with monkeypatch.context() as patch:
        levels = interrupt_after(patch, level_checkpoints, "save_checkpoint", 10**9)
        resumable.fit(TEXTS, LABELS, **NAMED)
    with monkeypatch.context() as patch:
        interrupt_after(patch, level_checkpoints, "save_checkpoint", len(levels) - 1)
        with pytest.raises(KeyboardInterrupt):
            resumable.fit(TEXTS, LABELS, **NAMED)
    with monkeypatch.context() as patch:
        rest = interrupt_after(patch, level_checkpoints, "save_checkpoint", 10**9)
        model = resumable.fit(TEXTS, LABELS, **NAMED)
    assert rest == levels[-1:]
    assert digest(model, tmp_path / "found") == expected
    assert not list((tmp_path / "checkpoints").iterdir())
    members = model.models_ if isinstance(model, ramify.Ensemble) else model.members_
    assert all(getattr(member, "checkpoint_dir", None) is None for member in members)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A training of an ensemble of which one model is finished, and its checkpoint."""
    model = MODELS["ensemble"]().set_params(checkpoint_dir=str(tmp_path))
    with monkeypatch.context() as patch:
        interrupt_after(patch, member_checkpoints, "save_member", 1)
        with pytest.raises(KeyboardInterrupt):
            model.fit(TEXTS, LABELS)
    return model, tmp_path / "model-0"


def test_checkpoints_of_other_data_or_parameters_are_refused(interrupted):
    model, _ = interrupted
    others = (
        (model, TEXTS[:-1], LABELS[:-1], {}),
        (model, TEXTS, [["red"], *LABELS[1:]], {}),
        (model, TEXTS, LABELS, {"sample_weight": np.arange(1, len(TEXTS) + 1)}),
        (model, TEXTS, LABELS, NAMED),
        (model.clone().set_params(seed=1), TEXTS, LABELS, {}),
        (model.clone().set_params(models=MEMBERS[::-1]), TEXTS, LABELS, {}),
    )
    for other, texts, labels, options in others:
        with pytest.raises(ModelFormatError, match="another training"):
            other.fit(texts, labels, **options)
    model.set_params(threads=2, verbose=1).fit(TEXTS, LABELS)  # the bits depend on neither


def test_damaged_checkpoints_are_refused(interrupted):
    model, path = interrupted
    manifest = json.loads((path / "manifest.json").read_text())
    (member,) = manifest["state"]["members"]

    def refused(message, **state):
        content = {**manifest, "state": {**manifest["state"], **state}}
        (path / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(ModelFormatError, match=message):
            model.fit(TEXTS, LABELS)

    for members in (None, [], [member, member], {"0": member}):
        refused("does not describe a checkpoint", members=members)
    refused("holds another model", members=[{**member, "params": {**member["params"], "beam_size": 3}}])
    refused("unknown model 'oracle'", members=[{**member, "kind": "oracle"}])
    refused("no valid description", members=[{**member, "state": {}}])
    (path / "manifest.json").write_text(json.dumps(manifest))
    array = next(path.glob("*counts.npy"))
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(bytes(content))
    with pytest.raises(ModelFormatError, match="does not match its hash"):
        model.fit(TEXTS, LABELS)
    content[-1] ^= 1
    array.write_bytes(bytes(content))
    change_array(path, array.stem, lambda counts: counts[:-1])
    with pytest.raises(ModelFormatError):
        model.fit(TEXTS, LABELS)


def test_files_of_others_in_the_directories_stay(tmp_path):
    for name in ("model-0-parts", "model-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "model-0-parts" / "notes.txt").write_text("mine")
    model = MODELS["ensemble"]().set_params(checkpoint_dir=str(tmp_path))
    with pytest.raises(ModelFormatError):
        model.fit(TEXTS, LABELS)  # model-1 is no checkpoint
    (tmp_path / "model-1").rmdir()
    model.fit(TEXTS, LABELS)
    assert [path.name for path in tmp_path.rglob("*")] == ["model-0-parts", "notes.txt"]
