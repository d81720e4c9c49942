"""What the tests of the command line share: a small data set, and ways to run a command."""

from __future__ import annotations

import json
import subprocess
import sys

from neural import topics

from ramify.cli.main import main

TEXTS, LABELS = topics(200, 30)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments, **options):
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ramify", *map(str, arguments)], capture_output=True, text=True, **options
    )


def output(capsys, *arguments, code=0):
    """Run a command within this process: its standard output, or the errors of one that is to fail."""
    found = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out if code == 0 else captured.err
