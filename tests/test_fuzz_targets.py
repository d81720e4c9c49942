"""The native fuzz targets compile with the present code, and `make fuzz` runs all of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent.parent / "fuzz"
TARGETS = sorted(path.stem for path in (FUZZ / "native").glob("*.cpp"))


def test_the_targets_compile(tmp_path):
    compiler = shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    entry = "LLVMFuzzerTestOneInput"
    lines = [f'#define {entry} fuzz_{name}\n#include "{FUZZ}/native/{name}.cpp"\n#undef {entry}' for name in TARGETS]
    (tmp_path / "all.cpp").write_text("\n".join(lines) + "\n")
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{FUZZ.parent / 'cpp'}", str(tmp_path / "all.cpp")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]


def test_make_runs_every_target():
    if shutil.which("make") is None:
        pytest.skip("needs make")
    result = subprocess.run(["make", "-n", "-C", str(FUZZ), "run"], capture_output=True, text=True, check=True)
    for name in TARGETS:
        assert f"bin/{name} -max_total_time" in result.stdout, name
