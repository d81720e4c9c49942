"""Explanations: exact sums for linear models, effects of words for all."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import ramify
from ramify.rank.score_transforms import ScoreTransform


@pytest.fixture(scope="module")
def data(pydoc):
    train, test = pydoc.split("train"), pydoc.split("test")
    return train.texts[:1500], train.labels()[:1500], test.texts


MODELS = {
    "one tree": lambda: ramify.XRLinear(verbose=0),
    "deep tree": lambda: ramify.XRLinear.pecos(verbose=0, tree=ramify.TreeConfig(branching=4, max_leaf_size=10)),
    "two trees": lambda: ramify.XRLinear(verbose=0, n_trees=2, score_transform="l3-hinge"),
    "sigmoid": lambda: ramify.XRLinear(verbose=0, score_transform="sigmoid"),
    "flat": lambda: ramify.OneVsAll(verbose=0),
    "words and characters": lambda: ramify.XRLinear(
        verbose=0, features=ramify.Concat(parts=(ramify.Tfidf(), ramify.Tfidf(analyzer="char_wb", ngram_range=(3, 3))))
    ),
    "with an encoder": lambda: ramify.XRTransformer(
        verbose=0,
        encoder=ramify.BagEncoder(dim=32),
        training=ramify.TrainingConfig(epochs=2, min_steps=20, batch_size=32),
    ),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_contributions_add_up_to_the_score(name, data):
    """Bias and contributions sum to the margin at each level, and the margins give the score of the ranking."""
    X, y, new = data
    model = MODELS[name]().fit(X, y)
    for text in new[:3]:
        ranking = model.predict_topk([text], 3)
        for label, score in [*ranking.labels()[0], (model.labels_[5], None)]:
            explanation = model.explain(text, label)
            assert explanation.method == "linear"
            assert explanation.label == label
            scores = []
            by_tree = explanation.levels
            n_trees = len(model.trees_)
            depth = len(by_tree) // n_trees
            for i, tree in enumerate(model.trees_):
                log_score = np.float32(0)
                for t, level in enumerate(by_tree[i * depth : (i + 1) * depth]):
                    total = level.bias + sum(value for _, value in level.contributions)
                    assert total == pytest.approx(level.margin, abs=1e-4)
                    log_score = tree.transforms[t].log_score(total, log_score, are_labels=t == depth - 1)
                    assert float(log_score) == pytest.approx(level.log_score, abs=1e-3, rel=1e-5)
                scores.append(tree.transforms[-1].spread(np.float32(log_score)))
            transform: ScoreTransform = model.trees_[0].transforms[-1]
            total = transform.finish(np.logaddexp.reduce(np.array(scores, np.float64)) - np.log(n_trees))
            assert float(total) == pytest.approx(explanation.score, abs=1e-4)
            if score is not None and n_trees == 1:
                assert explanation.score == pytest.approx(score, abs=1e-4)
    if name == "with an encoder":
        assert "(encoder)" in dict(explanation.terms)


def test_terms_are_words_of_the_text(data, tmp_path):
    """Word, stem and parts are one term; what they contribute is that of their columns."""
    X, y, _ = data
    model = ramify.XRLinear(verbose=0).fit(X, y)
    text = "Returns the Arrays, and an array of unarrayable numbers."
    explanation = model.explain(text, without=["arrays", "array"])
    words = [word for word, _ in explanation.terms]
    assert set(words) <= set(re.findall(r"\w+", text))
    assert len(set(words)) == len(words)
    level = explanation.levels[-1]
    assert level.bias + sum(value for _, value in explanation.terms) == pytest.approx(level.margin, abs=1e-4)
    columns = model.features_.transform([text])
    terms = model.features_.get_feature_names_out()[columns.indices]
    assert {"1__array", "0__array"} <= set(terms)
    assert "0__arrays" not in terms  # a word that training never saw contributes through its stem
    assert {"Arrays", "array"} <= set(words)
    less = model.predict_topk(["Returns the , and an  of unarrayable numbers."], 1, allow=[explanation.label])
    assert explanation.without == (["arrays", "array"], pytest.approx(float(less.scores[0, 0])))
    assert '">Arrays</span>' in explanation.to_html()
    model.save(tmp_path / "model")
    assert ramify.load(tmp_path / "model").explain(text).to_dict()["terms"] == explanation.to_dict()["terms"]


def test_forms(data, pydoc):
    X, y, new = data
    model = ramify.XRLinear(verbose=0).fit(
        X, y, label_catalogue={label: f"name of {label}" for row in y for label in row}
    )
    model.calibrate(new[:300], [row["labels"] if isinstance(row, dict) else [y[0][0]] for row in new[:300]])
    text = "Return <the> sum & product of an array, as an array."
    explanation = model.explain(text, without=["array"])
    assert model.explain(text, without="array").without == explanation.without
    assert explanation.label == model.predict_topk([text], 1).labels()[0][0][0]
    assert explanation.name == f"name of {explanation.label}"
    assert model.explain(text, explanation.name).label == explanation.label
    assert explanation.probability == pytest.approx(float(model.predict_proba([text], 1).data[0]), abs=1e-6)
    assert "margin" in str(explanation)
    assert "without array" in str(explanation)
    less = model.explain(text.replace("array", ""), explanation.label)
    assert explanation.without == (["array"], pytest.approx(less.score))
    values = json.loads(json.dumps(explanation.to_dict()))
    assert values["levels"][-1]["title"] == "label"
    page = explanation.to_html()
    assert "&lt;" in page
    assert "<the>" not in page
    assert "<span" in page
    assert explanation._repr_html_() == page
    other = next(label for label in model.labels_ if label != explanation.label)
    model.set_catalogue({other: "the only name"})
    assert str(model.explain(text, explanation.label)).startswith(f"{explanation.label}: score")  # not named twice
    assert str(model.explain(text, other)).startswith(f"the only name ({other}): score")


@pytest.mark.parametrize("make", [
    lambda: ramify.Elias(encoder=ramify.BagEncoder(dim=32), verbose=0,
                         stage1=ramify.TrainingConfig(epochs=2), stage2=ramify.TrainingConfig(epochs=2)),
    lambda: ramify.LightDXML(encoder=ramify.BagEncoder(dim=32), verbose=0, training=ramify.TrainingConfig(epochs=3)),
    lambda: ramify.Popular(),
])  # fmt: skip
def test_other_models_leave_out_each_word(make, data):
    X, y, new = data
    model = make().fit(X[:600], y[:600])
    explanation = model.explain(new[0])
    assert explanation.method == "leave-one-out"
    label = explanation.label
    word, fall = explanation.terms[0]
    rest = re.sub(rf"\b{re.escape(word)}\b", "", new[0], flags=re.I)
    scores = model.predict_topk([new[0], rest], 1, allow=[label]).scores[:, 0]
    assert fall == pytest.approx(float(scores[0] - scores[1]), abs=1e-6)
    if isinstance(model, ramify.Elias):
        assert {"cluster", "score of the cluster", "logit of the classifier"} <= set(explanation.parts)
    if isinstance(model, ramify.LightDXML):
        assert {"cosine similarity", "logit of the classifier", "beta"} <= set(explanation.parts)
    assert str(explanation)


def test_features_and_bad_input(data):
    X, y, _ = data
    matrix = ramify.Tfidf().fit_transform(X[:300])
    model = ramify.XRLinear(verbose=0).fit(matrix, y[:300])
    explanation = model.explain(matrix[3])
    assert explanation.terms[0][0].startswith("feature ")
    assert "<table>" in explanation.to_html()
    with pytest.raises(ramify.DataError, match="one sample; got 2"):
        model.explain(matrix[:2])
    with pytest.raises(ramify.DataError, match="texts only"):
        model.explain(matrix[3], without=["a"])
    with pytest.raises(ramify.DataError, match="knows no label"):
        model.explain(matrix[3], "nonsense")
    with pytest.raises(ramify.DataError, match="one text"):
        model.explain(5)
    with pytest.raises(ramify.NotFittedError):
        ramify.XRLinear().explain("a")


def test_rows_of_frames(data):
    pd = pytest.importorskip("pandas")
    X, y, _ = data
    frame = pd.DataFrame({"title": [text[:30] for text in X[:200]], "body": X[:200]}, index=range(7, 207))
    for make in (lambda: ramify.XRLinear(verbose=0), lambda: ramify.Popular()):
        model = make().fit(frame, y[:200])
        expected = model.explain({"title": X[0][:30], "body": X[0]}, without=["a"])
        assert model.explain(frame.head(1), without=["a"]).to_dict() == expected.to_dict()
        texts = make().fit(frame["body"], y[:200])
        assert texts.explain(frame["body"].head(1)).to_html() == texts.explain(X[0]).to_html()


def test_nearest_training_texts(data, tmp_path):
    """A model that keeps its texts names the nearest by the cosine of the embeddings, with their labels."""
    X, y, new = data
    X, y = [*X[:299], "Ünïcode \ud800 text of an odd kind"], [*y[:299], y[0]]
    training = ramify.TrainingConfig(epochs=2, min_steps=10)
    options = {"encoder": ramify.BagEncoder(dim=32), "stage1": training, "stages": 1, "verbose": 0}
    plain, model = (ramify.Elias(keep_texts=kept, **options).fit(X, y) for kept in (False, True))
    assert plain.explain(new[0]).neighbors == []
    assert "neighbors" not in plain.explain(new[0]).to_dict()
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    encoder = model.members_[0].encoder
    phi = encoder.encode(model._transform_samples(model._check_predict_inputs(X)), 1)
    phi /= np.maximum(np.linalg.norm(phi, axis=1, keepdims=True), 1e-12)
    for text in (X[7], X[299], new[0]):
        own = encoder.encode(model._transform_samples(model._check_predict_inputs([text])), 1)[0]
        expected = phi @ (own / np.linalg.norm(own))
        explanation = opened.explain(text, y[7][0])
        found = explanation.neighbors
        assert len(found) == 5
        assert [n.similarity for n in found] == pytest.approx(np.sort(expected)[::-1][:5], abs=2e-3)
        for neighbor in found:
            row = X.index(neighbor.text)
            assert set(neighbor.labels) == set(y[row])
            assert neighbor.has_label == (y[7][0] in y[row])
        assert explanation.to_dict()["neighbors"][0]["text"] == found[0].text
        json.dumps(explanation.to_dict())
        assert "nearest training texts" in str(explanation)
        assert "<ul><li>" in explanation.to_html()
    assert opened.explain(X[7], y[7][0]).neighbors[0].text == X[7]
    fields = ramify.Elias(keep_texts=True, **options).fit([{"a": x, "b": "t"} for x in X[:50]], y[:50])
    assert fields.explain({"a": X[3], "b": "t"}).neighbors[0].text == {"a": X[3], "b": "t"}
    matrix = ramify.Tfidf().fit_transform(X[:50])
    assert ramify.Elias(keep_texts=True, **options).fit(matrix, y[:50]).explain(matrix[3]).neighbors == []


def test_damaged_training_texts_are_refused(data, tmp_path):
    X, y, _ = data
    training = ramify.TrainingConfig(epochs=1, min_steps=5)
    options = {"encoder": ramify.BagEncoder(dim=16), "stage1": training, "stages": 1, "verbose": 0}
    model = ramify.Elias(keep_texts=True, **options).fit(X[:50], y[:50])
    for name, change in (
        ("offsets", lambda a: a[::-1]),
        ("offsets", lambda a: a + 10**9),
        ("label_indptr", lambda a: a[::-1]),
        ("labels", lambda a: a + 10**6),
        ("embeddings", lambda a: a[:-1]),
    ):
        model.save(tmp_path / "m")
        file = tmp_path / "m" / f"texts_{name}.npy"
        np.save(file, change(np.load(file)))
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "m")
