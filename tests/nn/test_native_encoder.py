"""Encoders run by the compiled core beside the library that they come from."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from variants import digests

from ramify import native
from ramify.nn.native_encoder import native_encoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.native

N_WORDS, LONGEST = 50, 40


def make_model(kind="bert", *, width=20, heads=5, hidden=37, layers=2, scale=1.0, **more):
    """A random model of a kind; widths that no register divides."""
    torch.manual_seed(0)
    if kind == "distilbert":
        settings = {"dim": width, "n_heads": heads, "hidden_dim": hidden, "n_layers": layers}
    else:
        settings = {
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": hidden,
            "num_hidden_layers": layers,
        }
    shape = transformers.AutoConfig.for_model(
        kind, vocab_size=N_WORDS, max_position_embeddings=LONGEST + 2 * (kind != "distilbert"), **settings, **more
    )
    model = transformers.AutoModel.from_config(shape).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 * scale + (parameter.ndim == 1) * 0.2)
    return model


def open_native(model):
    return native_encoder(model.config, {name: tensor.numpy() for name, tensor in model.state_dict().items()})


def make_texts(lengths, seed=0):
    random = np.random.default_rng(seed)
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return random.integers(3, N_WORDS, begin[-1]).astype(np.int32), begin


def by_library(model, tokens, begin, first):
    """One text at a time."""
    found = []
    for start, end in itertools.pairwise(begin):
        with torch.inference_mode():
            ids = torch.from_numpy(tokens[start:end].astype(np.int64))[None]
            hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()
        found.append(hidden[0] if first else hidden.mean(axis=0))
    return np.array(found)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert"])
@pytest.mark.parametrize("first", [False, True])
def test_vectors_are_those_of_the_library(kind, first):
    model = make_model(kind)
    tokens, begin = make_texts([1, 2, 17, LONGEST, 16, 5, 33, 7])
    expected = by_library(model, tokens, begin, first)
    assert open_native(model).encode(tokens, begin, first, 1) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("shape", [(64, 2, 128), (48, 12, 500), (16, 1, 16), (400, 4, 800)])
def test_other_widths(shape):
    width, heads, hidden = shape
    model = make_model(width=width, heads=heads, hidden=hidden)
    tokens, begin = make_texts(np.random.default_rng(1).integers(1, LONGEST, 30))
    expected = by_library(model, tokens, begin, False)
    assert open_native(model).encode(tokens, begin, False, 2) == pytest.approx(expected, abs=2e-4)


def test_certain_heads_neither_overflow_nor_vanish():
    model = make_model(scale=12.0)
    tokens, begin = make_texts([LONGEST, 3, 1, 20])
    expected = by_library(model, tokens, begin, False)
    found = open_native(model).encode(tokens, begin, False, 1)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3 * float(np.abs(expected).max()))


def test_a_text_has_the_same_bits_in_any_company_with_any_threads():
    encoder = open_native(make_model())
    tokens, begin = make_texts(np.random.default_rng(2).integers(1, LONGEST, 200))
    together = encoder.encode(tokens, begin, False, 1)
    for threads in (2, 5):
        assert np.array_equal(encoder.encode(tokens, begin, False, threads), together)
    for i in (0, 7, 199):
        own = tokens[begin[i] : begin[i + 1]]
        alone = encoder.encode(own, np.array([0, len(own)]), False, 3)
        assert np.array_equal(alone[0], together[i])


def test_no_texts():
    assert open_native(make_model()).encode(np.empty(0, np.int32), np.zeros(1, np.int64), False, 2).shape == (0, 20)


@pytest.mark.parametrize(
    ("tokens", "begin", "words"),
    [
        ([3, N_WORDS], [0, 2], "token 50 is outside the encoder's vocabulary of 50"),
        ([3, -1], [0, 2], "token -1 is outside"),
        ([3, 4], [0, 0, 2], "text 0 has 0 tokens"),
        ([3] * 60, [0, 60], "has 60 tokens; the encoder takes 1 to 42"),
        ([3, 4], [0, 1], "from 0 to the number of tokens"),
        ([3, 4], [0, 3, 2], "tokens; the encoder takes"),
    ],
)
def test_bad_texts_are_refused_in_words(tokens, begin, words):
    encoder = open_native(make_model())
    with pytest.raises(ValueError, match=words):
        encoder.encode(np.array(tokens, np.int32), np.array(begin, np.int64), False, 1)


def test_weights_that_do_not_fit_are_refused():
    model = make_model()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    name = "encoder.layer.1.output.dense.weight"
    with pytest.raises(ValueError, match="do not fit together"):
        native_encoder(model.config, {**weights, name: weights[name][:, 1:]})
    with pytest.raises(ValueError, match="not a multiple of the 3 attention heads"):
        native.neural.TextEncoder(*(np.zeros((4, 20), np.float32),) * 2, (np.ones(20, np.float32),) * 2, 3, 8, 1e-12)


def test_other_kinds_are_left_to_the_library():
    assert open_native(make_model(hidden_act="relu")) is None
    assert open_native(make_model("electra")) is None


def test_instruction_sets_agree():
    code = """
import test_native_encoder as t
from ramify import native
encoder = t.open_native(t.make_model())
print(native.matrix.isa(), ",".join(map(str, encoder.encode(*t.make_texts([5, 30, 40]), False, 1).ravel())))
"""
    found = {name: np.array(line.split(","), float) for name, line in digests(code, Path(__file__).parent).items()}
    assert "baseline" in found
    for vectors in found.values():
        assert vectors == pytest.approx(found["baseline"], abs=2e-5)
