"""Readers of text formats: detection, fields, bad lines."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.io.formats import detect_format, iter_records, read_label_names

JSONL = '{"text": "red fox", "labels": ["animal", "fox"]}\n\n{"text": "", "labels": ["hen", "hen"], "id": 7}\n'
TSV = 'text\tlabels\tid\nred "fox"\tanimal;fox\t\nhen house\then\tb\n'
CSV = 'text,labels\n"red, fox\nand more",animal;fox\nhen,"[""hen""]"\n'
ANNIF = "red fox\t<http://x/animal> <http://x/fox>\nhen\t<http://x/hen>\n"


@pytest.mark.parametrize(("name", "text", "kind"), [
    ("a.jsonl", JSONL, "jsonl"), ("a.txt", JSONL, "jsonl"), ("a.tsv", TSV, "tsv"), ("b", TSV, "tsv"),
    ("a.csv", CSV, "csv"), ("b", CSV, "csv"), ("a.tsv", ANNIF, "annif"), ("a.txt", "1 2 3\n0 1:1\n", "xmc"),
    ("a.svm", "2 2 3\n 1:1\n 0:1\n", "xmc"),
])  # fmt: skip
@pytest.mark.parametrize("compression", ["", ".gz", ".xz"])
def test_formats_are_detected(tmp_path, name, text, kind, compression):
    path = tmp_path / (name + compression)
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[compression](text.encode()))
    assert detect_format(path) == kind
    assert len(ramify.read(path)) == (1 if text.startswith("1 2 3") else 2)


def test_jsonl(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(JSONL)
    data = ramify.read(path)
    assert data.texts == ["red fox", ""]  # an empty text is a valid sample
    assert list(data.label_names) == ["animal", "fox", "hen"]
    assert data.labels() == [["animal", "fox"], ["hen"]]  # a repeated label counts once
    assert data.ids == ["0", 7]


def test_text_fields_and_weights(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"title": "t", "abstract": "a", "labels": [3, 1], "weights": [0.5, 2], "id": "x"},
        {"title": "u", "labels": [2], "id": "y"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    data = ramify.read(path)
    assert data.texts == [{"title": "t", "abstract": "a"}, {"title": "u", "abstract": ""}]
    assert list(data.label_names) == [1, 2, 3]
    assert data.relevance.toarray().tolist() == [[2, 0, 0.5], [0, 1, 0]]
    assert ramify.read(path, fields=["title"]).texts == ["t", "u"]
    out = tmp_path / "b.jsonl.gz"
    ramify.write(data, out)
    again = ramify.read(out)
    assert again.texts == data.texts
    assert again.labels() == data.labels()
    assert (again.relevance != data.relevance).nnz == 0
    assert again.ids == data.ids


def test_tsv_csv_annif(tmp_path):
    (tmp_path / "a.tsv").write_text(TSV)
    data = ramify.read(tmp_path / "a.tsv")
    assert data.texts == ['red "fox"', "hen house"]
    assert data.labels() == [["animal", "fox"], ["hen"]]
    (tmp_path / "a.csv").write_text(CSV)
    data = ramify.read(tmp_path / "a.csv")
    assert data.texts == ["red, fox\nand more", "hen"]
    assert data.labels() == [["animal", "fox"], ["hen"]]
    (tmp_path / "b.tsv").write_text(ANNIF)
    assert ramify.read(tmp_path / "b.tsv").labels() == [["http://x/animal", "http://x/fox"], ["http://x/hen"]]
    (tmp_path / "c.csv").write_text("title,body,labels,weights\na,b,x|y,1|2\n")
    data = ramify.read(tmp_path / "c.csv", label_sep="|")
    assert data.texts == [{"title": "a", "body": "b"}]
    assert data.relevance.data.tolist() == [1, 2]


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    table = pa.table({"text": ["red fox", "hen", None], "labels": [["a", "b"], ["c"], ["d"]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert detect_format(tmp_path / "a.parquet") == "parquet"
    with pytest.raises(ramify.DataError, match=r"a.parquet:3: no field"):
        ramify.read(tmp_path / "a.parquet")
    data = ramify.read(tmp_path / "a.parquet", skip_bad=True)
    assert data.labels() == [["a", "b"], ["c"]]
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ramify.DataError, match="Parquet"):
        ramify.read(tmp_path / "b.parquet")


@pytest.mark.parametrize(("line", "reason"), [
    ("{not json", "not valid JSON"),
    ("[1, 2]", "expected a JSON object"),
    ('{"labels": ["a"]}', "no field 'text'"),
    ('{"text": 5, "labels": []}', "'text' must be a string"),
    ('{"text": "x", "labels": "a"}', "'labels' must be a list"),
    ('{"text": "x", "labels": [1.5]}', "neither a string nor an integer"),
    ('{"text": "x", "labels": [true]}', "neither a string nor an integer"),
    ('{"text": "x", "labels": [null]}', "neither a string nor an integer"),
    ('{"text": "x", "labels": [""]}', "a label is empty"),
    ('{"text": "x", "labels": ["a"], "weights": [1, 2]}', "2 weights for 1 labels"),
    ('{"text": "x", "labels": ["a"], "weights": [NaN]}', "NaN"),
    ('{"text": "x", "labels": ["a"], "weights": [-1]}', "not a finite number"),
    ('{"text": "x", "labels": ["a"], "weights": [1' + "0" * 400 + "]}", "not a finite number"),
    ('{"text": "x", "labels": ["a"], "id": [1]}', "'id'"),
    ("[" * 100_000, "not valid JSON"),
])  # fmt: skip
def test_bad_json_lines(tmp_path, line, reason):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "fine", "labels": ["a"]}}\n{line}\n{{"text": "too", "labels": []}}\n')
    with pytest.raises(ramify.DataError) as error:
        ramify.read(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert reason in str(error.value)
    data = ramify.read(path, skip_bad=True)
    assert len(data) == 2
    assert (data.n_skipped, data.skipped[0].line) == (1, 2)


@pytest.mark.parametrize(("name", "text", "line", "reason"), [
    ("a.tsv", "text\tlabels\nx\ta\ny\n", 3, "1 cells, but the header has 2"),
    ("a.tsv", "body\tlabels\tbody\nx\ta\tb\n", 1, "duplicate column names"),
    ("a.csv", 'text,labels\n"x"y,a\n', 2, "not valid CSV"),
    ("a.csv", "text,labels,weights\nx,a,heavy\n", 2, "not a number"),
    ("a.csv", "text,labels\nx,[1\n", 2, "not a valid JSON list"),
    ("a.csv", "text,labels\nx," + "[" * 100_000 + "\n", 2, "not a valid JSON list"),
    ("a.csv", "text,labels,weights\nx,a,[null]\n", 2, "not a number"),
    ("a.tsv", "x\t<http://a>\ny <http://b>\n", 2, "no tab"),
    ("a.tsv", "x\t<http://a>\ny\thttp://b\n", 2, "angle brackets"),
])  # fmt: skip
def test_bad_rows(tmp_path, name, text, line, reason):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ramify.DataError) as error:
        ramify.read(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert reason in str(error.value)


def test_encodings(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "fine", "labels": [1]}\n{"text": "größer", "labels": [1]}\n'.encode("latin-1"))
    with pytest.raises(ramify.DataError, match=r"a.jsonl:2: not utf-8: byte 0xf6 in column 13"):
        ramify.read(path)
    assert ramify.read(path, encoding="latin-1").texts[1] == "größer"
    assert len(ramify.read(path, skip_bad=True)) == 1
    with pytest.raises(ramify.DataError, match="unknown encoding 'klingon'"):
        ramify.read(path, encoding="klingon")
    path.write_bytes("\ufeff".encode() + b'{"text": "marked", "labels": [1]}\n')
    assert ramify.read(path).texts == ["marked"]
    path.write_bytes('{"text": "wide", "labels": [1]}\n'.encode("utf-16"))
    with pytest.raises(ramify.DataError, match="UTF-16"):
        ramify.read(path, format="jsonl")


def test_unreadable_files(tmp_path):
    with pytest.raises(ramify.DataError, match="no such file"):
        ramify.read(tmp_path / "none.jsonl")
    with pytest.raises(ramify.DataError, match="directory"):
        ramify.read(tmp_path)
    (tmp_path / "empty").write_text("")
    with pytest.raises(ramify.DataError, match="empty"):
        ramify.read(tmp_path / "empty")
    (tmp_path / "poem").write_text("roses are red\nviolets are blue\n")
    with pytest.raises(ramify.DataError, match="unknown format"):
        ramify.read(tmp_path / "poem")
    (tmp_path / "array.json").write_text('[{"text": "x"}]')
    with pytest.raises(ramify.DataError, match="one object per line"):
        ramify.read(tmp_path / "array.json")
    (tmp_path / "noise.gz").write_bytes(b"\x1f\x8bnoise")
    with pytest.raises(ramify.DataError, match=r"noise\.gz: the compressed file"):
        ramify.read(tmp_path / "noise.gz")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(JSONL.encode() * 500)[:-20])
    with pytest.raises(ramify.DataError, match="truncated"):
        ramify.read(tmp_path / "cut.jsonl.gz", format="jsonl")


def test_records_are_streamed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(JSONL + "{broken\n")
    records = iter_records(path)
    assert next(records).labels == ["animal", "fox"]  # the broken line has not been read yet
    assert next(records).id == 7
    with pytest.raises(ramify.DataError, match=":4: "):
        next(records)


def test_label_names(tmp_path):
    (tmp_path / "labels.txt").write_text("entity\nfox\nfox\n")
    names = read_label_names(tmp_path / "labels.txt")
    assert names == ["entity", "fox", "fox (2)"]
    (tmp_path / "odd.txt").write_bytes("\ufeffa\u2028b\nx\nx (3)\nx\n".encode())
    assert read_label_names(tmp_path / "odd.txt") == ["a\u2028b", "x", "x (3)", "x (3) (3)"]
    (tmp_path / "bad.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(ramify.DataError, match=r"bad\.txt:2: not utf-8"):
        read_label_names(tmp_path / "bad.txt")
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "labels": [2, 0]}\n')
    assert ramify.read(path, label_names=names).labels() == [["entity", "fox (2)"]]
    path.write_text('{"text": "x", "labels": [3]}\n')
    with pytest.raises(ramify.DataError, match=r":1: label 3"):
        ramify.read(path, label_names=names)
    table = tmp_path / "a.tsv"
    table.write_text("labels\ttext\n2,0\tx\n")  # cells are text
    assert ramify.read(table, label_names=names, label_sep=",").labels() == [["entity", "fox (2)"]]
    for wrong in ("3", "-1", "fox", "9" * 5000):
        table.write_text(f"labels\ttext\n{wrong}\tx\n")
        with pytest.raises(ramify.DataError, match=rf":2: label '{wrong}' is not an id of the 3"):
            ramify.read(table, label_names=names)


def test_npz(tmp_path):
    features = sparse.random(6, 9, 0.4, format="csr", random_state=0, dtype=np.float32)
    labels = sparse.csr_matrix(np.eye(6, 4, dtype=np.float32))
    sparse.save_npz(tmp_path / "X.trn.npz", features)
    sparse.save_npz(tmp_path / "Y.trn.npz", labels)
    data = ramify.read(tmp_path / "Y.trn.npz")
    assert (features != data.X).nnz == 0
    assert (labels != data.Y).nnz == 0
    named = ramify.Dataset(data.Y, ramify.read(tmp_path / "X.trn.npz", label_names=list("abcd")).label_names, X=data.X)
    ramify.write(named, tmp_path / "both.npz")
    assert list(ramify.read(tmp_path / "both.npz").label_names) == list("abcd")
    dense = ramify.Dataset(data.Y, data.label_names, X=features.toarray())
    ramify.write(dense, tmp_path / "dense.npz")
    assert np.array_equal(ramify.read(tmp_path / "dense.npz").X, features.toarray())
    sparse.save_npz(tmp_path / "X.new.npz", features)  # features to predict labels for
    alone = ramify.read(tmp_path / "X.new.npz")
    assert (features != alone.X).nnz == 0
    assert alone.Y.shape == (6, 0)
    sparse.save_npz(tmp_path / "Y.new.npz", labels)
    (tmp_path / "X.new.npz").unlink()
    with pytest.raises(ramify.DataError, match="no second file"):
        ramify.read(tmp_path / "Y.new.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(ramify.DataError, match="no arrays X and Y"):
        ramify.read(tmp_path / "other.npz")
    np.savez(tmp_path / "evil.npz", X_data=np.array([object()], dtype=object))
    with pytest.raises(ramify.DataError, match=r"not a readable \.npz"):
        ramify.read(tmp_path / "evil.npz")
    wrong = {f"{m}_{p}": getattr(features, p) for m in "XY" for p in ("data", "indices", "indptr", "shape")}
    wrong["X_indices"] = wrong["X_indices"] + 5
    np.savez(tmp_path / "wrong.npz", **wrong)
    with pytest.raises(ramify.DataError, match="damaged"):
        ramify.read(tmp_path / "wrong.npz")


def test_csv_reports_lines_of_the_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,labels\n"two\nlines",a\n\xff,b\nfine,c\nx,y,z\n')
    data = ramify.read(path, skip_bad=True)
    assert [bad.line for bad in data.skipped] == [4, 6]
    assert data.labels() == [["a"], ["c"]]


def test_lone_surrogates_round_trip(tmp_path):
    matrix, names = ramify.io.labels.encode_labels([["a"]])
    ramify.write(ramify.Dataset(matrix, names, texts=["\ud800 ä"]), tmp_path / "a.jsonl")
    assert ramify.read(tmp_path / "a.jsonl").texts == ["\ud800 ä"]


def test_damaged_npz_files_are_refused(tmp_path):
    """Files with random bytes changed are read or raise DataError."""
    import random

    matrix, names = ramify.io.labels.encode_labels([["a"], ["b", "c"]])
    ramify.write(ramify.Dataset(matrix, names, X=np.eye(2, 3, dtype=np.float32)), tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / "b.npz").write_bytes(damaged)
        with contextlib.suppress(ramify.DataError):
            ramify.read(tmp_path / "b.npz", format="npz")
    parts = {f"{m}_{p}": getattr(matrix, p) for m in "XY" for p in ("data", "indices", "indptr", "shape")}
    for change in (
        {"X_shape": np.array(3)},
        {"X_shape": np.array(["a", "b"])},
        {"X_indices": matrix.indices + 0.5},
        {"label_names": np.ones((3, 1))},
    ):
        np.savez(tmp_path / "c.npz", **{**parts, **change})
        with pytest.raises(ramify.DataError, match=r"c\.npz"):
            ramify.read(tmp_path / "c.npz")
    huge, names = ramify.io.labels.encode_labels([[2**70]])
    with pytest.raises(ramify.DataError, match="64 bits"):
        ramify.write(ramify.Dataset(huge, names, X=np.eye(1)), tmp_path / "d.npz")


def test_missing_header(tmp_path):
    for name, text in (("a.tsv", "foo bar\t1;2\nbaz\t3\n"), ("b.csv", "text;labels\nx;a\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ramify.DataError, match=":1: no column 'text' in the header"):
            ramify.read(tmp_path / name)
    (tmp_path / "c.csv").write_text('text,labels\n"unterminated,1\nfoo,2\nbar,3\n')
    with pytest.raises(ramify.DataError, match="3 bad lines skipped"):
        ramify.read(tmp_path / "c.csv", skip_bad=True)
    (tmp_path / "d.json").write_text('[{"text":"a","labels":[1]}]')
    with pytest.raises(ramify.DataError, match="one object per line"):
        ramify.read(tmp_path / "d.json")


def test_the_first_record_determines_the_text_field(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "labels": [1]}\n{"title": "b", "labels": [1]}\n')
    with pytest.raises(ramify.DataError, match=":2: no field 'text'"):
        ramify.read(path)
    assert ramify.read(path, skip_bad=True).texts == ["a"]
