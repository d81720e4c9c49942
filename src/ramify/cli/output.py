"""What the commands print: tables for people on a terminal, plain aligned lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ramify.io.dataset import Dataset


def print_table(rows: Sequence[Sequence[str]], title: str | None = None, header: bool = True) -> None:
    """Print rows as a table; the first one is the header."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title, title_justify="left", show_header=header)
        for i in range(len(rows[0])):
            table.add_column(
                rows[0][i] if header else "",
                justify="left" if i == 0 else "right" if header else "left",
                overflow="fold",
            )
        for row in rows[1:] if header else rows:
            table.add_row(*row)
        Console().print(table)
        return
    if title:
        print(title)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        first, *rest = (
            cell.ljust(w) if i == 0 or not header else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip())


def say(message: str) -> None:
    """Tell a person something that is not the result: on the error stream."""
    print(message, file=sys.stderr)


def report_skipped(data: Dataset) -> None:
    """Say how many bad lines were left out, and show the first."""
    if not data.n_skipped and not data.skipped:
        return
    say(f"{data.name}: {data.n_skipped:,} bad lines were left out")
    for bad in data.skipped[:5]:
        say(f"  line {bad.line}: {bad.reason}")
    if data.n_skipped > 5:
        say("  …")
