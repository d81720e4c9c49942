"""What the documents show must run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest

import ramify
from ramify.cli.main import make_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_readme_s_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    exec(compile(code, "README.md", "exec"), {})
    assert "nDCG" in capsys.readouterr().out
    assert (tmp_path / "model" / "manifest.json").exists()


def test_the_readme_s_shell_is_understood():
    lines = re.search(r"```sh\n(.*?)```", README, re.S)[1].splitlines()
    parser = make_parser()
    for line in lines:
        command = re.sub(r"\s#.*|[|>] (jq|output).*", "", line).split("ramify ", 1)[1].split()
        if "--help" not in command:
            assert parser.parse_args(command).command == command[0]


@pytest.mark.parametrize("name", ["demo", "features"])
def test_the_examples_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out


def test_every_module_has_working_examples_in_its_docstrings():
    failures = 0
    for info in pkgutil.walk_packages(ramify.__path__, "ramify."):
        if not info.name.endswith(("__main__", "_core")):
            failures += doctest.testmod(importlib.import_module(info.name)).failed
    assert doctest.testmod(ramify).failed + failures == 0


def test_the_readme_s_models_are_true():
    """A model is called more than "to come" in the README exactly if it is in the registry."""
    from ramify.models import REGISTRY

    rows = re.findall(r"^\| (.*?) \| `([a-z-]+)` \| (.*?) \|$", README, re.M)
    assert {key for _, key, state in rows if state != "to come"} == set(REGISTRY)
    for words, _, state in rows:
        for name in re.findall(r"`(\w+)`", words.partition(":")[0]):
            assert hasattr(ramify, name) == (state != "to come"), name


def test_every_file_of_the_map_is_there():
    """ARCHITECTURE.md names the folders and files that there are."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for folder in ("base", "io", "features", "labels", "index", "rank", "nn", "metrics", "models", "cli"):
        listed = re.search(rf"^  {folder}/(.*?)(?=^  \w|^tests/)", text, re.S | re.M)[1]
        for file in (ROOT / "src" / "ramify" / folder).glob("*.py"):
            if file.stem not in ("__init__", "types"):
                assert file.stem in listed or file.stem == "base", f"{folder}/{file.name} is not on the map"
    for folder in (ROOT / "cpp").iterdir():
        assert f"{folder.name}/" in text.partition("cpp/")[2], f"cpp/{folder.name} is not on the map"
