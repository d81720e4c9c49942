"""Label catalogues: files, names by language, saved catalogues."""

from __future__ import annotations

import gzip
import lzma

import pytest

import ramify
from ramify.cli.main import main
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
    ("a.csv", 'uri,name\na,"b"c\n', "not valid CSV"),
    ("a.csv", "uri,name\na,\rb\n", "a.csv:3: expected 2 cells"),
    ("a.jsonl", '{"uri": ' + 100_000 * "[", "a.jsonl:1: invalid JSON"),
    ("a.jsonl", '{"uri": {"x": 1}, "name": "y"}', "a.jsonl:1: .* cannot be a label"),
    ("a.jsonl", '{"uri": "x", "synonyms": 7}', "synonyms of 'x' are int"),
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


def test_a_catalogue_of_other_labels(tmp_path):
    model = ramify.Popular(verbose=0)
    with pytest.warns(
        UserWarning, match="none of the labels: the model has labels such as 3, the catalogue such as 'x'"
    ):
        model.fit(["a", "b"], [[3], [4]], label_catalogue={"x": "name"})
    with pytest.warns(UserWarning, match="names none of the labels"):
        model.set_catalogue({"x": "name"})


def test_labels_that_are_integers_have_names_from_files(tmp_path):
    (tmp_path / "names.tsv").write_text("3\twhale\n4\tfox\n")
    model = ramify.Popular(verbose=0).fit(["a", "b"], [[3], [4]], label_catalogue=tmp_path / "names.tsv")
    assert model.predict_topk(["a"], 2, allow=["Whale"]).labels() == [[(3, pytest.approx(0.5))]]
    assert model.predict_topk(["a"], 2, deny=["whale"]).labels(names="en") == [[("fox", pytest.approx(0.5))]]


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


TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://ex.org/> .
ex:scheme a skos:ConceptScheme .
ex:1 a skos:Concept ;
    skos:prefLabel "Whale"@en, "Wal"@de, "Balaena" ;
    skos:altLabel "leviathan"@en, "cetacean"@en, "Walfisch"@de ;
    skos:hiddenLabel "wale" ;
    skos:notation "QL" ;
    skos:definition "Ein Säugetier."@de, "A mammal."@en ;
    skos:broader ex:2 .
ex:2 a skos:Concept ; skos:prefLabel "Tier"@de .
ex:3 a skos:Concept ; skos:altLabel "without a preferred name"@en .
"""


@pytest.mark.parametrize("suffix", [".ttl", ".rdf", ".xml", ".nt", ".ttl.gz", ".rdf.xz"])
def test_skos(tmp_path, suffix):
    rdflib = pytest.importorskip("rdflib")
    formats = {".ttl": "turtle", ".rdf": "xml", ".xml": "pretty-xml", ".nt": "nt"}
    name = tmp_path / f"v{suffix}"
    plain = suffix.removesuffix(".gz").removesuffix(".xz")
    data = rdflib.Graph().parse(data=TURTLE, format="turtle").serialize(format=formats[plain], encoding="utf-8")
    name.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(name.suffix, bytes)(data))
    catalogue = LabelCatalogue.read(name)
    assert list(catalogue) == ["http://ex.org/1", "http://ex.org/2"]
    whale = catalogue["http://ex.org/1"]
    assert whale.names == {"": "Balaena", "de": "Wal", "en": "Whale"}
    assert whale.synonyms == ("Walfisch", "cetacean", "leviathan", "wale")
    assert (whale.notation, whale.description) == ("QL", "Ein Säugetier.")
    assert catalogue.display_name("http://ex.org/2", "en") == "Tier"
    assert catalogue.languages() == ["de", "en"]
    assert catalogue.by_name["walfisch"] == ["http://ex.org/1"]


def test_the_first_name_of_a_skos_concept_is_in_the_language_of_the_vocabulary(tmp_path):
    pytest.importorskip("rdflib")
    english = "".join(f'ex:{i} a skos:Concept ; skos:prefLabel "name {i}"@en .\n' for i in range(2))
    prefixes = TURTLE[: TURTLE.index("ex:scheme")]
    both = 'ex:9 a skos:Concept ; skos:prefLabel "Wal"@de, "whale"@en .'
    (tmp_path / "v.ttl").write_text(prefixes + english + both)
    catalogue = LabelCatalogue.read(tmp_path / "v.ttl")
    assert catalogue.display_name("http://ex.org/9") == "whale"
    assert catalogue.display_name("http://ex.org/9", "de") == "Wal"
    assert list(catalogue) == [f"http://ex.org/{i}" for i in (0, 1, 9)]


def test_files_that_are_no_skos(tmp_path):
    pytest.importorskip("rdflib")
    for name, text, message in (
        ("a.ttl", "this is no turtle", "cannot be read as ttl"),
        ("a.rdf", "<rdf", "cannot be read as rdf"),
        ("b.ttl", "<http://ex.org/1> <http://ex.org/2> 3 .", "no concept with a skos:prefLabel"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ramify.DataError, match=message):
            LabelCatalogue.read(tmp_path / name)
    with pytest.raises(ramify.DataError, match="no such file"):
        LabelCatalogue.read(tmp_path / "missing.ttl")


def test_a_skos_file_in_the_shell(tmp_path, capsys):
    pytest.importorskip("rdflib")
    (tmp_path / "v.ttl").write_text(TURTLE)
    texts, labels = ["a whale", "an animal"] * 5, [["http://ex.org/1"], ["http://ex.org/2"]] * 5
    ramify.OneVsAll(verbose=0).fit(texts, labels).save(tmp_path / "m")
    assert main(["labels", str(tmp_path / "m"), "--set", str(tmp_path / "v.ttl")]) == 0
    assert "2 of 2 labels have a name" in capsys.readouterr().err
    assert main(["labels", str(tmp_path / "m"), "--find", "walfisch", "--language", "en"]) == 0
    assert "Whale" in capsys.readouterr().out
    model = ramify.load(tmp_path / "m")
    assert model.predict_topk(["a whale"], 1, allow=["Tier"]).labels(names="de")[0][0][0] == "Tier"
