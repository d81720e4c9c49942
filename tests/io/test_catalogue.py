"""Label catalogues: files, names by language, saved catalogues."""

from __future__ import annotations

import gzip

import pytest

import ramify
from ramify.io.catalogue import LabelCatalogue, LabelEntry
from ramify.io.store import Store, StoreWriter

FILES = {
    "a.tsv": "<http://ex.org/1>\tWhale\tQL737\n<http://ex.org/2>\tHen\n",
    "a.csv": 'uri,notation,label_en,label_de,description,synonyms\n'
             'http://ex.org/1,QL737,Whale,Wal,"A large, marine mammal",cetacean; big fish\n'
             "http://ex.org/2,,Hen,,,\n",
    "a.jsonl": '{"uri": "http://ex.org/1", "label_en": "Whale", "label_de": "Wal", "notation": "QL737"}\n'
               '{"label": "http://ex.org/2", "name": "Hen"}\n',
}  # fmt: skip


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("compressed", [False, True])
def test_files(name, compressed, tmp_path):
    path = tmp_path / (name + ".gz" * compressed)
    path.write_bytes(gzip.compress(FILES[name].encode()) if compressed else FILES[name].encode())
    catalogue = LabelCatalogue.read(path)
    assert list(catalogue) == ["http://ex.org/1", "http://ex.org/2"]
    assert catalogue["http://ex.org/1"].notation == "QL737"
    assert catalogue.display_name("http://ex.org/1", "en") == "Whale"
    assert catalogue.display_name("http://ex.org/2", "de") == "Hen"  # no German name: another one
    assert catalogue.display_name("http://ex.org/3") == "http://ex.org/3"
    if name == "a.csv":
        assert catalogue["http://ex.org/1"].description == "A large, marine mammal"
        assert catalogue["http://ex.org/1"].synonyms == ("cetacean", "big fish")
        assert catalogue.languages() == ["en", "de"]
        assert catalogue.by_name["big fish"] == ["http://ex.org/1"]
    if name != "a.tsv":
        assert catalogue.display_name("http://ex.org/1", "de") == "Wal"


@pytest.mark.parametrize(("name", "text", "message"), [
    ("a.tsv", "only\n", "a.tsv:1: expected a label, a tab"),
    ("a.tsv", "x\ta\nx\tb\n", "a.tsv:2: the label 'x' occurs twice"),
    ("a.csv", "name,notation\na,b\n", "needs one of the columns"),
    ("a.csv", "uri,label_en\na\n", "expected 2 cells"),
    ("a.csv", "uri,color\na,b\n", "unknown field 'color'"),
    ("a.jsonl", "{", "invalid JSON"),
    ("a.jsonl", '{"name": "x"}', "one of the keys"),
    ("a.jsonl", '{"uri": "x", "name": 5}', "no text"),
])  # fmt: skip
def test_bad_files_are_refused_with_the_line(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ramify.DataError, match=message):
        LabelCatalogue.read(tmp_path / name)


def test_mappings_and_labels_that_are_no_texts():
    catalogue = LabelCatalogue.of({7: "seven", ("a", 1): {"names": {"en": "pair"}}, "8": "eight"})
    assert catalogue.display_name(7) == "seven"
    assert catalogue.display_name(("a", 1), "en") == "pair"
    assert catalogue.display_name(8) == "eight"  # files have texts
    assert LabelCatalogue.of(catalogue) is catalogue
    with pytest.raises(ramify.DataError, match="a mapping or the path"):
        LabelCatalogue.of(5)
    with pytest.raises(ramify.DataError, match="expected a name or a dict"):
        LabelCatalogue({"x": 5})
    with pytest.raises(KeyError):
        catalogue["nine"]


def test_saved_and_damaged(tmp_path):
    catalogue = LabelCatalogue({7: "seven", ("a", 1): {"label_de": "Paar"}, "\ud800": LabelEntry({"": "odd"})})
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("test", {}, {"catalogue": catalogue.save_to(writer, "c_")})
    store = Store(tmp_path / "m")
    assert LabelCatalogue.load_from(store, store.state["catalogue"], "c_").entries == catalogue.entries
    with pytest.raises(ramify.ModelFormatError, match="catalogue"):
        LabelCatalogue.load_from(store, None, "c_")
    file = tmp_path / "m" / "c_text.npy"
    file.write_bytes(file.read_bytes()[:-5] + b"xxxxx")
    with pytest.raises(ramify.ModelFormatError, match="damaged"):
        len(LabelCatalogue.load_from(Store(tmp_path / "m"), {}, "c_"))


def test_skos(tmp_path):
    pytest.importorskip("rdflib")
    (tmp_path / "v.ttl").write_text(
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
        '<http://ex.org/1> skos:prefLabel "Whale"@en, "Wal"@de ; skos:altLabel "cetacean"@en ; skos:notation "QL" .\n'
    )
    catalogue = LabelCatalogue.read(tmp_path / "v.ttl")
    assert catalogue.display_name("http://ex.org/1", "de") == "Wal"
    assert catalogue["http://ex.org/1"].synonyms == ("cetacean",)
    assert catalogue["http://ex.org/1"].notation == "QL"
