"""Model directories: what is written and read, format versions, refusal of damaged directories."""

from __future__ import annotations

import json
import os
import random
import shutil

import numpy as np
import pytest
from stores import ARRAY, edit_manifest, write_store

import ramify
from ramify import ModelFormatError
from ramify.features import Tfidf
from ramify.io.labels import LabelVocabulary
from ramify.io.store import MANIFEST, Store, StoreWriter


def test_round_trip(tmp_path):
    path = tmp_path / "deep" / "model"
    write_store(path, state={"s": [1, "ä"]})
    store = Store(path, verify=True)
    assert (store.kind, store.params, store.state) == ("x", {"p": 1}, {"s": [1, "ä"]})
    array = store.array("a", np.int32, shape=(3, 4), bounds=(0, 12))
    assert np.array_equal(array, ARRAY)
    assert not array.flags.writeable
    assert [p.name for p in path.parent.iterdir()] == ["model"]  # no temporary files are left


def test_empty_arrays(tmp_path):
    write_store(tmp_path / "m", np.empty((0, 3), np.float32))
    assert Store(tmp_path / "m").array("a", np.float32, ndim=2).shape == (0, 3)


def test_a_lazy_store_checks_a_file_when_it_is_read(tmp_path):
    write_store(tmp_path / "m")
    (tmp_path / "m" / "a.npy").write_bytes(b"cut off")
    with pytest.raises(ModelFormatError, match="7 bytes"):
        Store(tmp_path / "m")
    store = Store(tmp_path / "m", lazy=True)
    with pytest.raises(ModelFormatError, match="7 bytes"):
        store.array("a", np.int32)


def test_a_header_in_other_words_is_parsed(tmp_path):
    write_store(tmp_path / "m")
    file = tmp_path / "m" / "a.npy"
    content = file.read_bytes()
    before, after = b"{'descr': '<i4', 'fortran_order': False,", b"{'fortran_order': False, 'descr': '<i4',"
    file.write_bytes(content.replace(before, after))
    assert file.read_bytes() != content
    assert len(file.read_bytes()) == len(content)
    assert np.array_equal(Store(tmp_path / "m").array("a", np.int32), ARRAY)


def test_dtype_shape_and_bounds_are_checked(tmp_path):
    write_store(tmp_path / "m")
    store = Store(tmp_path / "m")
    for options, message in [
        ({"dtype": np.int64}, "int32, expected int64"),
        ({"dtype": np.int32, "ndim": 1}, "shape"),
        ({"dtype": np.int32, "shape": (3, 5)}, "shape"),
        ({"dtype": np.int32, "bounds": (0, 11)}, "outside 0 to 10"),
        ({"dtype": np.int32, "bounds": (1, 12)}, "outside 1"),
    ]:
        with pytest.raises(ramify.ModelFormatError, match=message):
            store.array("a", **options)
    with pytest.raises(ramify.ModelFormatError, match="no array 'b'"):
        store.array("b", np.int32)


@pytest.mark.parametrize(("change", "message"), [
    (lambda m: m.update(format="other"), "not written by Ramify"),
    (lambda m: m.update(format_version=99), "upgrade Ramify"),
    (lambda m: m.update(format_version="3"), "no valid format version"),
    (lambda m: m.pop("kind"), "'kind'"),
    (lambda m: m.update(params=[]), "'params'"),
    (lambda m: m["files"].update({"../a.npy": m["files"]["a.npy"]}), "plain file name"),
    (lambda m: m["files"].update({"/etc/passwd": m["files"]["a.npy"]}), "plain file name"),
    (lambda m: m["files"].update({"sub/a.npy": m["files"]["a.npy"]}), "plain file name"),
    (lambda m: m["files"].update({"b.npy": m["files"]["a.npy"]}), "missing"),
    (lambda m: m["files"]["a.npy"].update(size=5), "bytes"),
    (lambda m: m["files"].update({"a.npy": None}), "no valid entry"),
])  # fmt: skip
def test_invalid_manifests_are_refused(tmp_path, change, message):
    write_store(tmp_path / "m")
    edit_manifest(tmp_path / "m", change)
    with pytest.raises(ramify.ModelFormatError, match=message):
        Store(tmp_path / "m")


def test_links_are_not_followed(tmp_path):
    write_store(tmp_path / "m")
    (tmp_path / "m" / "a.npy").rename(tmp_path / "elsewhere.npy")
    (tmp_path / "m" / "a.npy").symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(ramify.ModelFormatError, match="links are not followed"):
        Store(tmp_path / "m")


def test_paths_without_a_model(tmp_path):
    with pytest.raises(ramify.ModelFormatError, match="no such directory"):
        ramify.load(tmp_path / "none")
    with pytest.raises(ramify.ModelFormatError, match=r"no manifest\.json"):
        ramify.load(tmp_path)
    write_store(tmp_path / "m")
    with pytest.raises(ramify.ModelFormatError, match="unknown kind 'x'"):
        ramify.load(tmp_path / "m")


def test_verify_compares_hashes(tmp_path):
    write_store(tmp_path / "m")
    file = tmp_path / "m" / "a.npy"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    Store(tmp_path / "m").array("a", np.int32)
    with pytest.raises(ramify.ModelFormatError, match="does not match its hash"):
        Store(tmp_path / "m", verify=True)


def test_pickles_are_refused(tmp_path):
    write_store(tmp_path / "m")
    np.save(tmp_path / "evil.npy", np.array([os.system], dtype=object), allow_pickle=True)
    shutil.copy(tmp_path / "evil.npy", tmp_path / "m" / "a.npy")
    edit_manifest(
        tmp_path / "m", lambda m: m["files"]["a.npy"].update(size=(tmp_path / "evil.npy").stat().st_size, dtype="|O")
    )
    with pytest.raises(ramify.ModelFormatError, match="damaged"):
        Store(tmp_path / "m").array("a", object)
    with pytest.raises(ValueError, match="object"), StoreWriter(tmp_path / "n") as writer:
        writer.array("a", np.array([{}], dtype=object))


# ---- fuzzing ----


def popular_model(path):
    texts, labels = ["red fox", "brown hen", "red hen"] * 5, [["fox", "red"], ["hen"], ["hen", "red"]] * 5
    ramify.Popular().fit(texts, labels).save(path)

    def use(path):
        model = ramify.load(path)
        model.predict_topk(["red"], k=5).labels()
        model.predict(["red"])

    return use


def tfidf_store(path):
    texts = [
        "red fox in the woods",
        "brown hen",
        "Donaudampfschifffahrtsgesellschaft größer",
        "a longer text with red hens",
    ]
    tfidf = Tfidf(ngram_range=(1, 2)).fit(texts)
    with StoreWriter(path) as writer:
        writer.manifest("x", {}, {"tfidf": tfidf.save_to(writer)})

    def use(path):
        store = Store(path)
        opened = Tfidf.load_from(store, store.state["tfidf"])
        opened.transform([*texts, "unknown words here"])

    return use


def damage(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Damage a file in one of six ways."""
    kind = rng.randrange(6)
    at = rng.randrange(len(data)) if data else 0
    if kind == 0:  # flip a bit
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 1:  # overwrite some bytes
        wrong = bytes(rng.choice([0, 1, 127, 128, 255, rng.randrange(256)]) for _ in range(rng.randrange(1, 9)))
        return data[:at] + wrong + data[at + len(wrong) :]
    if kind == 2:  # truncate
        return data[:at]
    if kind == 3:  # swap two pieces
        other = rng.randrange(len(data))
        a, b = min(at, other), max(at, other)
        return data[b:] + data[a:b] + data[:a]
    if kind == 4:  # insert bytes
        return data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20))) + data[at:]
    return rng.choice(others)  # replace with another file


@pytest.mark.native
@pytest.mark.parametrize("make", [popular_model, tfidf_store], ids=["model", "tfidf"])
@pytest.mark.parametrize("keep_sizes", [False, True], ids=["raw", "matching-sizes"])
def test_damage_is_refused_or_harmless(tmp_path, make, keep_sizes):
    """Loading a damaged directory works or raises ModelFormatError; it never crashes or hangs.

    With matching sizes in the manifest, the checks after that of the size are reached.
    """
    use = make(tmp_path / "m")
    use(tmp_path / "m")
    whole = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}
    rng = random.Random(1)
    n_refused = 0
    for _ in range(1500):
        name = rng.choice(sorted(whole))
        damaged = damage(whole[name], rng, list(whole.values()))
        path = tmp_path / "m"
        (path / name).write_bytes(damaged)
        if keep_sizes and name != MANIFEST:
            manifest = json.loads(whole[MANIFEST])
            manifest["files"][name]["size"] = len(damaged)
            (path / MANIFEST).write_text(json.dumps(manifest))
        try:
            use(path)
        except ramify.ModelFormatError:
            n_refused += 1
        except ramify.DataError as error:  # the damage changed the input kind: the model refuses texts
            if "trained on" not in str(error) and "fitted on" not in str(error):
                raise
        (path / name).write_bytes(whole[name])
        (path / MANIFEST).write_bytes(whole[MANIFEST])
    assert n_refused > 300
    use(tmp_path / "m")


def write_by_hand(path, format_version):
    """A directory written without StoreWriter, to the letter of the format."""
    path.mkdir()
    arrays = {"labels_text": np.frombuffer(b"foxhen", np.uint8), "labels_offsets": np.array([0, 3, 6], np.int64)}
    files = {}
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
        size = (path / f"{name}.npy").stat().st_size
        files[f"{name}.npy"] = {"size": size, "sha256": "", "dtype": array.dtype.str, "shape": list(array.shape)}
    manifest = {
        "format": "ramify-model",
        "format_version": format_version,
        "library_version": "0.1.0",
        "kind": "popular",
        "params": {"seed": 0},
        "state": {"labels": {"kind": "text", "n": 2}},
        "files": files,
    }
    (path / MANIFEST).write_text(json.dumps(manifest))


def test_format_version_4_is_readable(tmp_path):
    write_by_hand(tmp_path / "m", 4)
    store = Store(tmp_path / "m")
    assert (store.kind, store.params) == ("popular", {"seed": 0})
    assert list(LabelVocabulary.load(store, store.state["labels"])) == ["fox", "hen"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_earlier_format_versions_are_refused_and_may_be_overwritten(tmp_path, version):
    write_by_hand(tmp_path / "m", version)
    reason = f"format version {version}: it was written by an earlier development version of Ramify"
    for opener in (Store, ramify.load, ramify.Popular.load):
        with pytest.raises(ramify.ModelFormatError, match=f"{reason}; train it again"):
            opener(tmp_path / "m")
    write_store(tmp_path / "m")
    assert Store(tmp_path / "m").kind == "x"


def test_opening_blocks_on_nothing_and_follows_no_links(tmp_path):
    write_store(tmp_path / "m")
    file = tmp_path / "m" / "a.npy"
    (tmp_path / "elsewhere.npy").write_bytes(file.read_bytes())
    file.unlink()
    for make in (lambda: os.mkfifo(file), lambda: file.symlink_to(tmp_path / "elsewhere.npy"), file.mkdir):
        make()
        with pytest.raises(ModelFormatError, match="not a regular file"):
            Store(tmp_path / "m")
        file.rmdir() if file.is_dir() else file.unlink()
    (tmp_path / "m" / "manifest.json").unlink()
    os.mkfifo(tmp_path / "m" / "manifest.json")
    with pytest.raises(ModelFormatError, match="no manifest"):
        Store(tmp_path / "m")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.float32, np.int64])
def test_an_array_in_parts_is_written_as_a_whole_one(tmp_path, dtype):
    parts = [np.arange(n, dtype=dtype) for n in (3, 0, 1, 500)]
    for name, durable in (("parts", False), ("whole", True)):
        with StoreWriter(tmp_path / name, durable=durable) as writer:
            if name == "parts":
                writer.array_parts("a", parts)
            else:
                writer.array("a", np.concatenate(parts))
            writer.manifest("x", {}, {})
    for file in ("a.npy", MANIFEST):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    Store(tmp_path / "parts", verify=True)


@pytest.mark.parametrize("labels", [["b", "ä", ""], [3, "x", (1, "y")]])
def test_labels_that_were_opened_are_saved_as_they_were(tmp_path, labels):
    vocabulary = LabelVocabulary(labels)
    for name in ("first", "second"):
        with StoreWriter(tmp_path / name) as writer:
            writer.manifest("x", {}, {"labels": vocabulary.save(writer)})
        store = Store(tmp_path / name)
        vocabulary = LabelVocabulary.load(store, store.state["labels"])
    assert list(vocabulary) == labels
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes()
