"""Training by tasks gives the model of one process, bit for bit, for any engine and any number of tasks."""

from __future__ import annotations

import numpy as np
import pytest
from distributed.corpus import digest, samples, write_files
from scipy import sparse

import ramify

TREE = ramify.TreeConfig(branching=8, max_leaf_size=10, min_leaf_size=4)


def small(**params):
    """A model of three levels whose negatives are sampled."""
    return ramify.XRLinear(**{"verbose": 0, "tree": TREE.clone(), "beam_size": 6, "matcher_kept": 2, **params})


def train_both(make, rows, directory, **options):
    """Digests of the model of one process and of the model of tasks."""
    one = make().fit([row["text"] for row in rows], [row["labels"] for row in rows])
    directory.mkdir(exist_ok=True)
    one.save(directory / "one")
    many = make().fit_files(write_files(directory / "data", rows, (1, 40)), work_dir=directory / "work", **options)
    many.save(directory / "many")
    return digest(directory / "one"), digest(directory / "many")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Directory, pattern of the files, and the digest of the model that one process trains."""
    directory, rows = tmp_path_factory.mktemp("trained"), samples()
    model = small().fit([row["text"] for row in rows], [row["labels"] for row in rows])
    assert model.trees_[0].tree.depth == 3
    model.save(directory / "one")
    return directory, write_files(directory / "data", rows), digest(directory / "one")


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("process", {"n_tasks": 1, "rows_per_block": 10**6}),
        ("process", {"n_tasks": 6, "rows_per_block": 90, "threads": 2}),
        ("pool", {"n_tasks": 3, "rows_per_block": 200, "workers": 2}),
    ],
)
def test_the_model_is_that_of_one_process(trained, tmp_path, engine, options):
    _, pattern, expected = trained
    model = small()
    run = ramify.fit_files(model, pattern, engine=engine, work_dir=tmp_path / "work", **options)
    model.save(tmp_path / "model")
    assert digest(tmp_path / "model") == expected
    assert run.counts["run"] == len(run.log) > 30
    assert all(entry["peak"] > 0 and not entry["error"] for entry in run.log)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ramify.XRLinear.pecos(verbose=0, beam_size=4, n_trees=2, seed=3),
        lambda: small(
            n_trees=2,
            label_representation=("pii", "pifa"),
            features=ramify.Tfidf(ngram_range=(1, 2), min_df=2, max_df=0.9, max_features=150),
            negatives="matcher",
            matcher_fraction=1.0,
            tree=ramify.TreeConfig(branching=3, max_leaf_size=4, min_leaf_size=2, max_depth=None, n_terms=None),
        ),
        lambda: small(n_trees=2, label_representation=("spectral", "pifa")),
        lambda: small(
            label_representation="spectral",
            tree=ramify.TreeConfig(branching=3, max_leaf_size=4, min_leaf_size=2, method="kmeans", n_terms=5),
        ),
        lambda: ramify.XRLinear(verbose=0),  # few labels: no tree
        lambda: ramify.XRLinear(verbose=0, features=ramify.features.text_features(long_texts=1)),
        lambda: ramify.XRLinear.dismec(verbose=0, features=ramify.Tfidf(analyzer="char_wb", ngram_range=(2, 3))),
    ],
)
def test_other_models(make, tmp_path):
    one, many = train_both(make, samples(130, 60), tmp_path, engine="process", n_tasks=3, rows_per_block=50)
    assert one == many


def test_text_fields_and_labels_of_several_types(tmp_path):
    rows = samples(90, 30)
    for i, row in enumerate(rows):
        row["labels"] = [len(label) if label.endswith("1") else label for label in row["labels"]]
        if i >= 41:  # the last file has other fields
            row["title"], row["note"] = row["text"][:20], row.pop("text")
    # As `ramify.read` has it: the fields in the order in which they occur, a plain text after them.
    documents = [{name: row.get(name, "") for name in ("title", "note", "text")} for row in rows]
    small().fit(documents, [row["labels"] for row in rows]).save(tmp_path / "one")
    pattern = write_files(tmp_path / "data", rows, (1, 40))
    options = {"engine": "process", "n_tasks": 2, "rows_per_block": 30}
    many = small().fit_files(pattern, work_dir=tmp_path / "work", **options)
    many.save(tmp_path / "many")
    assert many.input_kind_ == "fields"
    assert digest(tmp_path / "one") == digest(tmp_path / "many")


@pytest.mark.parametrize("norm", ["none", "l2", "max"])
def test_weights_of_labels(norm, tmp_path):
    rows = samples(130, 60)
    unweighted = train_both(small, rows, tmp_path / "unweighted", engine="process", n_tasks=2, rows_per_block=50)
    for i, row in enumerate(rows):
        if i > 80 and i % 3:  # in the last file only; one label is repeated
            row["labels"] = row["labels"] + row["labels"][:1]
            row["weights"] = [0.25 + (i + j) % 4 for j in range(len(row["labels"]))]
    pattern = write_files(tmp_path / "data", rows, (1, 40))
    write_files(tmp_path / "whole", rows, ())
    data = ramify.read(tmp_path / "whole" / "part-0.jsonl")
    one = small(relevance_norm=norm).fit(data.texts, data.labels(), relevance=data.encoded_relevance())
    one.save(tmp_path / "one")
    many = small(relevance_norm=norm)
    ramify.fit_files(many, pattern, work_dir=tmp_path / "work", engine="process", n_tasks=2, rows_per_block=50)
    many.save(tmp_path / "many")
    assert digest(tmp_path / "many") == digest(tmp_path / "one")
    assert unweighted[0] == unweighted[1] != digest(tmp_path / "one")


def test_sparse_features(tmp_path):
    random = np.random.default_rng(0)
    X = sparse.random(150, 80, 0.1, "csr", np.float32, random)
    Y = sparse.csr_matrix((random.random((150, 40)) < 0.06).astype(np.float32))
    names = ramify.LabelVocabulary(range(40))
    paths = []
    for a, b in ((0, 70), (70, 150)):
        paths.append(tmp_path / f"{a}.txt")
        ramify.write(ramify.Dataset(Y[a:b], names, X=X[a:b]), paths[-1])
    data = [ramify.read(path) for path in paths]
    X = sparse.vstack([part.X for part in data], format="csr")
    small().fit(X, sparse.vstack([part.Y for part in data], format="csr")).save(tmp_path / "one")
    small().fit_files(paths, work_dir=tmp_path / "work", engine="process", n_tasks=3).save(tmp_path / "many")
    assert digest(tmp_path / "one") == digest(tmp_path / "many")


def test_small_data_are_divided_into_few_tasks(monkeypatch, trained, tmp_path):
    _, pattern, expected = trained
    monkeypatch.undo()
    model = small()
    run = ramify.fit_files(model, pattern, engine="process", work_dir=tmp_path / "work", n_tasks=50)
    model.save(tmp_path / "model")
    assert digest(tmp_path / "model") == expected
    assert len([entry for entry in run.log if entry["function"] == "level_tasks:fit_group"]) == 3
    assert all(entry["written"] > 0 for entry in run.log if entry["function"] == "level_tasks:fit_group")
    assert sum(entry["read"] for entry in run.log) > 0


def test_what_cannot_be_done_is_refused(tmp_path):
    rows = samples(20, 8)
    pattern = write_files(tmp_path / "data", rows, (10,))
    options = {"work_dir": tmp_path / "work", "engine": "process"}
    with pytest.raises(TypeError, match="label_features is an option of fit"):
        small().fit_files(pattern, label_features=np.ones((8, 2)), **options)
    dense = ramify.Dataset(sparse.eye(3, format="csr"), ramify.LabelVocabulary(range(3)), X=np.ones((3, 2), np.float32))
    ramify.write(dense, tmp_path / "dense.npz")
    with pytest.raises(ramify.DataError, match=r"dense\.npz: its features are dense"):
        small().fit_files(tmp_path / "dense.npz", **options)
    assert not (tmp_path / "work" / "log.jsonl").exists()
    with pytest.raises(ValueError, match="functions of Tfidf"):
        small(features=ramify.Tfidf(tokenizer=str.split)).fit_files(pattern, **options)
    with pytest.raises(TypeError, match="XRLinear"):
        ramify.fit_files(ramify.Popular(), pattern, **options)
    with pytest.raises(TypeError, match="'colour'"):
        small().fit_files(pattern, colour="red", **options)
    with pytest.raises(ramify.DataError, match="no such file"):
        small().fit_files(str(tmp_path / "nothing-*"), **options)
    with pytest.raises(ValueError, match="engine must be"):
        small().fit_files(pattern, **{**options, "engine": "steam"})
    (tmp_path / "data" / "part-9.jsonl").write_text('{"text": "a", "labels": "b"}\n')
    with pytest.raises(ramify.DataError, match=r"part-9\.jsonl:1: 'labels' must be a list"):
        small().fit_files(pattern, **options)
