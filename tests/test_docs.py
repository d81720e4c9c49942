"""The code, commands, names and links of the documentation work."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import pkgutil
import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import ramify
from ramify.cli.main import main
from ramify.cli.options import configured_model
from ramify.cli.parser import make_parser
from ramify.models import REGISTRY, model_class

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ramify"
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
NEEDED = {"lightdxml": ["faiss"], "xrtransformer": ["torch", "transformers"]}
"""Optional packages of an example."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def few(pydoc):
    """Training and test parts of the built-in data with a few hundred samples each."""
    return {name: pydoc.split(name).subset(np.arange(300)) for name in ("train", "test")}


# ---- code and commands ----


def test_first_python_block_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = blocks(README, "python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    exec(compile(code, "README.md", "exec"), {})
    assert "nDCG" in capsys.readouterr().out
    assert (tmp_path / "model" / "manifest.json").exists()


def test_second_python_block_of_the_readme_runs(tiny, few, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))
    code, n_paths = re.subn(r'^path = ".*?"', f"path = {tiny!r}", blocks(README, "python")[1], flags=re.M)
    assert n_paths == 1, "the block names its encoder in a line path = ..."
    code = code.replace("max_length=64", "max_length=32")  # the tiny model has 32 positions
    exec(compile(code, "README.md", "exec"), {"ramify": ramify, **few})
    assert "edges" in capsys.readouterr().out


def test_readme_has_two_python_blocks():
    assert len(blocks(README, "python")) == 2


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=page_id)
def test_python_blocks_of_a_page_run_and_print(page, few, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    codes = blocks(page.read_text(), "python")
    assert codes, "a page of the docs shows code"
    names = {"ramify": ramify, **few}
    for code in codes:
        exec(compile(code, str(page), "exec"), names)
        assert capsys.readouterr().out, code


def check_command(line):
    """A line with a command of the shell: its options exist, and the parameters of models too."""
    command = shlex.split(re.split(r" [<>|]+ ", line.split("ramify ", 1)[1])[0], comments=True)
    if "--help" in command:
        return
    args = make_parser().parse_args(command)
    assert args.command == command[0]
    if args.command == "train":
        configured_model(model_class(args.model), None, args.set, args.preset)  # --config names a file of the reader


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=page_id)
def test_shell_blocks_of_a_page_are_valid(page):
    for block in blocks(page.read_text(), "sh"):
        for line in block.splitlines():
            if "ramify " in line:
                check_command(line)


def test_commands_of_the_readme_run_in_order(pydoc, tmp_path, monkeypatch, capsys):
    """The first hour in the shell: what needs no extra and does not run for minutes or for ever."""
    monkeypatch.chdir(tmp_path)
    train, test = pydoc.split("train"), pydoc.split("test")
    shown = [i for i, labels in enumerate(train.labels()) if "module:numpy.linalg" in labels][:20]
    train = train.subset(np.array(shown + [i for i in range(280) if i not in shown]))
    for name in ("train.jsonl", "train.tsv.gz", "corpus.tsv"):
        ramify.write(train, name)
    for name in ("dev.jsonl", "test.jsonl", "input.jsonl"):
        ramify.write(test.subset(np.arange(60)), name)
    Path("vocabulary.tsv").write_text("<module:numpy.linalg>\tlinear algebra\n")
    Path("stdin").touch()
    for name in ("tuned", "other"):
        ramify.Popular().fit(train.texts, train.labels()).save(name)
    long = "--help", "tune ", "serve ", "xr-transformer", "elias", "lightdxml", "export-encoder"
    lines = blocks(README[README.index("## Quick start in the shell") :], "sh")[0].splitlines()
    lines = [line for line in lines if not any(word in line for word in long)]
    assert len(lines) >= 18
    for line in lines:
        given, command = line.split("ramify ", 1)
        if given:  # echo '...' |
            Path("stdin").write_text(shlex.split(given)[1] + "\n")
        with Path("stdin").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main(shlex.split(re.split(r" [<>|]+ ", command)[0], comments=True)) == 0, line
        out, err = capsys.readouterr()
        assert out or err, line
    assert Path("report.html").exists()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, tmp_path, monkeypatch, capsys, request):
    for package in NEEDED.get(name, []):
        pytest.importorskip(package)
    arguments = [request.getfixturevalue("tiny"), "200"] if name == "xrtransformer" else []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAMIFY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out


def test_examples_in_docstrings_run():
    failures = 0
    for info in pkgutil.walk_packages(ramify.__path__, "ramify."):
        if not info.name.endswith(("__main__", "_core")) and "ramify.annif" not in info.name:  # its own environment
            failures += doctest.testmod(importlib.import_module(info.name)).failed
    assert doctest.testmod(ramify).failed + failures == 0


# ---- names ----


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_uses_public_names_only(name):
    code = (ROOT / "examples" / f"{name}.py").read_text()
    assert re.findall(r"^[ \t]*(?:from|import) ramify.*$", code, re.M) == ["import ramify"]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_names_and_parameters_in_a_page_exist(page):
    text = page.read_text()
    for name in re.findall(r"\bramify\.([A-Z]\w*)", text):
        assert hasattr(ramify, name), f"ramify.{name} does not exist"
    if page.name in ("CHANGELOG.md", "EXPERIMENTS.md"):  # they also name what was removed
        return
    for name, arguments in re.findall(r"\b([A-Z]\w+)(?:\.\w+)?\(([^()]*)", text):
        cls = getattr(ramify, name, None)
        if dataclasses.is_dataclass(cls):
            known = {field.name for field in dataclasses.fields(cls)}
            assert set(re.findall(r"(\w+)=", arguments)) <= known, f"{name}({arguments})"


def test_readme_lists_every_model():
    rows = re.findall(r"^\| `(\w+)`: .*? \| `([a-z-]+)` \| .* \|$", README, re.M)
    assert {key: name for name, key in rows} == {key: model_class(key).__name__ for key in REGISTRY}
    assert all(hasattr(ramify, name) for name, _ in rows)


def test_architecture_names_every_folder_and_module():
    folders = [path for path in SOURCE.rglob("*") if path.is_dir() and list(path.glob("*.py"))]
    folders += [path for path in (ROOT / "cpp").rglob("*") if path.is_dir()]
    for folder in folders:
        assert re.search(rf"\b{folder.name}/", ARCHITECTURE), f"{page_id(folder)}/ is not in the layout"
    for module in SOURCE.rglob("*.py"):
        if module.stem != "__init__":
            assert re.search(rf"\b{module.stem}\b", ARCHITECTURE), f"{page_id(module)} is not in the layout"


def test_architecture_names_no_module_that_is_missing():
    layers = "base|native|io|features|labels|index|metrics|rank|nn|models|cli"
    for path in re.findall(rf"`((?:{layers})(?:\.\w+)+)", ARCHITECTURE):
        found, names = ramify, path.split(".")
        for i, name in enumerate(names):
            try:
                found = importlib.import_module(".".join(["ramify", *names[: i + 1]]))
            except ModuleNotFoundError:
                assert hasattr(found, name), f"{path} does not exist"
                found = getattr(found, name)


# ---- links ----


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target} does not exist"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{target} has no such heading"


def test_files_of_the_makefile_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"\b(?:tests|fuzz|examples|docs|deploy)/[\w./-]+\.\w+", makefile)
    assert "tests/tsan.txt" in named
    assert [path for path in named if not (ROOT / path).exists()] == []
