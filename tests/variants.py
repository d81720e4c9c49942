"""The same code with every instruction set that this machine has, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def digests(code: str, directory: Path) -> dict[str, str]:
    """Run code that prints the instruction set and a digest of its results; it can import from `directory`."""
    found = {}
    for isa in ("baseline", "avx2", "avx512"):
        env = {
            **os.environ,
            "RAMIFY_ISA": isa,
            "PYTHONPATH": os.pathsep.join(
                [str(directory), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        name, digest = out.stdout.split()
        found[name] = digest
    return found
