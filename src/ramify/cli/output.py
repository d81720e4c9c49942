"""Output of the commands: tables on a terminal, plain aligned text in a pipe; messages on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ramify.io.dataset import SkippedLine


def print_table(rows: Sequence[Sequence[str]], title: str | None = None, header: bool = True) -> None:
    """Print rows as a table; with `header`, the first row is the header."""
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


def print_message(message: str) -> None:
    """Print a message to standard error, separate from the results."""
    print(message, file=sys.stderr)


def report_skipped(name: str, n_skipped: int, skipped: Sequence[SkippedLine]) -> None:
    """Print the number of skipped bad lines and the first of them."""
    if not n_skipped and not skipped:
        return
    print_message(f"{name}: {n_skipped:,} bad lines skipped")
    for bad in skipped[:5]:
        print_message(f"  line {bad.line}: {bad.reason}")
    if n_skipped > 5:
        print_message("  …")
