"""The layering rule and the forbidden imports, read from the source."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ramify

SOURCE = Path(ramify.__file__).parent
ROOT = Path(__file__).parent.parent
# Floors from the lowest up; names on one floor never import each other. What stands at the top of the package is listed
# with the floor that it may be used from.
FLOORS = [
    {"version", "_core"},
    {"base"},
    {"native"},
    {"io"},
    {"features", "labels", "index", "metrics", "datasets"},
    {"rank"},
    {"nn"},
    {"models"},
    {"distributed", "plots", "serve"},
    {"cli"},
    {"__main__"},
]
FLOOR = {name: height for height, floor in enumerate(FLOORS) for name in floor}
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "ramify":
                found += [(node.lineno, f"ramify.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, node.module or ""))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down_only(path):
    mine = part_of(path)
    if mine == "__init__":
        return  # the public face names everything, lazily
    assert mine in FLOOR, f"{mine} stands on no floor: add it to FLOORS and to ARCHITECTURE.md"
    for line, name in imports(path):
        parts = name.split(".")
        if parts[0] != "ramify" or len(parts) == 1:
            continue
        other = parts[1]
        assert other in FLOOR, f"{path}:{line}: {name} stands on no floor"
        allowed = other == mine or FLOOR[other] < FLOOR[mine]
        assert allowed, f"{path}:{line}: {mine} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_forbidden_imports(path):
    mine = part_of(path)
    neural = {"elias", "xtransformer", "xrtransformer", "lightdxml", "astec", "neural"}
    homes = {
        "torch": mine in ("nn", "distributed") or path.stem in neural,
        "transformers": mine == "nn",
        "fastapi": mine == "serve",
        "uvicorn": mine == "serve",
        "matplotlib": mine == "plots",
        "ray": mine == "distributed",
        "pickle": False,
        "joblib": False,
        "dill": False,
        "cloudpickle": False,
    }
    for line, name in imports(path):
        top = name.split(".")[0]
        assert homes.get(top, True), f"{path}:{line}: {name} must not be imported here"
        if name in ("ramify._core",):
            assert mine == "native", f"{path}:{line}: the compiled module is imported only in native/"
    assert "torch.load(" not in path.read_text()


def test_only_the_bindings_know_python():
    for path in (ROOT / "cpp").rglob("*.*"):
        text = path.read_text()
        assert path.parent.name == "bindings" or ("nanobind/" not in text and "Python.h" not in text), path


def test_import_is_light():
    code = (
        "import sys, ramify; loaded = [m for m in ('torch', 'sklearn', 'scipy', 'numpy') if m in sys.modules];"
        "assert not loaded, loaded; ramify.Popular; ramify.features.Tfidf;"
        "assert 'sklearn' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_stub_is_current():
    pytest.importorskip("nanobind")
    made = runpy.run_path(str(ROOT / "cpp" / "bindings" / "make_stub.py"))["make_stub"]()
    written = (SOURCE / "_core.pyi").read_text()
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(made)), "run `make stub` and commit src/ramify/_core.pyi"


def test_no_large_files_and_no_path_of_this_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.is_file():
            assert path.stat().st_size < 300_000, f"{name} is large for a source file"
            assert str(ROOT) not in path.read_text(), f"{name} names the path of this checkout"
