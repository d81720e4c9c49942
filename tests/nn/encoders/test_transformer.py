"""Encoders of texts with the real MiniLM weights, and with a tiny BERT that can be trained in a moment."""

from __future__ import annotations

import numpy as np
import pytest
from neural import Killed, problem, texts_and_labels

import ramify
from ramify import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.models.elias import Elias
from ramify.nn.learner import EncoderWithHead
from ramify.nn.points import Points, Tokens
from ramify.nn.tables import Adam
from ramify.nn.trainer import TrainingConfig, train
from ramify.nn.transformer import Transformer, TransformerEncoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def expected_vectors(folder, texts, pooling, max_len):
    """One text at a time, straight from the library."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    found = []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_len)
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state[0].numpy()
        found.append(hidden[0] if pooling == "cls" else hidden.mean(axis=0))
    found = np.array(found)
    return 4 * found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_the_library(minilm, pooling):
    texts = ["a short one", "", "solve a linear system with a symmetric matrix", "word " * 100, "Straße, naïve, 東京"]
    encoder = Transformer.open(TransformerEncoder(minilm, pooling=pooling, max_len=32, precision="float32"))
    tokens = encoder.tokens(texts)
    assert len(tokens) == 5
    assert np.diff(tokens.begin).max() == 32
    vectors = encoder.encode_tokens(tokens, 2)
    assert vectors.shape == (5, 384)
    assert vectors == pytest.approx(expected_vectors(minilm, texts, pooling, 32), abs=1e-3)


def test_texts_become_tokens_some_at_a_time(minilm, monkeypatch):
    encoder = Transformer.open(TransformerEncoder(minilm, max_len=16))
    texts = [f"text number {i} " * (1 + i % 4) for i in range(11)]
    whole = encoder.tokens(texts)
    monkeypatch.setattr("ramify.nn.transformer.TEXTS_AT_ONCE", 4)
    assert encoder.tokens(texts).digest() == whole.digest()
    assert len(encoder.tokens([])) == 0


def test_meaning_is_near_meaning(minilm):
    encoder = Transformer.open(TransformerEncoder(minilm, max_len=32))
    cat, kitten, bank = encoder.encode_tokens(encoder.tokens(["a cat", "a kitten", "a central bank"]), 1)
    assert cat @ kitten > 1.5 * (cat @ bank)


def test_vectors_and_tokens_are_computed_once(tiny, cache, monkeypatch):
    texts, _ = texts_and_labels()
    encoder = Transformer.open(TransformerEncoder(tiny, frozen=True))
    vectors, tokens = encoder.cached_vectors(texts, 1, 0), encoder.cached_tokens(texts)
    assert len(list(cache.iterdir())) == 3
    again = Transformer.open(TransformerEncoder(tiny, frozen=True))
    monkeypatch.setattr(again, "tokens", lambda _: pytest.fail("computed again"))
    assert np.array_equal(again.cached_vectors(texts, 1, 0), vectors)
    assert np.array_equal(again.cached_tokens(texts).ids, tokens.ids)
    assert isinstance(tokens.ids, np.memmap)
    encoder.cached_vectors(texts[1:], 1, 0)
    Transformer.open(TransformerEncoder(tiny, frozen=True, pooling="cls")).cached_vectors(texts, 1, 0)
    assert len(list(cache.iterdir())) == 5


def small(encoder, **options):
    first = TrainingConfig(epochs=10, min_steps=70, batch_size=16, rate=0.05, encoder_rate=0.02)
    second = TrainingConfig(epochs=3, min_steps=30, batch_size=16, rate=0.02, encoder_rate=0.01)
    return Elias(encoder=encoder, n_clusters=2, beam_size=2, first=first, second=second, **options)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("ranker", [None, "sparse"])
def test_elias_learns_saves_and_needs_the_folder_no_more(tiny, tmp_path, frozen, ranker):
    texts, labels = texts_and_labels()
    model = small(TransformerEncoder(tiny, frozen=frozen, rate=0.005), ranker=ranker).fit(texts, labels)
    test = texts_and_labels(seed=1)
    popular = ramify.evaluate(ramify.Popular().fit(texts, labels).predict_topk(test[0], 3), test[1])
    found = model.predict_topk(test[0], 3)
    assert ramify.evaluate(found, test[1])["P@1"] > popular["P@1"] + 25
    model.save(tmp_path / "model")
    manifest = (tmp_path / "model" / "manifest.json").read_text()
    (tmp_path / "model" / "manifest.json").write_text(manifest.replace(tiny, "/nowhere"))
    again = ramify.load(tmp_path / "model")
    assert np.array_equal(again.predict_topk(test[0], 3).ids, found.ids)
    assert again.predict_topk(test[0], 3).scores == pytest.approx(found.scores, abs=1e-5)
    weights = next((tmp_path / "model").glob("*word_embeddings*"))
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "model")


def test_frozen_minilm_beats_words_that_were_never_seen(minilm):
    """Synonyms that share no word with the training texts: only a pretrained encoder can know them."""
    topics = {
        "animals": [
            "a dog runs",
            "the horse eats",
            "two cats sleep",
            "a cow in the field",
            "birds sing",
            "a fox hunts",
        ],
        "money": ["pay the bill", "a bank account", "the price rises", "coins and notes", "a cheap loan", "save cash"],
        "weather": ["it rains", "snow falls", "a sunny day", "strong wind", "clouds and storm", "the fog lifts"],
    }
    texts = [text for group in topics.values() for text in group] * 3
    labels = [[topic] for topic, group in topics.items() for _ in group] * 3
    model = Elias(encoder=TransformerEncoder(minilm, frozen=True, max_len=16), stages=1).fit(texts, labels)
    wanted = {"puppies and kittens": "animals", "dollars, euros, wealth": "money", "thunder, hail": "weather"}
    found = model.predict_topk(list(wanted), 1).labels()
    assert [row[0][0] for row in found] == list(wanted.values())


def trained(tiny, rows_at_once, dropout=0.0, steps=4, device="cpu"):
    config = TransformerEncoder(
        tiny, rows_at_once=rows_at_once, dropout=dropout > 0, precision="float32", device=device
    )
    encoder = Transformer.open(config)
    for copy in encoder._copies:
        for module in copy.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
    points = Points(Mixed.of(np.zeros((24, 1), np.float32)), encoder.tokens(texts_and_labels(24)[0]))
    goal = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    encoder.begin(5)
    losses = []
    for number in range(1, steps + 1):
        vectors, tape = encoder.forward(points, 1)
        losses.append(float(np.square(vectors - goal).mean()))
        encoder.backward(tape, 2 * (vectors - goal) / vectors.size, Adam(0.01, number, weight_decay=0.01), 1)
    return encoder, losses


def test_a_batch_is_the_same_however_it_is_cut(tiny):
    whole, losses = trained(tiny, 100)
    parts, again = trained(tiny, 7)
    assert losses[-1] < losses[0]
    assert losses == pytest.approx(again, rel=1e-4)
    for name, array in whole.arrays().items():
        assert parts.arrays()[name] == pytest.approx(array, abs=2e-4), name


def test_the_second_pass_of_a_cut_batch_drops_what_the_first_dropped(tiny):
    """The gradient that comes out is that of the vectors that went in: a step of no length changes nothing."""
    encoder, _ = trained(tiny, 7, dropout=0.5, steps=1)
    points = Points(Mixed.of(np.zeros((24, 1), np.float32)), encoder.tokens(texts_and_labels(24)[0]))
    vectors, tape = encoder.forward(points, 1)
    before = torch.get_rng_state()
    for part, _ in tape:
        with torch.no_grad():
            again = encoder._of_part(part).numpy()
        assert np.array_equal(again, vectors[part.rows])
    assert torch.equal(torch.get_rng_state(), before)  # the user's own random numbers stay
    assert not np.array_equal(encoder.forward(points, 1)[0], vectors)


def test_nothing_inside_the_model_is_dropped_unless_asked_for(tiny):
    encoder = Transformer.open(TransformerEncoder(tiny, precision="float32"))
    points = Points(Mixed.of(np.zeros((24, 1), np.float32)), encoder.tokens(texts_and_labels(24)[0]))
    vectors, _ = encoder.forward(points, 1)
    assert np.array_equal(encoder.forward(points, 1)[0], vectors)
    assert vectors == pytest.approx(encoder.encode(points, 1), abs=1e-4)


def test_several_devices_learn_what_one_learns(tiny):
    """The parts of a batch are shared out among copies of the model, here both on the processor."""
    one, losses = trained(tiny, 7, dropout=0.2)
    two, again = trained(tiny, 7, dropout=0.2, device="cpu,cpu")
    assert losses == pytest.approx(again, rel=1e-4)
    for name, array in one.arrays().items():
        assert two.arrays()[name] == pytest.approx(array, abs=2e-4), name
    first, second = (copy.state_dict() for copy in two._copies)
    assert all(torch.equal(first[name], second[name]) for name in first)
    tokens = one.tokens(texts_and_labels(24)[0])
    assert two.encode_tokens(tokens, 1) == pytest.approx(one.encode_tokens(tokens, 1), abs=2e-3)


def test_vectors_of_the_same_texts_are_remembered_until_the_encoder_learns(tiny):
    encoder, _ = trained(tiny, 100)
    tokens = encoder.tokens(texts_and_labels(24)[0])
    vectors = encoder.encode_tokens(tokens, 1)
    assert encoder.encode_tokens(encoder.tokens(texts_and_labels(24)[0]), 1) is vectors
    assert encoder.encode_tokens(encoder.tokens(["w1"]), 1).shape == (1, 16)
    points = Points(Mixed.of(np.zeros((24, 1), np.float32)), tokens)
    vectors, tape = encoder.encode_tokens(tokens, 1), encoder.forward(points, 1)[1]
    encoder.backward(tape, np.ones((24, 16), np.float32), Adam(0.1, 1), 1)
    assert not np.allclose(encoder.encode_tokens(tokens, 1), vectors)


def test_a_training_that_was_killed_ends_with_the_same_bits(tiny, tmp_path):
    config = TrainingConfig(epochs=3, batch_size=16, min_steps=1, patience=6)

    def learner():
        encoder = Transformer.open(TransformerEncoder(tiny))
        head, points, Y = problem(width=16)
        points = Points(points.features, encoder.tokens(texts_and_labels(100)[0]))
        return EncoderWithHead(encoder, head, points, Y, np.arange(90, 100), config, seed=3, threads=1)

    def go(subject, checkpoint=None):
        return train(np.arange(90), subject, config, title="t", seed=1, verbose=0, settings={}, checkpoint=checkpoint)

    whole = learner()
    history = go(whole)
    broken = learner()
    step = broken.step

    def dies(rows, number, factor):
        if number == 10:
            raise Killed
        return step(rows, number, factor)

    broken.step = dies
    with pytest.raises(Killed):
        go(broken, tmp_path / "c")
    torch.manual_seed(77)
    resumed = learner()
    assert go(resumed, tmp_path / "c") == history
    for name, array in whole.arrays().items():
        assert np.array_equal(array, resumed.arrays()[name]), name


def test_refuses_in_words(tiny, tmp_path):
    with pytest.raises(ValueError, match="needs the folder"):
        TransformerEncoder()
    with pytest.raises(DataError, match="reads texts"):
        Elias(encoder=TransformerEncoder(tiny)).fit(np.eye(4), [[0], [1], [0], [1]])
    for device, what in (("nowhere", "none that torch knows"), ("cuda:0,cuda:1", "finds no GPU")):
        if device != "nowhere" and torch.cuda.is_available():
            continue
        with pytest.raises(ValueError, match=what):
            Transformer.open(TransformerEncoder(tiny, device=device))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="cannot open the model"):
        Transformer.open(TransformerEncoder(str(tmp_path / "empty")))


def test_tokens():
    tokens = Tokens.of([[5, 6], [], [7]])
    assert len(tokens) == 3
    ids, mask = tokens.padded()
    assert ids.tolist() == [[5, 6], [0, 0], [7, 0]]
    assert mask.tolist() == [[1, 1], [0, 0], [1, 0]]
    part = tokens.take(np.array([2, 0]))
    assert part.begin.tolist() == [0, 1, 3]
    assert part.ids.tolist() == [7, 5, 6]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_long_texts_are_read_in_windows(tiny, pooling):
    texts = [" ".join(f"w{i % 60}" for i in range(n)) for n in (1, 6, 7, 18, 30)]
    config = TransformerEncoder(tiny, max_len=8, windows=3, pooling=pooling)
    encoder = Transformer.open(config)
    tokens = encoder.tokens(texts)
    assert np.diff(tokens.begin).tolist() == [3, 8, 9, 20, 20]
    vectors = encoder.encode_tokens(tokens, 1)
    single = Transformer.open(TransformerEncoder(tiny, max_len=8, pooling=pooling))
    assert vectors[:2] == pytest.approx(single.encode_tokens(single.tokens(texts[:2]), 1), abs=1e-5)
    pieces = [" ".join(texts[3].split()[start : start + 6]) for start in (0, 6, 12)]
    with torch.inference_mode():
        mean = single._pooled(single.tokens(pieces)).numpy().mean(axis=0)  # all of one length
    assert vectors[3] == pytest.approx(4 * mean / np.linalg.norm(mean), abs=1e-5)
    assert vectors[4] == pytest.approx(vectors[3], abs=1e-5)  # what is behind the last window is not read
