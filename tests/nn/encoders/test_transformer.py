"""Transformer encoders: real MiniLM weights, and a tiny BERT that is trained in a moment."""

from __future__ import annotations

import builtins
import json
import resource
import shutil
import socket

import numpy as np
import pytest
from neural import Killed, graph_learner, kill_at, problem, texts_and_labels

import ramify
from ramify import DataError, Elias, ModelFormatError, XRTransformer
from ramify.base.mixed import Mixed
from ramify.io.store import StoreWriter
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders.samples import Samples
from ramify.nn.encoders.tokenizer import TextTokenizer
from ramify.nn.encoders.transformer import Transformer, TransformerEncoder
from ramify.nn.optim import Adam
from ramify.nn.trainer import train

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def reference_embeddings(directory, texts, pooling, max_length):
    """Embeddings by transformers, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModel.from_pretrained(directory).eval()
    embeddings = []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length)
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state[0].numpy()
        embeddings.append(hidden[0] if pooling == "cls" else hidden.mean(axis=0))
    embeddings = np.array(embeddings)
    return 4 * embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_match_transformers(minilm, pooling):
    texts = ["a short one", "", "solve a linear system with a symmetric matrix", "word " * 100, "Straße, naïve, 東京"]
    encoder = Transformer.open(TransformerEncoder(minilm, pooling=pooling, max_length=32, precision="float32"))
    tokens = encoder.tokenizer(texts)
    assert len(tokens) == 5
    assert tokens.lengths.max() == 32
    embeddings = encoder.encode_tokens(tokens, 2)
    assert embeddings.shape == (5, 384)
    assert embeddings == pytest.approx(reference_embeddings(minilm, texts, pooling, 32), abs=1e-3)


def test_tokens_do_not_depend_on_the_batches_of_the_tokenizer(minilm, monkeypatch):
    encoder = Transformer.open(TransformerEncoder(minilm, max_length=16))
    texts = [f"text {i} of many " * (1 + i % 4) for i in range(11)]
    whole = encoder.tokenizer(texts)
    monkeypatch.setattr("ramify.nn.encoders.tokenizer.BATCH_SIZE", 4)
    assert encoder.tokenizer(texts).digest() == whole.digest()
    assert len(encoder.tokenizer([])) == 0


def test_torch_threads_change_no_bits_and_are_restored(minilm, monkeypatch):
    """Threads compute batches of their own; torch itself uses one, and keeps the caller's setting."""
    monkeypatch.setattr("ramify.nn.encoders.backends.torch.MAX_TOKENS", {"cpu": 64, "cuda": 64})
    encoder = Transformer.open(TransformerEncoder(minilm, max_length=16))
    backend = encoder.torch
    tokens = encoder.tokenizer([f"text {i} of many " * (1 + i % 4) for i in range(40)])
    before, used, advanced = torch.get_num_threads(), set(), []
    pooled = backend.pooled
    monkeypatch.setattr(backend, "pooled", lambda *a: used.add(torch.get_num_threads()) or pooled(*a))
    one = backend.encode(tokens, 1, advanced.append)
    assert np.array_equal(one, backend.encode(tokens, 3, advanced.append))
    assert used == {1}
    assert sum(advanced) == 2 * len(tokens)
    assert torch.get_num_threads() == before


def test_similar_texts_have_similar_embeddings(minilm):
    encoder = Transformer.open(TransformerEncoder(minilm, max_length=32))
    cat, kitten, bank = encoder.encode_tokens(encoder.tokenizer(["a cat", "a kitten", "a central bank"]), 1)
    assert cat @ kitten > 1.5 * (cat @ bank)


def test_embeddings_and_tokens_are_computed_once(tiny, cache, monkeypatch):
    texts, _ = texts_and_labels()
    encoder = Transformer.open(TransformerEncoder(tiny, frozen=True))
    embeddings, tokens = encoder.cached_embeddings(texts, 1, 0), encoder.cached_tokens(texts)
    assert len(list(cache.iterdir())) == 2
    again = Transformer.open(TransformerEncoder(tiny, frozen=True))
    with monkeypatch.context() as patch:
        patch.setattr(TextTokenizer, "__call__", lambda *_: pytest.fail("computed again"))
        assert np.array_equal(again.cached_embeddings(texts, 1, 0), embeddings)
        assert np.array_equal(again.cached_tokens(texts).ids, tokens.ids)
    assert isinstance(tokens.ids.base, np.memmap)
    encoder.cached_embeddings(texts[1:], 1, 0)
    Transformer.open(TransformerEncoder(tiny, frozen=True, pooling="cls")).cached_embeddings(texts, 1, 0)
    assert len(list(cache.iterdir())) == 4


def small_elias(encoder, **options):
    stage1 = TrainingConfig(epochs=10, min_steps=70, batch_size=16, learning_rate=0.05, encoder_learning_rate=0.02)
    stage2 = TrainingConfig(epochs=3, min_steps=30, batch_size=16, learning_rate=0.02, encoder_learning_rate=0.01)
    return Elias(encoder=encoder, n_clusters=2, beam_size=2, stage1=stage1, stage2=stage2, **options)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("ranker", [None, "sparse"])
def test_a_saved_model_does_not_need_the_directory_of_the_encoder(tiny, tmp_path, frozen, ranker):
    texts, labels = texts_and_labels()
    model = small_elias(TransformerEncoder(tiny, frozen=frozen, learning_rate=0.005), ranker=ranker).fit(texts, labels)
    test = texts_and_labels(seed=1)
    popular = ramify.evaluate(ramify.Popular().fit(texts, labels).predict_topk(test[0], 3), test[1])
    ranking = model.predict_topk(test[0], 3)
    assert ramify.evaluate(ranking, test[1])["P@1"] > popular["P@1"] + 25
    model.save(tmp_path / "model")
    manifest = (tmp_path / "model" / "manifest.json").read_text()
    (tmp_path / "model" / "manifest.json").write_text(manifest.replace(tiny, "/nowhere"))
    again = ramify.load(tmp_path / "model")
    assert np.array_equal(again.predict_topk(test[0], 3).ids, ranking.ids)
    assert again.predict_topk(test[0], 3).scores == pytest.approx(ranking.scores, abs=1e-5)
    weights = next((tmp_path / "model").glob("*word_embeddings*"))
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "model")


def test_frozen_minilm_ranks_texts_without_a_known_word(minilm):
    """Synonyms that share no word with the training texts: only a pretrained encoder can relate them."""
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
    model = Elias(encoder=TransformerEncoder(minilm, frozen=True, max_length=16), stages=1).fit(texts, labels)
    expected = {"puppies and kittens": "animals", "dollars, euros, wealth": "money", "thunder, hail": "weather"}
    rows = model.predict_topk(list(expected), 1).labels()
    assert [row[0][0] for row in rows] == list(expected.values())


def samples_of(encoder):
    return Samples(Mixed.of(np.zeros((24, 1), np.float32)), encoder.tokenizer(texts_and_labels(24)[0]))


def trained(tiny, micro_batch_size, dropout=0.0, steps=4, device="cpu"):
    """An encoder that was fine-tuned towards random embeddings, and the losses of its steps."""
    config = TransformerEncoder(
        tiny, micro_batch_size=micro_batch_size, dropout=dropout > 0, precision="float32", device=device
    )
    encoder = Transformer.open(config)
    for replica in encoder.torch.replicas:
        for module in replica.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
    samples = samples_of(encoder)
    goal = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    encoder.begin_training(5)
    losses = []
    for step in range(1, steps + 1):
        phi, tape = encoder.forward(samples, 1)
        losses.append(float(np.square(phi - goal).mean()))
        encoder.backward(tape, 2 * (phi - goal) / phi.size, Adam(0.01, step, weight_decay=0.01), 1)
    return encoder, losses


def test_the_size_of_micro_batches_does_not_change_the_training(tiny):
    whole, losses = trained(tiny, 100)
    parts, again = trained(tiny, 7)
    assert losses[-1] < losses[0]
    assert losses == pytest.approx(again, rel=1e-4)
    for name, array in whole.arrays().items():
        assert parts.arrays()[name] == pytest.approx(array, abs=2e-4), name


def test_recomputed_activations_have_the_same_dropout_masks(tiny):
    encoder, _ = trained(tiny, 7, dropout=0.5, steps=1)
    samples = samples_of(encoder)
    phi, tape = encoder.forward(samples, 1)
    before = torch.get_rng_state()
    for batch, output in tape:
        assert output is None  # `backward` computes it again
        with torch.no_grad():
            again = encoder._tuner._embed(batch).numpy()
        assert np.array_equal(again, phi[batch.rows])
    assert torch.equal(torch.get_rng_state(), before)  # the user's random state is unchanged
    assert not np.array_equal(encoder.forward(samples, 1)[0], phi)


def test_there_is_no_dropout_inside_the_model_by_default(tiny):
    encoder = Transformer.open(TransformerEncoder(tiny, precision="float32"))
    samples = samples_of(encoder)
    phi, _ = encoder.forward(samples, 1)
    assert np.array_equal(encoder.forward(samples, 1)[0], phi)
    assert phi == pytest.approx(encoder.encode(samples, 1), abs=1e-4)


def test_training_does_not_depend_on_the_number_of_devices(tiny):
    """Micro-batches are distributed over replicas of the model, here both on the CPU."""
    one, losses = trained(tiny, 7, dropout=0.2)
    two, again = trained(tiny, 7, dropout=0.2, device="cpu,cpu")
    assert losses == pytest.approx(again, rel=1e-4)
    for name, array in one.arrays().items():
        assert two.arrays()[name] == pytest.approx(array, abs=2e-4), name
    first, second = (replica.state_dict() for replica in two.torch.replicas)
    assert all(torch.equal(first[name], second[name]) for name in first)
    tokens = one.tokenizer(texts_and_labels(24)[0])
    assert two.encode_tokens(tokens, 1) == pytest.approx(one.encode_tokens(tokens, 1), abs=2e-3)


def test_embeddings_of_the_last_call_are_kept_until_the_weights_change(tiny):
    encoder, _ = trained(tiny, 100)
    tokens = encoder.tokenizer(texts_and_labels(24)[0])
    embeddings = encoder.encode_tokens(tokens, 1)
    assert encoder.encode_tokens(encoder.tokenizer(texts_and_labels(24)[0]), 1) is embeddings
    assert encoder.encode_tokens(encoder.tokenizer(["w1"]), 1).shape == (1, 16)
    samples = Samples(Mixed.of(np.zeros((24, 1), np.float32)), tokens)
    embeddings, tape = encoder.encode_tokens(tokens, 1), encoder.forward(samples, 1)[1]
    encoder.backward(tape, np.ones((24, 16), np.float32), Adam(0.1, 1), 1)
    assert not np.allclose(encoder.encode_tokens(tokens, 1), embeddings)


def test_an_interrupted_training_resumes_to_the_same_bits(tiny, tmp_path):
    config = TrainingConfig(epochs=3, batch_size=16, min_steps=1, patience=6)

    def learner():
        encoder = Transformer.open(TransformerEncoder(tiny))
        head, samples, Y = problem(dim=16)
        samples = Samples(samples.features, encoder.tokenizer(texts_and_labels(100)[0]))
        return graph_learner(encoder, head, samples, Y, np.arange(90, 100), config)

    def run(subject, checkpoint=None):
        return train(np.arange(90), subject, title="t", seed=1, verbose=0, settings={}, checkpoint=checkpoint)

    uninterrupted = learner()
    history = run(uninterrupted)
    with pytest.raises(Killed):
        run(kill_at(learner(), 10), tmp_path / "c")
    torch.manual_seed(77)
    resumed = learner()
    assert run(resumed, tmp_path / "c") == history
    for name, array in uninterrupted.arrays().items():
        assert np.array_equal(array, resumed.arrays()[name]), name


def test_invalid_models_and_devices_are_refused(tiny, tmp_path):
    with pytest.raises(ValueError, match="needs the directory"):
        TransformerEncoder()
    with pytest.raises(DataError, match="reads texts"):
        Elias(encoder=TransformerEncoder(tiny)).fit(np.eye(4), [[0], [1], [0], [1]])
    for device, message in (("nowhere", "torch does not know the device"), ("cuda:0,cuda:1", "finds no GPU")):
        if device != "nowhere" and torch.cuda.is_available():
            continue
        with pytest.raises(ValueError, match=message):
            Transformer.open(TransformerEncoder(tiny, device=device))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="cannot open the model"):
        Transformer.open(TransformerEncoder(str(tmp_path / "empty")))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_long_texts_are_embedded_in_windows(tiny, pooling):
    texts = [" ".join(f"w{i % 60}" for i in range(n)) for n in (1, 6, 7, 18, 30)]
    config = TransformerEncoder(tiny, max_length=8, n_windows=3, pooling=pooling)
    encoder = Transformer.open(config)
    tokens = encoder.tokenizer(texts)
    assert tokens.lengths.tolist() == [3, 8, 9, 20, 20]
    embeddings = encoder.encode_tokens(tokens, 1)
    single = Transformer.open(TransformerEncoder(tiny, max_length=8, pooling=pooling))
    assert embeddings[:2] == pytest.approx(single.encode_tokens(single.tokenizer(texts[:2]), 1), abs=1e-5)
    pieces = [" ".join(texts[3].split()[start : start + 6]) for start in (0, 6, 12)]
    with torch.inference_mode():
        mean = single.torch.pooled(single.tokenizer(pieces)).numpy().mean(axis=0)  # all of one length
    assert embeddings[3] == pytest.approx(4 * mean / np.linalg.norm(mean), abs=1e-5)
    assert embeddings[4] == pytest.approx(embeddings[3], abs=1e-5)  # text behind the last window is not read


def damage_cut(path):
    file = next(path.glob("*.npy"))
    file.write_bytes(file.read_bytes()[:-4])


def damage_empty(path):
    next(path.glob("*.npy")).write_bytes(b"")


def damage_zeros(path):
    file = next(path.glob("*.npy"))
    content = file.read_bytes()
    file.write_bytes(content[:128] + bytes(len(content) - 128))


def damage_manifest(path):
    (path / "manifest.json").write_text("{")


def damage_replaced_by_file(path):
    shutil.rmtree(path)
    path.write_bytes(b"")


def damage_other_shape(path):
    shutil.rmtree(path)
    with StoreWriter(path) as writer:
        writer.array("embeddings", np.zeros((2, 16), np.float32))
        writer.array("ids", np.full(3, 2**30, np.int32))
        writer.array("indptr", np.array([0, 3]))
        writer.manifest("cache", {}, {})


@pytest.mark.parametrize(
    "damage", [damage_cut, damage_empty, damage_zeros, damage_manifest, damage_replaced_by_file, damage_other_shape]
)
def test_a_damaged_cache_is_computed_again(tiny, cache, damage):
    texts = ["w1 w2", "w3", "w4 w5 w6"]
    encoder = Transformer.open(TransformerEncoder(tiny, frozen=True))
    # Copies: a file that is cut while it is mapped ends the process.
    embeddings, ids = np.array(encoder.cached_embeddings(texts, 1, 0)), np.array(encoder.cached_tokens(texts).ids)
    entries = list(cache.iterdir())
    assert len(entries) == 2
    assert cache.stat().st_mode & 0o077 == 0  # private
    for _ in range(2):
        for entry in entries:
            damage(entry)
        assert np.array_equal(encoder.cached_embeddings(texts, 1, 0), embeddings)
        assert np.array_equal(encoder.cached_tokens(texts).ids, ids)
    assert sorted(cache.iterdir()) == sorted(entries)


@pytest.fixture
def closed_world(monkeypatch):
    """Fails at any attempt to reach the network, the hub or the terminal, or to import code of a model."""

    def refuse(*_, **__):
        raise AssertionError("reached the outside")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(builtins, "input", refuse)
    monkeypatch.setattr("transformers.dynamic_module_utils.get_class_from_dynamic_module", refuse)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)


def saved_transformer_model(tiny, path):
    texts = [" ".join(f"w{(7 * i + j) % 60}" for j in range(5)) for i in range(30)]
    model = XRTransformer(encoder=TransformerEncoder(tiny, frozen=True, max_length=16), verbose=0)
    model.fit(texts, [[f"l{i % 3}"] for i in range(30)]).save(path)
    return texts


def edit_architecture(path, **settings):
    def walk(value):
        if isinstance(value, dict):
            if isinstance(value.get("transformer"), dict):
                value["transformer"].update(settings)
            for part in value.values():
                walk(part)

    manifest = json.loads((path / "manifest.json").read_text())
    walk(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "evil/kernel"},
        {"_attn_implementation": "evil/kernel"},
        {"auto_map": {"AutoModel": "evil--code.Model"}},
        {"quantization_config": {"quant_method": "gptq"}},
        {"_name_or_path": "evil/model"},
        {"hidden_act": "evil/activation"},
        {"vocab_size": 20_000_000},
        {"hidden_size": 2**20},
        {"num_hidden_layers": 2**30},
        {"num_hidden_layers": -1},
        {"vocab_size": 2**70},
        {"vocab_size": "many"},
        {"model_type": "../bert"},
        {"model_type": None},
    ],
    ids=str,
)
def test_a_manifest_cannot_steer_the_transformers_library(tiny, tmp_path, closed_world, settings):
    saved_transformer_model(tiny, tmp_path / "m")
    edit_architecture(tmp_path / "m", **settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "m")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_opening_a_model_reaches_nothing_outside(tiny, tmp_path, closed_world):
    texts = saved_transformer_model(tiny, tmp_path / "m")
    assert ramify.load(tmp_path / "m", verify=True).predict_topk(texts, 2).ids.shape == (30, 2)


def test_code_in_a_folder_never_runs(tiny, tmp_path, closed_world):
    folder = tmp_path / "folder"
    shutil.copytree(tiny, folder)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Model: ...\nclass Config: ...\n")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(
            {
                **config,
                "model_type": "evil",
                "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"},
            }
        )
    )
    with pytest.raises(DataError):
        Transformer.open(TransformerEncoder(str(folder)))
    (folder / "config.json").write_text(json.dumps({**config, "attn_implementation": "evil/kernel"}))
    assert Transformer.open(TransformerEncoder(str(folder))).dim == 16
    assert not (tmp_path / "ran").exists()
