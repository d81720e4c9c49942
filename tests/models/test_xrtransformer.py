"""Encoders fine-tuned down a tree, with a tiny BERT, word vectors and the real MiniLM."""

from __future__ import annotations

import json

import numpy as np
import pytest
from neural import Killed, texts_and_labels

import ramify
from ramify.index.kmeans import TreeConfig
from ramify.nn.learner import EncoderWithHead
from ramify.nn.trainer import TrainingConfig

torch = pytest.importorskip("torch")

TREE = TreeConfig(method="balanced-2means", branching=2, max_leaf_size=3, max_depth=None)
TRAINING = TrainingConfig(epochs=10, batch_size=16, min_steps=80, rate=0.02, validation=0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))


def small(cls, encoder, **options):
    return cls(encoder=encoder, matcher_tree=TREE, training=TRAINING, verbose=0, **options)


def precision(model, test):
    return ramify.evaluate(model.predict_topk(test[0], 3), test[1])["P@1"]


@pytest.mark.parametrize("cls", [ramify.XRTransformer, ramify.XTransformer])
@pytest.mark.parametrize("frozen", [True, False])
def test_learns_saves_and_needs_the_folder_no_more(cls, tiny, tmp_path, frozen):
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    model = small(cls, ramify.TransformerEncoder(tiny, frozen=frozen, rate=0.005)).fit(*train)
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


def test_fine_tuning_teaches_the_vectors(tiny):
    """With the words out of the ranker's sight, only what the encoder has learned can tell labels apart."""
    train, test = texts_and_labels(n=200), texts_and_labels(seed=1)
    blind = ramify.features.Tfidf(min_df=150)
    encoders = {frozen: ramify.TransformerEncoder(tiny, frozen=frozen, rate=0.005) for frozen in (True, False)}
    figures = {}
    for frozen, encoder in encoders.items():
        filled = [[f"the {text}" for text in part] for part in (train[0], test[0])]
        model = small(ramify.XRTransformer, encoder, features=blind).fit(filled[0], train[1])
        figures[frozen] = precision(model, (filled[1], test[1]))
    assert figures[False] > figures[True] + 10


def test_levels_go_from_coarse_to_fine_and_negatives_come_from_both(tiny, monkeypatch):
    seen = []
    real = ramify.models.xrtransformer.LevelTargets

    def spy(M, Y, children):
        seen.append((M.copy(), Y.copy(), children))
        return real(M, Y, children)

    monkeypatch.setattr("ramify.models.xrtransformer.LevelTargets", spy)
    train = texts_and_labels()
    small(ramify.XRTransformer, ramify.BagEncoder(width=16), matcher_width=2).fit(*train)
    assert [M.shape[1] for M, _, _ in seen] == [1, 2, 4]
    assert [Y.shape[1] for _, Y, _ in seen] == [2, 4, 12]
    assert seen[0][1].max() == 2  # two labels below one node count twice
    for M, Y, children in seen[1:]:
        above = np.repeat(np.arange(len(children) - 1), np.diff(children))
        right = np.zeros(M.shape)
        np.add.at(right, (slice(None), above), Y.toarray())
        assert np.all(M.toarray()[right > 0] > 0)  # no positive is left out
        assert (M.toarray()[right == 0] > 0).any()  # and the encoder adds what it mistakes for one
    seen.clear()
    small(ramify.XRTransformer, ramify.BagEncoder(width=16), max_match_clusters=4, weighted=False).fit(*train)
    assert [Y.shape[1] for _, Y, _ in seen] == [2, 4]
    assert seen[0][1].max() == 1
    seen.clear()
    small(ramify.XRTransformer, ramify.BagEncoder(width=16), min_match_clusters=3).fit(*train)
    assert [(M.shape[1], Y.shape[1]) for M, Y, _ in seen] == [(1, 4), (4, 12)]  # all nodes of the first compete
    seen.clear()
    small(ramify.XRTransformer, ramify.BagEncoder(width=16), min_match_clusters=1000).fit(*train)
    assert [(M.shape[1], Y.shape[1]) for M, Y, _ in seen] == [(1, 12)]
    seen.clear()
    small(ramify.XTransformer, ramify.BagEncoder(width=16)).fit(*train)
    assert len(seen) == 1


def test_a_path_is_an_encoder(tiny):
    model = ramify.XRTransformer(encoder=tiny)
    assert isinstance(model.encoder, ramify.TransformerEncoder)
    assert model.encoder.model == tiny
    assert ramify.XRTransformer().set_params(encoder=tiny).encoder.model == tiny
    with pytest.raises(ValueError, match="encoder must be"):
        ramify.XRTransformer(encoder=3)


def test_a_training_that_was_killed_goes_on_between_and_within_levels(tiny, tmp_path, monkeypatch):
    train, test = texts_and_labels(), texts_and_labels(seed=1)
    training = TrainingConfig(examples=400, batch_size=16, rate=0.02, validation=0)

    def model(place):
        encoder = ramify.TransformerEncoder(tiny, rate=0.005)
        own = small(ramify.XRTransformer, encoder, checkpoints=place, threads=1)
        return own.set_params(training=training)

    whole = model(None).fit(*train).predict_topk(test[0], 3)
    place, n_steps = str(tmp_path / "checkpoints"), [0]
    step = EncoderWithHead.step

    def dies(self, rows, number, factor):
        n_steps[0] += 1
        if n_steps[0] in (17, 40):  # in the second quarter of the first level, and in the second level
            raise Killed
        return step(self, rows, number, factor)

    monkeypatch.setattr(EncoderWithHead, "step", dies)
    for _ in range(2):
        with pytest.raises(Killed):
            model(place).fit(*train)
    again = model(place).fit(*train).predict_topk(test[0], 3)
    assert n_steps[0] < 2 * 3 * 28
    assert np.array_equal(again.ids, whole.ids)
    assert np.array_equal(again.scores, whole.scores)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_minilm_beside_words(minilm, pydoc):
    """Frozen vectors of a real model beside TF-IDF find more than TF-IDF alone, on real docstrings."""
    parts = [pydoc.split(name) for name in ("train", "test")]
    train, test = ((part.inputs[:1200], part.labels()[:1200]) for part in parts)
    alone = ramify.evaluate(ramify.XRLinear(verbose=0).fit(*train).predict_topk(test[0], 10), test[1])
    encoder = ramify.TransformerEncoder(minilm, frozen=True, max_len=24)
    beside = ramify.XRTransformer(encoder=encoder, verbose=0).fit(*train)
    assert ramify.evaluate(beside.predict_topk(test[0], 10), test[1])["R@10"] > alone["R@10"]


def test_from_the_shell(tiny, tmp_path, capsys):
    from ramify.cli.main import main

    texts, labels = texts_and_labels()
    lines = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    data, model = str(tmp_path / "train.jsonl"), str(tmp_path / "model")
    settings = [f"encoder={tiny}", "encoder.frozen=true", "encoder.max_len=16"]
    options = [option for setting in settings for option in ("--set", setting)]
    assert main(["train", "xr-transformer", data, "--out", model, "--quiet", *options]) == 0
    assert main(["inspect", model]) == 0
    values = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.count(" "))
    assert values["encoder.frozen"].strip() == "true"
    assert values["encoder.model"].strip().strip('"').startswith("/")
    assert main(["evaluate", model, data]) == 0
    together = str(tmp_path / "together")
    keys = '["popular", {kind = "xr-linear", params = {n_trees = 2}}]'
    assert main(["train", "ensemble", data, "--out", together, "--quiet", "--set", f"models={keys}"]) == 0
    assert main(["inspect", together]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 160
