"""Charts as SVG text, which a page shows and prints without a script.

Colours come from the style sheet of the page, so that they follow light, dark and print. ``assets/chart.js`` has the
same :func:`number` and :func:`ticks` for what is drawn or read in the browser.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WIDTH, HEIGHT = 520, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 46
_IN_SCRIPTS = re.compile("[<>&\u2028\u2029]")
_LEADING_ZERO = re.compile(r"(?<=e[+-])0")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high`, about five of them."""
    if not high > low:
        return [low]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1.0, 2.0, 2.5, 5.0, 10.0) if size * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def number(value: float) -> str:
    """Return a number with three digits, or all of them before the decimal point."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "–∞" if value < 0 else "–"
    rounded = f"{value:.3g}"
    if 1e3 <= abs(float(rounded)) < 1e6:
        return f"{value:,.0f}"
    return _LEADING_ZERO.sub("", rounded)


@dataclass
class SvgChart:
    """A chart with two axes of given ranges, and a description (`alt`) for screen readers.

    `y_names` stand in place of numbers on the vertical axis, from the top, for rows of intervals.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    x_title: str
    y_title: str
    alt: str
    y_names: Sequence[str] = ()
    parts: list[str] = field(default_factory=list)
    series: list[dict[str, Any]] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)

    @property
    def _left(self) -> float:
        return _LEFT if not self.y_names else min(220.0, 24 + 6.6 * max(len(name) for name in self.y_names))

    @property
    def _height(self) -> float:
        return HEIGHT if not self.y_names else _TOP + _BOTTOM + 30 * len(self.y_names)

    def _px(self, value: float) -> float:
        return round(self._left + _share(value, self.x) * (WIDTH - self._left - _RIGHT), 2)

    def _py(self, value: float) -> float:
        return round(self._height - _BOTTOM - _share(value, self.y) * (self._height - _TOP - _BOTTOM), 2)

    def _points(self, x: np.ndarray, y: np.ndarray) -> str:
        return " ".join(f"{self._px(a)},{self._py(b)}" for a, b in zip(x, y, strict=True))

    def line(
        self,
        name: str,
        x: Any,
        y: Any,
        colour: int,
        *,
        steps: bool = False,
        dashed: bool = False,
        band: tuple[Any, Any] | None = None,
        band_name: str = "",
    ) -> None:
        """Draw a line, as steps if it is one of steps, with a band (lower and upper end) around it.

        The names are for the legend and the values under the pointer; `colour` is its number in the style sheet.
        """
        xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        key = len(self.series)
        entry: dict[str, Any] = {"name": name, "colour": colour, "steps": steps}
        entry.update(x=_rounded(xs, 6), y=_rounded(ys))
        drawn = f'<g class="series" data-series="{key}">'
        if band is not None:
            low, high = (np.asarray(end, dtype=float) for end in band)
            entry.update(low=_rounded(low), high=_rounded(high), band=band_name)
            lower, upper = (stepped(xs, end) if steps else (xs, end) for end in (low, high))
            outline = self._points(*lower) + " " + self._points(upper[0][::-1], upper[1][::-1])
            drawn += f'<polygon class="band fill{colour}" points="{outline}"/>'
        style = f"line stroke{colour}" + (" dashed" if dashed else "")
        drawn += f'<polyline class="{style}" points="{self._points(*(stepped(xs, ys) if steps else (xs, ys)))}"/></g>'
        self.parts.append(drawn)
        self.series.append(entry)
        self.legend.append((name, f"stroke{colour}" + (" dashed" if dashed else "")))

    def _interval(self, text: str, line: str, mark: str, colour: int) -> None:
        self.parts.append(
            f'<g class="dot"><title>{html.escape(text)}</title><line {line}/>'
            f'<circle class="mark{colour}" {mark} r="4"/></g>'
        )

    def dots(self, x: Any, y: Any, low: Any, high: Any, colour: int, words: Sequence[str]) -> None:
        """Draw points with vertical intervals; a browser shows `words` under the pointer."""
        for a, b, c, d, text in zip(x, y, low, high, words, strict=True):
            px = self._px(a)
            line = f'class="line stroke{colour}" x1="{px}" x2="{px}" y1="{self._py(c)}" y2="{self._py(d)}"'
            self._interval(text, line, f'cx="{px}" cy="{self._py(b)}"', colour)

    def intervals(self, middle: Any, low: Any, high: Any, colour: int, words: Sequence[str]) -> None:
        """Draw one horizontal interval for each of `y_names`."""
        for k, (a, b, c, text) in enumerate(zip(middle, low, high, words, strict=True)):
            y = _TOP + 30 * k + 15
            line = f'class="thick stroke{colour}" x1="{self._px(b)}" x2="{self._px(c)}" y1="{y}" y2="{y}"'
            self._interval(text, line, f'cx="{self._px(a)}" cy="{y}"', colour)

    def bars(self, edges: Any, heights: Any, colour: int, words: Sequence[str]) -> None:
        """Draw bars from 0, between edges."""
        for left, right, height, text in zip(edges[:-1], edges[1:], heights, words, strict=True):
            top, bottom = self._py(height), self._py(0.0)
            start, width = self._px(left) + 1, self._px(right) - self._px(left) - 2
            self.parts.append(
                f'<rect class="bar fill{colour}" x="{start:.2f}" width="{width:.2f}" y="{top}" '
                f'height="{bottom - top:.2f}"><title>{html.escape(text)}</title></rect>'
            )

    def rule(self, *, across: float | None = None, up: float | None = None, diagonal: bool = False) -> None:
        """Draw a thin line to compare with."""
        lines = [(self.x, (across, across))] if across is not None else []
        lines += [((up, up), self.y)] if up is not None else []
        lines += [(self.x, self.y)] if diagonal else []
        for x, y in lines:
            place = f'x1="{self._px(x[0])}" y1="{self._py(y[0])}" x2="{self._px(x[1])}" y2="{self._py(y[1])}"'
            self.parts.append(f'<line class="rule" {place}/>')

    def svg(self) -> str:
        """Return the picture."""
        bottom, left = self._height - _BOTTOM, self._left
        lines = [f'<line class="axis" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>']
        for value in ticks(*self.x):
            x = self._px(value)
            lines.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
            lines.append(f'<text class="tick" x="{x}" y="{bottom + 17}" text-anchor="middle">{number(value)}</text>')
        for k, name in enumerate(self.y_names):
            base = _TOP + 30 * k + 19
            lines.append(f'<text class="tick" x="{left - 8}" y="{base}" text-anchor="end">{html.escape(name)}</text>')
        for value in () if self.y_names else ticks(*self.y):
            y = self._py(value)
            lines.append(f'<line class="grid" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
            lines.append(f'<text class="tick" x="{left - 7}" y="{y + 4}" text-anchor="end">{number(value)}</text>')
        middle = (left + WIDTH - _RIGHT) / 2
        title = html.escape(self.x_title)
        lines.append(f'<text class="title" x="{middle}" y="{self._height - 8}" text-anchor="middle">{title}</text>')
        if self.y_title:
            centre = (_TOP + bottom) / 2
            lines.append(
                f'<text class="title" transform="translate(14 {centre}) rotate(-90)" text-anchor="middle">'
                f"{html.escape(self.y_title)}</text>"
            )
        head = f'<svg class="chart" viewBox="0 0 {WIDTH} {self._height:g}" role="img"'
        return f'{head} aria-label="{html.escape(self.alt)}">{"".join(lines)}{"".join(self.parts)}</svg>'

    def data(self) -> str:
        """Return what the script of the page reads values from, as JSON that can stand inside an HTML page."""
        box = (self._left, WIDTH - _RIGHT, _TOP, self._height - _BOTTOM)
        content = {"xTitle": self.x_title, "range": self.x, "box": box, "series": self.series}
        text = json.dumps(content, ensure_ascii=False)
        # A name such as "<!--<script>" would otherwise keep the page from seeing where the script ends.
        return _IN_SCRIPTS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def stepped(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a step function that takes the value y[k] from x[k] on."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _share(value: float, ends: tuple[float, float]) -> float:
    """Return where a value lies on an axis, from 0 to 1; one beyond an end is drawn there."""
    low, high = ends
    return (min(max(value, low), high) - low) / (high - low)


def _rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values.tolist()]
