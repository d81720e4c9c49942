"""Tables in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


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
