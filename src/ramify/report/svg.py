"""Plots as SVG text: axes, lines, bars and markers. Colors come from classes of the style sheet, never from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

MARGIN = {"left": 52.0, "right": 16.0, "top": 14.0, "bottom": 42.0}


@dataclass(frozen=True)
class Scale:
    """Maps values from low to high to a length from start to end; the values of a log scale are positive."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value; values outside are drawn at the border."""
        low, high, x = (math.log(v) for v in (self.low, self.high, max(value, self.low))) if self.is_log else (
            self.low, self.high, value)  # fmt: skip
        fraction = (x - low) / (high - low) if high > low else 0.0
        return self.start + min(1.0, max(0.0, fraction)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values: 1, 2, 5 and 10 on a log scale, else about five steps of 1, 2 or 5."""
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [m * 10.0**d for d in decades for m in (1, 2, 5)]
        else:
            rough = (self.high - self.low) / 5 or 1.0
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
            first = math.ceil(self.low / step - 1e-9)
            found = [i * step for i in range(first, first + 12)]
        return [t for t in found if self.low - 1e-9 <= t <= self.high * (1 + 1e-9)]


@dataclass
class Plot:
    """A drawing area with axes. `add_` methods draw; `svg` returns the text."""

    title: str
    x: Scale
    y: Scale
    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        title: str,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        size: tuple[float, float] = (540, 290),
        is_log: bool = False,
        left: float = MARGIN["left"],
        bottom: float = MARGIN["bottom"],
    ) -> Plot:
        """Return an empty plot of a size, for ranges of x and y."""
        width, height = size
        across = Scale(*x, left, width - MARGIN["right"], is_log)
        return cls(title, across, Scale(*y, height - bottom, MARGIN["top"]), width, height)

    def axes(self, x_name: str, y_name: str, *, percent: bool = False, x_ticks: bool = True) -> Plot:
        """Draw grid lines, ticks and the names of the axes."""
        left, right = self.x.start, self.x.end
        for tick in self.y.ticks():
            at = self.y(tick)
            self.line(left, at, right, at, "grid")
            self.text(left - 8, at + 4, f"{_number(tick)}{' %' if percent else ''}", "tick", "end")
        if x_ticks:
            for tick in self.x.ticks():
                self.line(self.x(tick), self.y.start, self.x(tick), self.y.start + 4, "axis")
                self.text(self.x(tick), self.y.start + 18, _number(tick), "tick", "middle")
        self.line(left, self.y.start, right, self.y.start, "axis")
        if x_name:
            self.text((left + right) / 2, self.height - 6, x_name, "axis-name", "middle")
        if y_name:
            self.text(left, self.y.end - 3, y_name, "axis-name", "start")
        return self

    def line(self, x1: float, y1: float, x2: float, y2: float, name: str) -> None:
        """Draw a straight line between two positions."""
        self.parts.append(f'<path class="{name}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')

    def curve(self, values: Sequence[tuple[float, float]], name: str) -> None:
        """Draw a line through values (x, y)."""
        if values:
            at = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in values)
            self.parts.append(f'<path class="curve {name}" d="M{at}"/>')

    def band(self, values: Sequence[tuple[float, float, float]], name: str) -> None:
        """Fill the area between low and high of values (x, low, high)."""
        if len(values) > 1:
            there = [f"{self.x(x):.1f} {self.y(high):.1f}" for x, _, high in values]
            back = [f"{self.x(x):.1f} {self.y(low):.1f}" for x, low, _ in reversed(values)]
            self.parts.append(f'<path class="band {name}" d="M{"L".join([*there, *back])}Z"/>')

    def dot(self, x: float, y: float, name: str, radius: float = 3.5, hint: str = "") -> None:
        """Draw a filled circle at a position, with a hint for the mouse."""
        inside = f"<title>{escape(hint)}</title>" if hint else ""
        self.parts.append(f'<circle class="dot {name}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{inside}</circle>')

    def bar(self, x: float, y: float, width: float, height: float, name: str, hint: str = "") -> None:
        """Draw a rectangle, with a hint for the mouse."""
        inside = f"<title>{escape(hint)}</title>" if hint else ""
        self.parts.append(
            f'<rect class="bar {name}" x="{x:.1f}" y="{y:.1f}" width="{max(0, width):.1f}" '
            f'height="{max(0, height):.1f}">{inside}</rect>'
        )

    def text(self, x: float, y: float, text: str, name: str, anchor: str = "start") -> None:
        """Write a text at a position; everything is escaped."""
        self.parts.append(f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def svg(self) -> str:
        """Return the plot as an SVG element that scales with its container."""
        return (
            f'<svg class="plot" width="{self.width:g}" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.title, quote=True)}" xmlns="http://www.w3.org/2000/svg">'
            f"{''.join(self.parts)}</svg>"
        )


def _number(value: float) -> str:
    text = f"{value:.6g}"
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else text
