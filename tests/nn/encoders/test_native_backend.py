"""Encoders of the BERT family in the compiled core, against transformers."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from variants import digests

from ramify import native
from ramify.base.sparse import indptr_from_counts
from ramify.nn.encoders.backends.native import NativeBackend, build_text_encoder
from ramify.nn.encoders.tokens import Tokens

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.native

N_WORDS, MAX_LENGTH = 50, 40


def make_model(kind="bert", *, dim=20, heads=5, hidden=37, layers=2, scale=1.0, **more):
    """A random model; its dimensions are no multiples of a SIMD register."""
    torch.manual_seed(0)
    if kind == "distilbert":
        settings = {"dim": dim, "n_heads": heads, "hidden_dim": hidden, "n_layers": layers}
    else:
        settings = {
            "hidden_size": dim,
            "num_attention_heads": heads,
            "intermediate_size": hidden,
            "num_hidden_layers": layers,
        }
    shape = transformers.AutoConfig.for_model(
        kind, vocab_size=N_WORDS, max_position_embeddings=MAX_LENGTH + 2 * (kind != "distilbert"), **settings, **more
    )
    model = transformers.AutoModel.from_config(shape).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 * scale + (parameter.ndim == 1) * 0.2)
    return model


def weights_of(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def open_native(model):
    return build_text_encoder(model.config, weights_of(model))


def make_texts(lengths, seed=0):
    random = np.random.default_rng(seed)
    indptr = indptr_from_counts(lengths)
    return random.integers(3, N_WORDS, indptr[-1]).astype(np.int32), indptr


def reference_embeddings(model, tokens, indptr, first):
    """Embeddings by transformers, one text at a time."""
    embeddings = []
    for start, end in itertools.pairwise(indptr):
        with torch.inference_mode():
            ids = torch.from_numpy(tokens[start:end].astype(np.int64))[None]
            hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()
        embeddings.append(hidden[0] if first else hidden.mean(axis=0))
    return np.array(embeddings)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert"])
@pytest.mark.parametrize("first", [False, True])
def test_embeddings_match_transformers(kind, first):
    model = make_model(kind)
    tokens, indptr = make_texts([1, 2, 17, MAX_LENGTH, 16, 5, 33, 7])
    expected = reference_embeddings(model, tokens, indptr, first)
    assert open_native(model).encode(tokens, indptr, first, 1) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("shape", [(64, 2, 128), (48, 12, 500), (16, 1, 16), (400, 4, 800)])
def test_other_dimensions(shape):
    dim, heads, hidden = shape
    model = make_model(dim=dim, heads=heads, hidden=hidden)
    tokens, indptr = make_texts(np.random.default_rng(1).integers(1, MAX_LENGTH, 30))
    expected = reference_embeddings(model, tokens, indptr, False)
    assert open_native(model).encode(tokens, indptr, False, 2) == pytest.approx(expected, abs=2e-4)


def test_large_attention_logits_neither_overflow_nor_vanish():
    model = make_model(scale=12.0)
    tokens, indptr = make_texts([MAX_LENGTH, 3, 1, 20])
    expected = reference_embeddings(model, tokens, indptr, False)
    embeddings = open_native(model).encode(tokens, indptr, False, 1)
    assert embeddings == pytest.approx(expected, rel=1e-3, abs=1e-3 * float(np.abs(expected).max()))


def test_bits_of_a_text_depend_neither_on_its_batch_nor_on_threads():
    encoder = open_native(make_model())
    tokens, indptr = make_texts(np.random.default_rng(2).integers(1, MAX_LENGTH, 200))
    together = encoder.encode(tokens, indptr, False, 1)
    for threads in (2, 5):
        assert np.array_equal(encoder.encode(tokens, indptr, False, threads), together)
    for i in (0, 7, 199):
        own = tokens[indptr[i] : indptr[i + 1]]
        alone = encoder.encode(own, np.array([0, len(own)]), False, 3)
        assert np.array_equal(alone[0], together[i])


def test_no_texts():
    assert open_native(make_model()).encode(np.empty(0, np.int32), np.zeros(1, np.int64), False, 2).shape == (0, 20)


@pytest.mark.parametrize(
    ("tokens", "indptr", "message"),
    [
        ([3, N_WORDS], [0, 2], r"token 50 .*\b50$"),
        ([3, -1], [0, 2], r"token -1 .*\b50$"),
        ([3, 4], [0, 0, 2], "text 0 has 0 tokens"),
        ([3] * 60, [0, 60], "has 60 tokens; the encoder .* 1 to 42"),
        ([3, 4], [0, 1], "the last$|the number of tokens"),
        ([3, 4], [0, 3, 2], "has -1 tokens; the encoder"),
    ],
)
def test_invalid_texts_are_refused(tokens, indptr, message):
    encoder = open_native(make_model())
    with pytest.raises(ValueError, match=message):
        encoder.encode(np.array(tokens, np.int32), np.array(indptr, np.int64), False, 1)


def test_inconsistent_weights_are_refused():
    model = make_model()
    weights = weights_of(model)
    name = "encoder.layer.1.output.dense.weight"
    with pytest.raises(ValueError, match="do not fit together"):
        build_text_encoder(model.config, {**weights, name: weights[name][:, 1:]})
    with pytest.raises(ValueError, match=r"20 .* 3 (attention )?heads"):
        native.neural.TextEncoder(*(np.zeros((4, 20), np.float32),) * 2, (np.ones(20, np.float32),) * 2, 3, 8, 1e-12)


def test_other_architectures_are_left_to_torch():
    assert open_native(make_model(hidden_act="relu")) is None
    assert open_native(make_model("electra")) is None
    model = make_model(hidden_act="relu")
    assert NativeBackend.build(model.config, weights_of(model), pooling="mean", max_length=8) is None


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_backend_embeds_long_texts_in_windows(pooling):
    model = make_model()
    backend = NativeBackend.build(model.config, weights_of(model), pooling=pooling, max_length=10)
    tokens = Tokens(*make_texts([4, 26, 10, 11])[::-1])
    done = []
    embeddings = backend.encode(tokens, 2, done.append)
    assert sum(done) == 4
    for i in range(4):
        windows, _ = tokens.take(np.array([i])).windows(10)
        parts = reference_embeddings(model, windows.ids, windows.indptr, pooling == "cls")
        expected = np.average(parts, axis=0, weights=windows.lengths if pooling == "mean" else None)
        assert embeddings[i] == pytest.approx(expected, abs=2e-5)


def test_instruction_sets_agree():
    code = """
import test_native_backend as t
from ramify import native
encoder = t.open_native(t.make_model())
print(native.matrix.isa(), ",".join(map(str, encoder.encode(*t.make_texts([5, 30, 40]), False, 1).ravel())))
"""
    by_isa = {name: np.array(line.split(","), float) for name, line in digests(code, Path(__file__).parent).items()}
    assert "baseline" in by_isa
    for embeddings in by_isa.values():
        assert embeddings == pytest.approx(by_isa["baseline"], abs=2e-5)
