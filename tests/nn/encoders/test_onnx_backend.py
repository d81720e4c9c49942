"""Encoders exported to ONNX against torch, in a model, and on the command line."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import ramify
from ramify import Elias, ModelFormatError, TrainingConfig, TransformerEncoder, XRTransformer
from ramify.nn.encoders import Transformer
from ramify.nn.encoders.backends.onnx import check_graph

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in random.integers(20 * (n % 3), 20 * (n % 3) + 20, 9)) for n in range(90)]
    return texts, [[f"topic {n % 3}"] for n in range(90)]


@pytest.mark.parametrize(("pooling", "n_windows"), [("mean", 1), ("cls", 1), ("mean", 3)])
def test_embeddings_match_torch(tiny, pooling, n_windows):
    encoder = Transformer.open(TransformerEncoder(tiny, max_length=8, pooling=pooling, n_windows=n_windows))
    tokens = encoder.tokenizer([" ".join(f"w{i}" for i in range(n)) for n in (1, 3, 6, 7, 18, 30)])
    expected = encoder.encode_tokens(tokens, 1)
    encoder.to_onnx()
    for threads in (1, 2):
        assert encoder.encode_tokens(tokens, threads) == pytest.approx(expected, abs=1e-3)
        encoder.use_onnx(encoder.onnx)  # forget the embeddings of the last call
    before = encoder.onnx
    encoder.set_arrays({name: array * 1.1 for name, array in encoder.arrays().items()})
    assert before is not None
    assert encoder.onnx is None  # it belonged to other weights


def test_embeddings_of_minilm_match_torch(minilm):
    encoder = Transformer.open(TransformerEncoder(minilm, max_length=32, precision="float32"))
    tokens = encoder.tokenizer(["a dog runs", "the price of copper rose again in March", "storm"])
    expected = encoder.encode_tokens(tokens, 1)
    encoder.to_onnx()
    assert encoder.encode_tokens(tokens, 1) == pytest.approx(expected, abs=1e-3)


def test_export_of_an_encoder_in_bfloat16_is_compared_in_float32(minilm):
    encoder = Transformer.open(TransformerEncoder(minilm, max_length=32, precision="bfloat16"))
    encoder.to_onnx()
    assert encoder.onnx is not None
    assert encoder.torch.bfloat16


def test_missing_packages_are_named(tiny, monkeypatch):
    encoder = Transformer.open(TransformerEncoder(tiny, max_length=8))
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # importing it raises ModuleNotFoundError
    with pytest.raises(ImportError, match=r"needs onnxscript: pip install 'ramify\[onnx\]'"):
        encoder.to_onnx()


@pytest.mark.parametrize("frozen", [True, False])
def test_a_saved_model_keeps_its_graph(tiny, data, tmp_path, frozen):
    model = Elias(
        encoder=TransformerEncoder(tiny, frozen=frozen, max_length=16),
        stages=1,
        stage1=TrainingConfig(epochs=1, min_steps=2),
    ).fit(*data)
    expected = model.predict_topk(data[0], 3)
    assert model.export_encoder() == {}
    model.save(tmp_path / "model")
    again = ramify.load(tmp_path / "model")
    assert all(encoder.onnx is not None for encoder in again._transformers())
    assert again.predict_topk(data[0], 3).scores == pytest.approx(expected.scores, abs=1e-3)
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    text = json.dumps(manifest).replace('"onnx": "float32"', '"onnx": "float3"')
    (tmp_path / "model" / "manifest.json").write_text(text)
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "model")


def test_graphs_of_others_are_refused(tiny):
    import onnx
    from onnx import TensorProto, helper

    encoder = Transformer.open(TransformerEncoder(tiny, max_length=8))
    encoder.to_onnx()
    check_graph(encoder.onnx.graph)

    def changed(change):
        model = onnx.load_from_string(encoder.onnx.graph)
        change(model)
        return model.SerializeToString()

    def external(model):
        tensor = model.graph.initializer[0]
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="/etc/passwd")

    def branch(model):
        body = helper.make_graph([], "body", [], [])
        model.graph.node.append(helper.make_node("Reshape", ["a"], ["b"], body=body))

    hostile = [
        changed(external),
        changed(branch),
        changed(lambda m: m.graph.node.append(helper.make_node("Loop", ["a"], ["b"]))),
        changed(lambda m: m.graph.node.append(helper.make_node("Relu", ["a"], ["b"], domain="evil"))),
        changed(lambda m: m.graph.initializer.append(TensorProto(dims=[2**40], data_type=1))),
        encoder.onnx.graph[:-7],
        b"\xff" * 100,
    ]
    for graph in hostile:
        with pytest.raises(ModelFormatError):
            check_graph(graph)


def test_int8_is_kept_only_if_its_loss_of_precision_is_small_enough(tiny, data, tmp_path, capsys):
    from ramify.cli.main import main

    model = XRTransformer(encoder=TransformerEncoder(tiny, frozen=True, max_length=16)).fit(*data)
    metrics = model.export_encoder(*data, int8=True, max_loss=100)
    assert metrics["kept"]
    assert 0 <= metrics["after"] <= metrics["before"] + 5
    assert model.transformer_.onnx.int8
    metrics = model.export_encoder(*data, int8=True, max_loss=-100)  # impossible to reach
    assert not metrics["kept"]
    directory, file = str(tmp_path / "model"), str(tmp_path / "data.jsonl")
    model.save(directory)
    rows = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(*data, strict=True)]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    assert main(["export-encoder", directory, "--int8", "--data", file, "--max-loss", "-100"]) == 1
    assert "was not changed" in capsys.readouterr().err
    assert main(["export-encoder", directory, "--int8", "--data", file, "--max-loss", "100"]) == 0
    assert "P@1 int8" in capsys.readouterr().out
    assert main(["evaluate", directory, file]) == 0


def test_invalid_exports_are_refused(tiny, data, tmp_path, capsys):
    from ramify.cli.main import main

    with pytest.raises(ValueError, match="has no transformer"):
        Elias(stages=1, stage1=TrainingConfig(min_steps=1, epochs=1)).fit(*data).export_encoder()
    model = XRTransformer(encoder=TransformerEncoder(tiny, frozen=True, max_length=16)).fit(*data)
    with pytest.raises(ValueError, match="int8 costs accuracy"):
        model.export_encoder(int8=True)
    ramify.XRLinear().fit(*data).save(tmp_path / "linear")
    assert main(["export-encoder", str(tmp_path / "linear")]) == 1
    assert "has no encoder" in capsys.readouterr().err
