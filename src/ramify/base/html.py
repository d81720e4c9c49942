"""Tables in notebooks; what the pages that Ramify writes and serves have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources

HIGHLIGHT_STEPS = 7
"""Shades of a highlighted word, in each direction."""


def html_table(rows: Sequence[Sequence[str]], caption: str = "", notes: Sequence[str] = ()) -> str:
    """HTML of a table, header first; everything is escaped."""
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = [f"<table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>"]
    for row in body:
        width = len(head) - len(row)
        padded = [*row, *[""] * width]
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in padded) + "</tr>")
    lines.append("</tbody></table>")
    lines += [f"<p>{escape(note)}</p>" for note in notes]
    return "\n".join(lines)


@cache
def theme() -> str:
    """Style sheet with the colors and fonts of all pages, light and dark."""
    return resources.files("ramify.base").joinpath("theme.css").read_text(encoding="utf-8")


def highlighted(pieces: Sequence[tuple[str, float]]) -> str:
    """HTML of a text in pieces, each with a weight: shaded by a class of `theme`, so that no style is inline."""
    largest = max((abs(weight) for _, weight in pieces), default=0.0) or 1.0
    parts = []
    for piece, weight in pieces:
        step = round(HIGHLIGHT_STEPS * abs(weight) / largest)
        if step == 0:
            parts.append(escape(piece))
            continue
        name = f"{'for' if weight > 0 else 'against'}-{step}"
        parts.append(f'<mark class="{name}" title="{weight:+.4f}">{escape(piece)}</mark>')
    return "".join(parts)
