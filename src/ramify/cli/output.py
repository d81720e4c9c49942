"""Output of the commands: tables on a terminal, plain aligned text in a pipe; messages on standard error."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence

from ramify.io.dataset import SkippedLine

STYLES = ("text", "csv", "markdown", "latex")
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+")
"""Numbers as people read them; programs that read CSV do not."""


def print_table(
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    header: bool = True,
    style: str = "text",
    is_first: bool = True,
) -> None:
    """Print rows as a table; with `header`, the first row is the header.

    An empty line separates a table that is not the first one from those before it, in CSV, Markdown and LaTeX.
    """
    if style != "text":
        lines = [] if is_first else [""]
        if title and style != "csv":
            lines += [f"**{title}**", ""] if style == "markdown" else [f"% {title}"]
        print("\n".join([*lines, format_table(rows, style)]))
        return
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


def format_table(rows: Sequence[Sequence[str]], style: str) -> str:
    """Format rows, header first, as CSV, Markdown or LaTeX (with booktabs)."""
    if style == "csv":
        out = io.StringIO()
        plain = ([cell.replace(",", "") if _GROUPED.fullmatch(cell) else cell for cell in row] for row in rows)
        csv.writer(out, lineterminator="\n").writerows(plain)
        return out.getvalue().rstrip("\n")
    head, *body = rows
    if style == "markdown":
        lines = [head, ["---", *(["---:"] * (len(head) - 1))], *body]
        return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in lines)
    columns = "l" + "r" * (len(head) - 1)
    cells = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in rows]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            cells[0],
            r"\midrule",
            *cells[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _latex(text: str) -> str:
    return "".join(f"\\{c}" if c in "&%$#_{}" else {"±": r"$\pm$", "\\": r"\textbackslash{}"}.get(c, c) for c in text)


def print_message(message: str) -> None:
    """Print a message to standard error, separate from the results."""
    print(message, file=sys.stderr)


def report_skipped(name: str, n_skipped: int, skipped: Sequence[SkippedLine]) -> None:
    """Print the number of skipped bad lines and the first of them."""
    if not n_skipped and not skipped:
        return
    print_message(f"{name}: {n_skipped:,} bad line{'' if n_skipped == 1 else 's'} skipped")
    for bad in skipped[:5]:
        print_message(f"  line {bad.line}: {bad.reason}")
    if n_skipped > 5:
        print_message("  …")
