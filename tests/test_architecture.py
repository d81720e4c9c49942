"""The layering rule, the forbidden imports and the size of modules, read from the source; the public names."""

from __future__ import annotations

import ast
import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ramify

SOURCE = Path(ramify.__file__).parent
ROOT = Path(__file__).parent.parent
# Layers from the lowest up: a module imports only from lower layers and from its own folder. Folders of one layer never
# import each other.
LAYERS = [
    {"version", "_core"},
    {"base"},
    {"native"},
    {"io"},
    {"features", "labels", "index", "metrics", "datasets"},
    {"rank"},
    {"nn"},
    {"models"},
    {"distributed", "plots", "report", "serve", "annif"},
    {"cli"},
    {"__main__"},
]
LAYER = {name: height for height, layer in enumerate(LAYERS) for name in layer}
# Where a package may be imported: folders of src/ramify. An empty list forbids it everywhere.
HOMES = {
    "ramify._core": ["native"],
    "torch": ["nn", "distributed"],
    "transformers": ["nn"],
    "tokenizers": ["nn"],
    "faiss": ["index/ann"],
    "onnx": ["nn/encoders/backends"],
    "onnxruntime": ["nn/encoders/backends"],
    "onnxscript": ["nn/encoders/backends"],
    "matplotlib": ["plots", "plots.py"],
    "optuna": ["cli/tune.py"],
    **{name: ["base/ranking.py"] for name in ("pandas", "polars")},
    "pyarrow": ["base/ranking.py", "io", "cli/predictions.py"],
    "ray": ["distributed"],
    **{name: ["serve"] for name in ("fastapi", "starlette", "uvicorn", "flask", "aiohttp", "http.server")},
    "annif": ["annif"],
    **{name: [] for name in ("pickle", "_pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve")},
}
MAX_LINES = 420
# Modules that may be longer, with the reason.
LONG_MODULES: dict[str, str] = {}
FILES = sorted(SOURCE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(source: str) -> list[tuple[int, str]]:
    """Line and full name of everything that is imported, also within functions and by `import_module`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", None))
            if function in ("import_module", "__import__"):
                found.append((node.lineno, str(node.args[0].value)))
    return found


def forbidden(name: str, path: str) -> bool:
    """Whether a module, given by its path below src/ramify, must not import a name."""
    for package, homes in HOMES.items():
        if name == package or name.startswith(f"{package}."):
            return not any(path == home or path.startswith(f"{home}/") for home in homes)
    return False


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_go_down_only(path):
    mine = part_of(path)
    if mine == "__init__":
        return  # the public API imports everything, lazily
    assert mine in LAYER, f"{mine} is in no layer: add it to LAYERS and to ARCHITECTURE.md"
    for line, name in imports(path.read_text()):
        parts = name.split(".")
        if parts[0] != "ramify" or len(parts) == 1:
            continue
        other = parts[1]
        assert other in LAYER, f"{path}:{line}: {name} is in no layer"
        allowed = other == mine or LAYER[other] < LAYER[mine]
        assert allowed, f"{path}:{line}: {mine} must not import {other}"


def test_the_layering_rule_is_documented():
    rule = next(line for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines() if line.startswith("    base < "))
    documented = [set(layer.split(" | ")) for layer in rule.strip().split(" < ")]
    modules = {"version", "_core", "datasets", "__main__"}  # at the top of the package
    assert documented == [layer - modules for layer in LAYERS if layer - modules]
    assert {part_of(path) for path in FILES if path.parent != SOURCE} <= set().union(*documented)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_forbidden_imports(path):
    source = path.read_text()
    for line, name in imports(source):
        assert not forbidden(name, relative(path)), f"{path}:{line}: {name} must not be imported here"
    for call in ("torch.load(", "allow_pickle=True", "trust_remote_code=True"):
        assert call not in source, f"{path}: {call} runs code that a file contains"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("ramify._core", "rank/linear.py"),
        ("torch.nn", "models/elias/model.py"),
        ("transformers.AutoModel", "models/encoded.py"),
        ("faiss", "index/tree.py"),
        ("onnxruntime", "nn/encoders/transformer.py"),
        ("matplotlib.figure", "cli/commands.py"),
        ("fastapi.FastAPI", "cli/main.py"),
        ("pickle", "io/store.py"),
        ("joblib.dump", "nn/checkpoint.py"),
    ],
)
def test_forbidden_imports_are_found(name, path):
    assert forbidden(name, path)
    package, _, last = name.rpartition(".")
    statement = f"from {package} import {last}" if package else f"import {name}"
    assert imports(f"def function():\n    {statement}") == [(2, name)]
    assert imports(f"importlib.import_module({name!r})") == [(1, name)]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("ramify._core", "native/linear.py"),
        ("torch", "nn/heads/graph_torch.py"),
        ("torch.distributed", "distributed/train.py"),
        ("faiss", "index/ann/faiss_index.py"),
        ("onnxruntime.quantization", "nn/encoders/backends/onnx.py"),
        ("matplotlib.figure", "plots.py"),
        ("torchlike", "models/base.py"),
        ("json", "io/store.py"),
    ],
)
def test_allowed_imports(name, path):
    assert not forbidden(name, path)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_modules_are_short(path):
    n_lines = len(path.read_text().splitlines())
    if relative(path) in LONG_MODULES:
        assert n_lines > MAX_LINES, f"{path} has {n_lines} lines: remove it from LONG_MODULES"
    else:
        assert n_lines <= MAX_LINES, f"{path} has {n_lines} lines: split it"


# ---- public names ----


@pytest.mark.parametrize("name", ramify.__all__)
def test_public_names_are_documented(name):
    value = getattr(ramify, name)
    if name == "__version__":
        assert isinstance(value, str)
        return
    doc = value.__doc__  # of the object itself, not of a base class
    assert doc, f"ramify.{name} has no docstring"
    assert not doc.startswith(f"{name}("), f"ramify.{name} has no docstring but the signature of a dataclass"
    if inspect.isclass(value):
        for member, attribute in inspect.getmembers(value):
            is_code = inspect.isroutine(attribute) or isinstance(attribute, property)
            if is_code and not member.startswith("_"):
                assert inspect.getdoc(attribute), f"ramify.{name}.{member} has no docstring"


def test_public_names_are_complete():
    """`__all__`, the lazy imports and those for type checkers name the same objects."""
    assert ramify.__all__ == sorted(ramify.__all__)
    assert len(set(ramify.__all__)) == len(ramify.__all__)
    lazy = {*ramify._MODULE_OF, *ramify._MODULES}
    assert set(ramify.__all__) == lazy == set(dir(ramify))
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(typed.test) == "TYPE_CHECKING"
    found = {alias.name: node.module for node in typed.body for alias in node.names}
    assert found == {**ramify._MODULE_OF, **dict.fromkeys(ramify._MODULES, "ramify")}
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        ramify.Nonsense  # noqa: B018


def test_every_model_is_public():
    from ramify.models import REGISTRY

    for module, name in REGISTRY.values():
        assert ramify._MODULE_OF[name] == module


# ---- native core ----


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


def test_no_large_files_and_no_path_of_this_checkout():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.is_file():
            assert path.stat().st_size < 300_000, f"{name} is large for a source file"
            assert str(ROOT).encode() not in path.read_bytes(), f"{name} names the path of this checkout"
