"""Checkpoints: round trip, refusal of foreign and damaged directories, removal."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ramify
from ramify import ModelFormatError
from ramify.nn.checkpoint import CheckpointDirectory, load_checkpoint, remove_checkpoint, save_checkpoint

GROUPS = {
    "arrays": {"encoder.words": np.arange(6, dtype=np.float32).reshape(2, 3), "head.bias": np.zeros(0, np.float32)},
    "state": {"slots": np.array([3, -1], np.int64), "codes": np.array([[1, -1]], np.int8)},
    "best": {},
}
VALUES = {"epoch": 3, "best_score": None, "history": [[0.5, 20.25]], "random": {"state": 2**100}}


def save(path, key="key"):
    save_checkpoint(path, key, GROUPS, VALUES)


def test_round_trip(tmp_path):
    save(tmp_path / "c")
    groups, values = load_checkpoint(tmp_path / "c", "key")
    assert values == VALUES
    assert list(groups) == list(GROUPS)
    for group, arrays in GROUPS.items():
        assert list(groups[group]) == list(arrays)
        for name, array in arrays.items():
            found = groups[group][name]
            assert found.dtype == array.dtype
            assert np.array_equal(found, array)
            assert found.flags.writeable


def test_a_missing_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path / "c", "key") is None


def test_a_checkpoint_replaces_the_previous_one(tmp_path):
    save(tmp_path / "c")
    save_checkpoint(tmp_path / "c", "key", {"arrays": {}}, {"epoch": 4})
    assert load_checkpoint(tmp_path / "c", "key") == ({"arrays": {}}, {"epoch": 4})
    assert [path.name for path in tmp_path.iterdir()] == ["c"]  # nothing temporary is left


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    save(tmp_path / "c", key="other")
    with pytest.raises(ModelFormatError, match="checkpoint of another training"):
        load_checkpoint(tmp_path / "c", "key")


def test_a_model_is_not_a_checkpoint(tmp_path):
    ramify.Popular().fit(["a", "b"], [["x"], ["y"]]).save(tmp_path / "c")
    with pytest.raises(ModelFormatError, match="another training"):
        load_checkpoint(tmp_path / "c", "key")
    with pytest.raises(ModelFormatError):
        save(tmp_path / "c" / "manifest.json")


def test_a_checkpoint_is_not_a_model(tmp_path):
    save(tmp_path / "c")
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "c")


def test_a_foreign_directory_is_refused_and_left_alone(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes.txt").write_text("mine")
    with pytest.raises(ModelFormatError):
        load_checkpoint(tmp_path / "c", "key")
    with pytest.raises(ModelFormatError, match="not part of a model"):
        save(tmp_path / "c")
    assert (tmp_path / "c" / "notes.txt").read_text() == "mine"


def truncate_array(path):
    file = path / "arrays-encoder.words.npy"
    file.write_bytes(file.read_bytes()[:-4])


def remove_array(path):
    (path / "state-slots.npy").unlink()


def damage_header(path):
    file = path / "state-slots.npy"
    file.write_bytes(b"\x00" * 8 + file.read_bytes()[8:])


def truncate_manifest(path):
    file = path / "manifest.json"
    file.write_text(file.read_text()[:-20])


def remove_manifest(path):
    (path / "manifest.json").unlink()


def edit_manifest(change):
    def edit(path):
        manifest = json.loads((path / "manifest.json").read_text())
        change(manifest)
        (path / "manifest.json").write_text(json.dumps(manifest))

    return edit


DAMAGES = {
    "array cut short": truncate_array,
    "array missing": remove_array,
    "header of an array": damage_header,
    "manifest cut short": truncate_manifest,
    "manifest missing": remove_manifest,
    "future format": edit_manifest(lambda manifest: manifest.update(format_version=99)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    save(tmp_path / "c")
    damage(tmp_path / "c")
    with pytest.raises(ModelFormatError):
        load_checkpoint(tmp_path / "c", "key")


INCONSISTENT = {
    "no groups": lambda manifest: manifest["state"].pop("groups"),
    "no values": lambda manifest: manifest["state"].pop("values"),
    "unknown array": lambda manifest: manifest["state"]["groups"]["arrays"].append("nothing"),
}


@pytest.mark.parametrize("change", INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_an_inconsistent_manifest_is_refused(tmp_path, change):
    save(tmp_path / "c")
    edit_manifest(change)(tmp_path / "c")
    with pytest.raises(ModelFormatError):
        load_checkpoint(tmp_path / "c", "key")


def test_only_checkpoints_are_removed(tmp_path):
    save(tmp_path / "c")
    remove_checkpoint(tmp_path / "c")
    assert not (tmp_path / "c").exists()
    remove_checkpoint(tmp_path / "c")  # there is none
    ramify.Popular().fit(["a", "b"], [["x"], ["y"]]).save(tmp_path / "model")
    (tmp_path / "notes").mkdir()
    for name in ("model", "notes"):
        remove_checkpoint(tmp_path / name)
        assert (tmp_path / name).is_dir()


def test_directory_of_the_stages_of_a_model(tmp_path):
    directory = CheckpointDirectory(str(tmp_path / "run"))
    first, second, third = (directory.path(title) for title in ("stage 1", "stage 2 of model 3", "never written"))
    assert first == tmp_path / "run" / "stage-1"
    assert second == tmp_path / "run" / "stage-2-of-model-3"
    for path in (first, second, tmp_path / "run" / "of-another-model"):
        save(path)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    directory.clear()
    # Only the checkpoints of its own stages are removed.
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["notes.txt", "of-another-model"]
    assert not third.exists()
    directory.clear()


def test_clear_keeps_what_is_no_checkpoint(tmp_path):
    directory = CheckpointDirectory(str(tmp_path))
    path = directory.path("stage 1")
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    directory.clear()
    assert (path / "notes.txt").read_text() == "mine"


def test_without_a_directory_nothing_is_written():
    directory = CheckpointDirectory(None)
    assert directory.path("stage 1") is None
    directory.clear()
