"""Writing of data sets, and reading them back; Annif's files; ids and fields as they are."""

from __future__ import annotations

import json

import pytest

import ramify
from ramify.io.formats import detect_format

ROWS = [
    {"id": 7, "text": 'a "quoted", text', "labels": ["x", "y z"]},
    {"id": 8, "text": "two\nlines\tand a tab", "labels": []},
    {"id": 9, "text": "[odd", "labels": ["a;b", "[c", " d"]},
]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return ramify.read(path)


def test_ids_keep_their_type(data, tmp_path):
    assert data.ids == [7, 8, 9]
    (tmp_path / "zero.jsonl").write_text('{"id": 0, "text": "a"}\n')
    assert ramify.read(tmp_path / "zero.jsonl").ids == [0]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet", ".csv.gz"])
def test_written_data_is_read_back(data, suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    ramify.write(data, path)
    back = ramify.read(path)
    one_line = "two lines and a tab" if suffix == ".tsv" else ROWS[1]["text"]
    assert back.texts == [ROWS[0]["text"], one_line, ROWS[2]["text"]]
    assert back.labels() == data.labels()
    assert [str(x) for x in back.ids] == ["7", "8", "9"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_fields_weights_and_integer_labels(suffix, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"title": "a", "body": "b", "labels": [3, 1], "weights": [0.5, 2]}\n')
    data = ramify.read(tmp_path / "in.jsonl")
    ramify.write(data, tmp_path / f"out{suffix}")
    back = ramify.read(tmp_path / f"out{suffix}")
    assert back.texts == [{"title": "a", "body": "b"}]
    assert back.labels() == [[1, 3]]
    assert back.relevance.toarray().tolist() == [[2.0, 0.5]]


def test_annif(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("no subjects yet\t\nred fox\t<http://x/1> <http://x/2>\nhen\t<http://x/1>\n")
    assert detect_format(path) == "annif"  # though its first line has no subject
    data = ramify.read(path)
    assert data.labels() == [[], ["http://x/1", "http://x/2"], ["http://x/1"]]
    ramify.write(data, tmp_path / "out.annif")
    assert (tmp_path / "out.annif").read_text() == path.read_text()
    ramify.write(data, tmp_path / "other.tsv", format="annif")
    assert (tmp_path / "other.tsv").read_text() == path.read_text()
    path.write_text("text\tlabels\nred fox\t<b>;c\n")
    assert detect_format(path) == "tsv"
    (tmp_path / "in.jsonl").write_text('{"text": "a", "labels": ["b c"]}\n')
    data = ramify.read(tmp_path / "in.jsonl")
    with pytest.raises(ramify.DataError, match="labels without spaces"):
        ramify.write(data, tmp_path / "out.annif")


def test_annif_csv(tmp_path):
    path = tmp_path / "corpus.csv"
    path.write_text('text,subject_uris\n"red, fox",<http://x/1> <http://x/2>\nhen,http://x/1\n')
    data = ramify.read(path)
    assert data.texts == ["red, fox", "hen"]
    assert data.labels() == [["http://x/1", "http://x/2"], ["http://x/1"]]


def test_label_field(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"title": "t", "subjects": ["x"]}\n')
    (tmp_path / "a.csv").write_text("title,subjects\nt,x\n")
    for name in ("a.jsonl", "a.csv"):
        data = ramify.read(tmp_path / name, label_field="subjects")
        assert data.labels() == [["x"]]
        assert data.texts == [{"title": "t"}]
    with pytest.raises(ramify.DataError, match="no column"):
        ramify.read(tmp_path / "a.csv", label_field="topics")


def test_what_cannot_be_written(data, tmp_path):
    with pytest.raises(ramify.DataError, match="the suffix names no format"):
        ramify.write(data, tmp_path / "out.xlsx")
    (tmp_path / "x.txt").write_text("1 2 1\n0 0:1\n")
    features = ramify.read(tmp_path / "x.txt")
    for suffix in (".csv", ".parquet", ".annif"):
        with pytest.raises(ramify.DataError, match="feature vectors cannot be written"):
            ramify.write(features, tmp_path / f"out{suffix}")
