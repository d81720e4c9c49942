"""XR-Transformer and X-Transformer: with a tiny BERT, with word embeddings and with the real MiniLM."""

from __future__ import annotations

import json

import numpy as np
import pytest
from neural import Killed, texts_and_labels
from scipy import sparse

import ramify
from ramify import LabelTree, TrainingConfig, TreeConfig
from ramify.nn.learner import Learner

torch = pytest.importorskip("torch")

TREE = TreeConfig(method="balanced-2means", branching=2, max_leaf_size=3, max_depth=None)
TRAINING = TrainingConfig(epochs=10, batch_size=16, min_steps=80, learning_rate=0.02, validation_size=0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))


def small(cls, encoder, **options):
    # On one thread: several would only wait for each other, as the matrices of the tiny BERT are so small.
    return cls(encoder=encoder, matcher_tree=TREE, training=TRAINING, verbose=0, threads=1, **options)


def precision(model, test):
    return ramify.evaluate(model.predict_topk(test[0], 3), test[1])["P@1"]


@pytest.mark.parametrize("cls", [ramify.XRTransformer, ramify.XTransformer])
@pytest.mark.parametrize("frozen", [True, False])
def test_learns_and_a_saved_model_needs_no_encoder_directory(cls, tiny, tmp_path, frozen):
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    model = small(cls, ramify.TransformerEncoder(tiny, frozen=frozen, learning_rate=0.005)).fit(*train)
    assert precision(model, test) > 90
    model.save(tmp_path / "model")
    found = model.predict_topk(test[0], 3)
    manifest = (tmp_path / "model" / "manifest.json").read_text()
    (tmp_path / "model" / "manifest.json").write_text(manifest.replace(tiny, "/nowhere"))
    again = ramify.load(tmp_path / "model").predict_topk(test[0], 3)
    assert np.array_equal(again.ids, found.ids)
    assert again.scores == pytest.approx(found.scores, abs=1e-5)
    weights = next((tmp_path / "model").glob("*word_embeddings*"))
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(ramify.ModelFormatError):
        ramify.load(tmp_path / "model")


def test_fine_tuning_improves_the_embeddings(tiny):
    """If the ranker sees no words, only what the encoder has learned can tell labels apart."""
    train, test = texts_and_labels(n=200), texts_and_labels(seed=1)
    no_words = ramify.Tfidf(min_df=150)
    encoders = {frozen: ramify.TransformerEncoder(tiny, frozen=frozen, learning_rate=0.005) for frozen in (True, False)}
    found = {}
    for frozen, encoder in encoders.items():
        filled = [[f"the {text}" for text in part] for part in (train[0], test[0])]
        model = small(ramify.XRTransformer, encoder, features=no_words).fit(filled[0], train[1])
        found[frozen] = precision(model, (filled[1], test[1]))
    assert found[False] > found[True] + 10


def test_levels_go_from_coarse_to_fine_and_negatives_come_from_both(tiny, monkeypatch):
    seen = []
    TreeLevel = ramify.models.xrtransformer.TreeLevel

    def spy(M, Y, weights, children):
        assert np.array_equal(Y.toarray(), weights.toarray() > 0)  # an indicator with the pattern of the weights
        seen.append((M.copy(), weights.copy(), children))
        return TreeLevel(M, Y, weights, children)

    monkeypatch.setattr("ramify.models.xrtransformer.TreeLevel", spy)
    train = texts_and_labels()
    small(ramify.XRTransformer, ramify.BagEncoder(dim=16), matcher_topk=2).fit(*train)
    assert [M.shape[1] for M, _, _ in seen] == [1, 2, 4]
    assert [Y.shape[1] for _, Y, _ in seen] == [2, 4, 12]
    assert seen[0][1].max() == 2  # a node with two labels of a sample has twice the weight
    for M, Y, children in seen[1:]:
        above = np.repeat(np.arange(len(children) - 1), np.diff(children))
        true = np.zeros(M.shape)
        np.add.at(true, (slice(None), above), Y.toarray())
        assert np.all(M.toarray()[true > 0] > 0)  # no positive is left out
        assert (M.toarray()[true == 0] > 0).any()  # matcher-aware: nodes that the level above proposes
    seen.clear()
    small(ramify.XRTransformer, ramify.BagEncoder(dim=16), max_match_clusters=4, cost_sensitive=False).fit(*train)
    assert [Y.shape[1] for _, Y, _ in seen] == [2, 4]
    assert seen[0][1].max() == 1
    seen.clear()
    small(ramify.XRTransformer, ramify.BagEncoder(dim=16), min_match_clusters=3).fit(*train)
    assert [(M.shape[1], Y.shape[1]) for M, Y, _ in seen] == [
        (1, 4),
        (4, 12),
    ]  # the first level is trained on all of its nodes
    seen.clear()
    small(ramify.XRTransformer, ramify.BagEncoder(dim=16), min_match_clusters=1000).fit(*train)
    assert [(M.shape[1], Y.shape[1]) for M, Y, _ in seen] == [(1, 12)]
    seen.clear()
    small(ramify.XTransformer, ramify.BagEncoder(dim=16)).fit(*train)
    assert len(seen) == 1


def test_a_path_names_a_transformer(tiny):
    model = ramify.XRTransformer(encoder=tiny)
    assert isinstance(model.encoder, ramify.TransformerEncoder)
    assert model.encoder.model == tiny
    assert ramify.XRTransformer().set_params(encoder=tiny).encoder.model == tiny
    with pytest.raises(ValueError, match="encoder must be"):
        ramify.XRTransformer(encoder=3)


def test_a_killed_training_resumes_between_and_within_levels(tiny, tmp_path, monkeypatch):
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    training = TrainingConfig(max_samples=400, batch_size=16, learning_rate=0.02, validation_size=0)

    def model(directory):
        encoder = ramify.TransformerEncoder(tiny, learning_rate=0.005)
        model = small(ramify.XRTransformer, encoder, checkpoint_dir=directory)
        return model.set_params(training=training)

    whole = model(None).fit(*train).predict_topk(test[0], 3)
    directory, n_steps = str(tmp_path / "checkpoints"), [0]
    step = Learner.step

    def fails(self, rows, number, factor):
        n_steps[0] += 1
        if n_steps[0] in (17, 40):  # in the second quarter of the first level, and in the second level
            raise Killed
        return step(self, rows, number, factor)

    monkeypatch.setattr(Learner, "step", fails)
    for _ in range(2):
        with pytest.raises(Killed):
            model(directory).fit(*train)
    again = model(directory).fit(*train).predict_topk(test[0], 3)
    assert n_steps[0] < 2 * 3 * 28
    assert np.array_equal(again.ids, whole.ids)
    assert np.array_equal(again.scores, whole.scores)
    assert not list((tmp_path / "checkpoints").iterdir())


# ---- the ranker ----


BAG = TrainingConfig(epochs=2, batch_size=16, min_steps=20, learning_rate=0.02, validation_size=0)


def bag_model(cls=ramify.XRTransformer, **options):
    return cls(encoder=ramify.BagEncoder(dim=16), matcher_tree=TREE, training=BAG, verbose=0, **options)


def assert_same(a, b):
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.scores, b.scores)


@pytest.mark.parametrize("cls", [ramify.XRTransformer, ramify.XTransformer])
def test_the_ranker_is_a_parameter(cls, tmp_path):
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    ranker = ramify.XRLinear(n_trees=2, tree=TREE, score_transform="l3-hinge")
    model = bag_model(cls, ranker=ranker, reuse_tree=False, seed=3).fit(*train)
    assert precision(model, test) > 90
    assert len(model.trees_) == 2
    assert model.ranker is ranker
    assert not hasattr(ranker, "trees_")  # the parameter stays unfitted
    assert {tree.transforms[-1].name for tree in model.trees_} == {"l3-hinge"}
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert opened.ranker.n_trees == 2
    assert opened.to_dict() == model.to_dict()
    assert_same(opened.predict_topk(test[0], 5), model.predict_topk(test[0], 5))
    assert opened.export_tree(1) == model.export_tree(1)
    assert model.clone().ranker.to_dict() == ranker.to_dict()


def test_parameters_of_the_ranker():
    model = ramify.XRTransformer().set_params(ranker__beam_size=7, ranker__tree__max_leaf_size=9)
    assert (model.ranker.beam_size, model.ranker.tree.max_leaf_size) == (7, 9)
    assert model.get_params()["ranker__tree__max_leaf_size"] == 9
    assert ramify.XRTransformer().ranker.beam_size == 50  # the default ranker is not shared
    assert ramify.XRTransformer.from_dict(model.to_dict()).ranker.tree.max_leaf_size == 9
    with pytest.raises(ValueError, match="ranker must be XRLinear"):
        ramify.XRTransformer(ranker=ramify.OneVsAll())
    with pytest.raises(ValueError, match="no parameter 'beam_size'"):
        ramify.XRTransformer().set_params(beam_size=3)
    with pytest.raises(ValueError, match="beam_size must be at least 1"):
        model.set_params(ranker__beam_size=0)
    assert model.ranker.beam_size == 7


def test_the_beam_size_of_the_ranker_after_fit(tmp_path):
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    model = bag_model(ranker=ramify.XRLinear(tree=TREE, beam_size=50)).fit(*train)
    full = model.predict_topk(test[0], 2)
    narrow = model.set_params(ranker__beam_size=1).predict_topk(test[0], 2)
    assert not np.array_equal(narrow.ids, full.ids)
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert_same(opened.predict_topk(test[0], 2), narrow)
    assert_same(opened.set_params(ranker__beam_size=50).predict_topk(test[0], 2), full)
    assert_same(model.set_params(ranker__beam_size=3).set_params(ranker__beam_size=50).predict_topk(test[0], 2), full)


@pytest.mark.parametrize("n_trees", [1, 2])
def test_predict_selected_scores_exactly(n_trees):
    """Scores of selected labels are those of a search with a full beam."""
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    model = bag_model(ranker=ramify.XRLinear(tree=TREE, n_trees=n_trees, beam_size=10**6)).fit(*train)
    ranking = model.predict_topk(test[0], 12).to_csr()
    selected = sparse.csr_matrix(np.random.default_rng(0).random(ranking.shape) < 0.3)
    scores = model.predict_selected(test[0], selected)
    assert np.array_equal(scores.indptr, selected.indptr)
    assert np.array_equal(scores.indices, selected.indices)
    rows, columns = selected.nonzero()
    assert np.allclose(scores.data, np.asarray(ranking[rows, columns]).ravel(), atol=1e-6)
    with pytest.raises(ramify.DataError, match="expected 100 × 12"):
        model.predict_selected(test[0], selected[:, :5])
    with pytest.raises(ramify.NotFittedError):
        bag_model().predict_selected(test[0], selected)


def test_fit_passes_tree_and_relevance_to_the_ranker():
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    labels = sorted({label for row in train[1] for label in row})
    paths = {label: [str(i % 3)] for i, label in enumerate(labels)}
    model = bag_model().fit(*train, tree=paths)
    assert model.trees_[0].tree.widths == [3, 12]
    assert precision(model, test) > 90
    given = LabelTree.from_paths([(i % 4,) for i in range(12)])
    assert bag_model(reuse_tree=True).fit(*train, tree=given).trees_[0].tree.widths == [4, 12]
    with pytest.raises(ramify.DataError, match="5 labels, y has 12"):
        bag_model().fit(*train, tree=LabelTree.flat(5))

    Y = sparse.csr_matrix(np.array([[float(label in row) for label in labels] for row in train[1]], np.float32))
    R = Y.copy()
    R.data = np.where(R.indices == 0, 0.01, 1.0).astype(np.float32)  # the first label has little weight
    plain, weighted = (bag_model().fit(train[0], Y, relevance=relevance) for relevance in (None, R))
    samples = np.flatnonzero(Y.toarray()[:, 0])
    only_first = sparse.csr_matrix(np.eye(1, 12).repeat(len(samples), axis=0))
    texts = [train[0][i] for i in samples]
    before, after = (m.predict_selected(texts, only_first).data.mean() for m in (plain, weighted))
    assert after < before
    with pytest.raises(ramify.DataError, match="exactly where"):
        bag_model().fit(train[0], Y, relevance=R[:, ::-1])
    everything = sparse.csr_matrix(np.ones((len(train[0]), 3), np.float32))
    model = bag_model(ranker=ramify.XRLinear(negatives="teacher"))
    without = model.fit(*train, tree=paths).predict_topk(test[0], 3)
    with_all = model.fit(*train, tree=paths, negatives=[None, everything]).predict_topk(test[0], 3)
    assert not np.array_equal(with_all.scores, without.scores)
    two_groups = np.eye(2, dtype=np.float32)[np.arange(12) // 6] * 50
    tree = TreeConfig(method="balanced-2means", branching=2, max_leaf_size=6, max_depth=None)
    grouped = bag_model(ranker=ramify.XRLinear(tree=tree)).fit(*train, label_features=two_groups)
    leaves = {tuple(sorted(node["labels"])) for node in grouped.export_tree()["children"]}
    assert leaves == {tuple(sorted(labels[:6])), tuple(sorted(labels[6:]))}


def test_reuse_tree():
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    model = bag_model(reuse_tree=True).fit(*train)
    assert model.trees_[0].tree.widths == [2, 4, 12]  # the matcher tree, not the ranker's own
    assert precision(model, test) > 90
    assert bag_model().fit(*train).trees_[0].tree.widths == [12]


def test_export_tree_names_the_labels(tmp_path):
    train = texts_and_labels()
    model = bag_model(ranker=ramify.XRLinear(tree=TREE)).fit(*train)
    model.save(tmp_path / "m")
    for own in (model, ramify.load(tmp_path / "m")):
        exported = json.loads(json.dumps(own.export_tree(n_representatives=2)))
        assert exported["n_labels"] == 12
        assert len(exported["children"]) == 2
        stack, found = [exported], []
        while stack:
            node = stack.pop()
            stack += node.get("children", [])
            found += node.get("labels", [])
        assert sorted(found) == sorted(model.labels_)


# ---- real data, command line ----


def test_minilm_beside_tfidf(minilm, pydoc):
    """Frozen embeddings of a real model beside TF-IDF find more than TF-IDF alone, on real docstrings."""
    parts = [pydoc.split(name) for name in ("train", "test")]
    train, test = ((part.inputs[:1200], part.labels()[:1200]) for part in parts)
    alone = ramify.evaluate(ramify.XRLinear(verbose=0).fit(*train).predict_topk(test[0], 10), test[1])
    encoder = ramify.TransformerEncoder(minilm, frozen=True, max_length=24)
    beside = ramify.XRTransformer(encoder=encoder, verbose=0).fit(*train)
    assert ramify.evaluate(beside.predict_topk(test[0], 10), test[1])["R@10"] > alone["R@10"]


def test_command_line(tiny, tmp_path, capsys):
    from ramify.cli.main import main

    texts, labels = texts_and_labels()
    lines = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    data, model = str(tmp_path / "train.jsonl"), str(tmp_path / "model")
    settings = [f"encoder={tiny}", "encoder.frozen=true", "encoder.max_length=16", "ranker.tree.max_leaf_size=4"]
    options = [option for setting in settings for option in ("--set", setting)]
    assert main(["train", "xr-transformer", data, "--out", model, "--quiet", *options]) == 0
    assert main(["inspect", model]) == 0
    values = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.count(" "))
    assert values["encoder.frozen"].strip() == "true"
    assert values["encoder.model"].strip().strip('"').startswith("/")
    assert values["ranker.tree.max_leaf_size"].strip() == "4"
    opened = ramify.load(model)
    assert opened.ranker.tree.max_leaf_size == 4
    leaves = opened.export_tree()["children"]
    assert max(node["n_labels"] for node in leaves) <= 4 < 12
    assert main(["evaluate", model, data]) == 0
    together = str(tmp_path / "together")
    keys = '["popular", {kind = "xr-linear", params = {n_trees = 2}}]'
    assert main(["train", "ensemble", data, "--out", together, "--quiet", "--set", f"models={keys}"]) == 0
    assert main(["inspect", together]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 160
