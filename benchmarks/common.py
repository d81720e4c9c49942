"""Shared by the benchmarks: measurements in fresh processes, and Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_child(
    code: str, *arguments: Any, python: str = sys.executable, env: dict[str, str] | None = None
) -> dict[str, float]:
    """Run code in a fresh process; it prints a JSON object as its last line."""
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **(env or {})},
    )
    if done.returncode != 0:
        raise SystemExit(f"a measurement failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def alternate(jobs: dict[str, Any], runs: int) -> dict[str, dict[str, float]]:
    """Run the jobs in turn, `runs` times each, and return the medians of what they report."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for _ in range(runs):
        for name, job in jobs.items():
            results[name].append(job())
    return {
        name: {key: statistics.median(r[key] for r in reports) for key in reports[0]}
        for name, reports in results.items()
    }


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * w for w in widths], *rows]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")


def print_machine() -> None:
    """Print interpreter, processor, cores and instruction set."""
    from ramify import native

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    print(f"{platform.python_implementation()} {platform.python_version()}, {model or platform.machine()}, "
          f"{os.cpu_count()} cores, {native.matrix.isa()}\n")  # fmt: skip
