"""XR-Linear and one-vs-all, beyond the contract of all models (tests/test_contract.py)."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.index.kmeans import TreeConfig
from ramify.index.tree import LabelTree
from ramify.rank.linear import LinearConfig

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"]


@pytest.fixture(scope="module")
def zoo():
    """Texts that contain their labels, among noise."""
    random = np.random.default_rng(0)
    labels = [[WORDS[i] for i in np.unique(random.integers(0, 12, 2))] for _ in range(400)]
    texts = [" ".join([*row, *random.choice(["runs", "sleeps", "eats", "sings"], 3)]) for row in labels]
    return texts, labels


SMALL = {"tree": TreeConfig(method="balanced-2means", max_depth=None, branching=2, max_leaf_size=2)}
PRESETS = {
    "default": lambda **o: ramify.XRLinear(**{**SMALL, **o}),
    "pecos": ramify.XRLinear.pecos,
    "parabel": ramify.XRLinear.parabel,
    "bonsai": ramify.XRLinear.bonsai,
    "dismec": ramify.XRLinear.dismec,
}


def precision(model, texts, labels, k=1):
    return ramify.evaluate(model.predict_topk(texts, k=max(k, 2)), labels)[f"P@{k}"]


@pytest.mark.parametrize("preset", list(PRESETS))
def test_presets_learn_save_and_load(preset, zoo, tmp_path):
    texts, labels = zoo
    model = PRESETS[preset]().fit(texts[:300], labels[:300])
    assert precision(model, texts[300:], labels[300:]) > 95
    model.save(tmp_path / "m")
    again = ramify.load(tmp_path / "m")
    a, b = (m.predict_topk(texts[300:], k=5) for m in (model, again))
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.scores, b.scores)
    assert again.to_dict() == model.to_dict()
    if preset != "dismec":
        assert np.all((a.scores >= 0) & (a.scores <= 1))


def test_presets_take_parameters():
    model = ramify.XRLinear.bonsai(
        n_trees=1, beam_size=3, tree=TreeConfig(method="balanced-2means", max_depth=None, branching=7)
    )
    assert (model.n_trees, model.beam_size, model.tree.branching) == (1, 3, 7)
    assert ramify.XRLinear.pecos().tree.branching == 16
    assert ramify.XRLinear.dismec().fit(["red fox", "grey hen"], [["fox"], ["hen"]]).trees_[0].tree.depth == 1


@pytest.mark.parametrize("nodes", ["teacher", "teacher+matcher"])
@pytest.mark.parametrize("negatives", ["teacher", "matcher", "teacher+matcher"])
def test_schemes_of_negatives(negatives, nodes, zoo):
    texts, labels = zoo
    model = ramify.XRLinear(negatives=negatives, node_negatives=nodes, **SMALL).fit(texts[:300], labels[:300])
    assert precision(model, texts[300:], labels[300:]) > 95


def test_additional_negatives(zoo):
    texts, labels = zoo
    model = ramify.XRLinear(negatives="teacher", **SMALL)
    tree = LabelTree.from_paths([(i % 3,) for i in range(12)])
    plain = model.fit(texts, labels, tree=tree).predict_topk(texts, 3)
    all_samples = sparse.csr_matrix(np.ones((400, 3), np.float32))
    with_all = model.fit(texts, labels, tree=tree, negatives=[None, all_samples]).predict_topk(texts, 3)
    assert not np.array_equal(plain.scores, with_all.scores)  # the classifiers saw other negatives
    with pytest.raises(ramify.DataError, match="shapes"):
        model.fit(texts, labels, tree=tree, negatives=[None, all_samples[:, :2]])
    for alone in (all_samples, {1: all_samples}):
        with pytest.raises(ramify.DataError, match="negatives must be a list with a matrix"):
            model.fit(texts, labels, tree=tree, negatives=alone)


@pytest.mark.parametrize("representation", ["pifa", "pii", "spectral", ("pifa", "pii")])
def test_label_representations(representation, zoo):
    texts, labels = zoo
    model = ramify.XRLinear(label_representation=representation, n_trees=2, **SMALL).fit(texts[:300], labels[:300])
    assert precision(model, texts[300:], labels[300:]) > 95


def test_label_features_change_the_tree(zoo):
    texts, labels = zoo
    features = np.eye(12, dtype=np.float32)[np.arange(12) // 6] * 5
    model = ramify.XRLinear(
        tree=TreeConfig(method="balanced-2means", max_depth=None, branching=2, max_leaf_size=6)
    ).fit(texts, labels, label_features=features)
    first, last = model.trees_[0].tree.to_dict(list(model.labels_))["children"]
    assert {tuple(sorted(first["labels"])), tuple(sorted(last["labels"]))} == {tuple(WORDS[:6]), tuple(WORDS[6:])}


def test_given_trees(zoo):
    texts, labels = zoo
    paths = {word: ["short" if len(word) == 3 else "long"] for word in WORDS}
    model = ramify.XRLinear().fit(texts, labels, tree=paths)
    tree = model.trees_[0].tree
    assert tree.widths == [2, 12]
    assert precision(model, texts, labels) > 95
    exported = json.loads(json.dumps(model.export_tree()))
    assert {len(child["labels"]) for child in exported["children"]} == {3, 9}
    chain = [sparse.csr_matrix(np.eye(3)[np.arange(12) % 3])]
    assert ramify.XRLinear().fit(texts, labels, tree=chain).trees_[0].tree.widths == [3, 12]
    taxonomy = LabelTree.from_parents([-1, -1, *[i % 2 for i in range(12)]])
    assert ramify.XRLinear().fit(texts, labels, tree=taxonomy).trees_[0].tree.widths == [2, 12]
    several = {word: [("a",), ("b",)] if word == "ant" else ("ab"[i % 2],) for i, word in enumerate(WORDS)}
    twice = ramify.XRLinear().fit(texts, labels, tree=several)
    found = twice.predict_topk(texts[:50], k=12)
    assert all(len(set(row)) == 12 for row in found.ids.tolist())  # a label in two leaves is returned once
    del paths["fox"]
    with pytest.raises(ramify.DataError, match="'fox' has no path"):
        ramify.XRLinear().fit(texts, labels, tree=paths)
    with pytest.raises(ramify.DataError, match="5 labels, y has 12"):
        ramify.XRLinear().fit(texts, labels, tree=LabelTree.flat(5))


@pytest.mark.parametrize("norm", ["none", "l1", "l2", "max"])
def test_relevance_weights_the_positives(norm, zoo):
    texts, labels = zoo
    Y = sparse.csr_matrix(np.array([[float(word in row) for word in WORDS] for row in labels], np.float32))
    R = Y.copy()
    R.data = np.where(R.indices == 0, 0.01, 1.0).astype(np.float32)  # "ant" has little weight
    model = ramify.XRLinear(relevance_norm=norm, **SMALL)
    plain, weighted = model.clone().fit(texts, Y), model.fit(texts, Y, relevance=R)
    ants = [i for i, row in enumerate(labels) if "ant" in row and len(row) == 2]
    only_ant = sparse.csr_matrix((np.ones(len(ants)), (range(len(ants)), [0] * len(ants))), (len(ants), 12))
    before, after = (m.predict_selected([texts[i] for i in ants], only_ant).data.mean() for m in (plain, weighted))
    assert after < before
    with pytest.raises(ramify.DataError, match="exactly where"):
        model.fit(texts, Y, relevance=R[:, ::-1])


def test_relevance_of_one_vs_all(zoo):
    texts, labels = zoo
    Y = sparse.csr_matrix(np.array([[float(word in row) for word in WORDS] for row in labels], np.float32))
    R = Y.copy()
    R.data = np.where(R.indices == 0, 0.01, 1.0).astype(np.float32)
    model = ramify.OneVsAll(linear=LinearConfig(threshold=0.0, tolerance=1e-4, max_epochs=1000))
    plain, weighted = model.clone().fit(texts, Y), model.fit(texts, Y, relevance=R)
    everything = sparse.csr_matrix(np.ones(Y.shape))
    before, after = (m.predict_selected(texts, everything).toarray() for m in (plain, weighted))
    with_ant = Y.toarray()[:, 0] > 0
    assert after[with_ant, 0].mean() < before[with_ant, 0].mean()
    assert np.allclose(after[:, 1:], before[:, 1:], atol=0.01)  # other labels have classifiers of their own
    ones = model.fit(texts, Y, relevance=Y).predict_selected(texts, everything).toarray()
    assert np.array_equal(ones, before)


def test_beam_size_after_fit_changes_the_search(zoo):
    texts, labels = zoo
    model = ramify.XRLinear(**SMALL).fit(texts, labels)
    before = model.predict_topk(texts, 3)
    narrow = model.set_params(beam_size=1).predict_topk(texts, 3)
    assert not np.array_equal(narrow.scores, before.scores)
    again = model.set_params(beam_size=50).predict_topk(texts, 3)
    assert np.array_equal(again.ids, before.ids)
    assert np.array_equal(again.scores, before.scores)


def test_several_trees_are_an_average(zoo):
    texts, labels = zoo
    three = ramify.XRLinear(n_trees=3, **SMALL).fit(texts, labels)
    assert len({tree.tree.labels.tobytes() for tree in three.trees_}) > 1
    everything = sparse.csr_matrix(np.ones((20, 12)))
    mean = np.zeros((20, 12))
    for tree in three.trees_:
        alone = ramify.XRLinear(**SMALL).fit(texts, labels)
        alone.trees_ = [tree]
        mean += alone.predict_selected(texts[:20], everything).toarray() / 3
    assert np.allclose(three.predict_selected(texts[:20], everything).toarray(), mean, atol=1e-5)
    ranking = three.predict_topk(texts[:20], k=12)
    assert np.allclose(np.take_along_axis(mean, ranking.ids, axis=1)[:, :2], ranking.scores[:, :2], atol=1e-4)


def test_selected_labels_are_what_the_search_finds(zoo):
    texts, labels = zoo
    for model in (ramify.XRLinear(**SMALL), ramify.OneVsAll()):
        model.fit(texts, labels)
        ranking = model.predict_topk(texts[:30], k=4)
        asked = ranking.to_csr()
        asked.data[:] = 1
        scores = model.predict_selected(texts[:30], asked)
        assert np.allclose(scores.toarray(), ranking.to_csr().toarray(), atol=1e-6)
    with pytest.raises(ramify.DataError, match="expected 30 × 12"):
        model.predict_selected(texts[:30], sparse.csr_matrix((30, 5)))


def test_a_full_beam_is_one_vs_all_down_the_tree(zoo):
    """With a beam as wide as the tree, the ranking is that of the exact scores of all labels."""
    texts, labels = zoo
    model = ramify.XRLinear(beam_size=10**6, **SMALL).fit(texts, labels)
    ranking = model.predict_topk(texts[:50], k=12)
    exact = model.predict_selected(texts[:50], sparse.csr_matrix(np.ones((50, 12)))).toarray()
    order = np.lexsort((np.tile(np.arange(12), (50, 1)), -exact))
    assert np.allclose(np.take_along_axis(exact, order, axis=1), ranking.scores, atol=1e-6)


def test_losses_and_transforms(zoo):
    texts, labels = zoo
    for loss, transform in (("logistic", "sigmoid"), ("hinge", "log-l2-hinge"), ("squared_hinge", "noop")):
        model = ramify.XRLinear(linear=LinearConfig(loss=loss, C=10.0), score_transform=transform, **SMALL).fit(
            texts, labels
        )
        assert precision(model, texts, labels) > 95
    mixed = ramify.XRLinear(score_transform="l3-hinge", label_score_transform="noop", **SMALL).fit(texts, labels)
    assert [t.name for t in mixed.trees_[0].transforms][-2:] == ["l3-hinge", "noop"]
    for wrong in (
        {"score_transform": "l9"},
        {"label_score_transform": "soft"},
        {"negatives": "all"},
        {"label_representation": "bert"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            ramify.XRLinear(**wrong)


def test_k_beyond_the_beam_still_finds_k_labels():
    random = np.random.default_rng(0)
    X = sparse.random(300, 40, 0.3, "csr", np.float32, random)
    Y = sparse.csr_matrix((random.random((300, 200)) < 0.05).astype(np.float32))
    model = ramify.XRLinear(
        tree=TreeConfig(method="balanced-2means", max_depth=None, branching=4, max_leaf_size=5), beam_size=2
    ).fit(X, Y)
    assert np.all(model.predict_topk(X[:20], k=120).ids >= 0)


def test_characters_beside_words(zoo, tmp_path):
    texts, labels = zoo
    Tfidf, Concat = ramify.features.Tfidf, ramify.features.Concat
    features = Concat(parts=(Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(2, 3))))
    model = ramify.XRLinear(features=features, **SMALL).fit(texts, labels)
    model.save(tmp_path / "m")
    again = ramify.load(tmp_path / "m")
    assert isinstance(again.features, Concat)
    assert np.array_equal(again.predict_topk(texts[:9]).scores, model.predict_topk(texts[:9]).scores)


@pytest.mark.parametrize("change", ["trees", "transforms", "n_sparse", "huge n_sparse", "depth"])
def test_a_damaged_manifest_is_refused(change, zoo, tmp_path):
    texts, labels = zoo
    ramify.XRLinear(**SMALL).fit(texts, labels).save(tmp_path / "m")
    file = tmp_path / "m" / "manifest.json"
    manifest = json.loads(file.read_text())
    model = manifest["state"]["model"]
    if change == "trees":
        model["trees"] = []
    elif change == "transforms":
        model["trees"][0]["transforms"][0] = "nonsense"
    elif change == "n_sparse":
        model["trees"][0]["n_sparse"] += 1
    elif change == "huge n_sparse":
        model["trees"][0]["n_sparse"] = 2**70
    else:
        model["trees"][0]["tree"]["depth"] -= 1
    file.write_text(json.dumps(manifest))
    with pytest.raises(ramify.ModelFormatError):
        ramify.load(tmp_path / "m")


def test_one_vs_all_takes_no_tree(zoo):
    texts, labels = zoo
    with pytest.raises(TypeError, match="unexpected keyword argument 'tree'"):
        ramify.OneVsAll().fit(texts, labels, tree=LabelTree.flat(12))


def test_a_label_that_every_sample_has_comes_first():
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(30)]
    labels = [sorted({"thing", f"l{random.integers(8)}", f"l{random.integers(8)}"}) for _ in range(300)]
    texts = [" ".join([f"is_{x}" for x in row if x != "thing"] + list(random.choice(words, 3))) for row in labels]
    for tree in (TreeConfig(max_leaf_size=3, branching=3), TreeConfig()):
        model = ramify.XRLinear(tree=tree).fit(texts, labels)
        first = [row[0][0] for row in model.predict_topk(texts, k=3).labels()]
        assert first.count("thing") > 0.99 * len(texts)
