"""The pictures of the benchmark's page as SVG: lines with intervals, and bars with their figures.

Each has a ground of its own, light or dark as the reader's system asks, so that it can be read on any page. Colours
belong to a method in all pictures, and every bar and line has its name beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Bars", "Panel", "Point", "draw_bars", "draw_lines"]

_COLOURS = {
    "Everlong": "#2f81d8",
    "Everlong, no model": "#35a7b5",
    "hermes-agent": "#d9772b",
    "LangChain": "#3d9950",
    "LangChain, untrimmed": "#8aa82f",
    "OpenHands": "#b05fc4",
    "sliding window": "#8a8f98",
    "head + tail": "#b5923c",
    "BM25 (SQLite FTS5)": "#8a8f98",
    "MiniLM": "#d9772b",
    "Everlong, words": "#35a7b5",
    "Everlong, words and meaning": "#2f81d8",
}
_OTHERS = ("#d9772b", "#3d9950", "#b05fc4", "#8a8f98")
_STYLE = (
    "<style>.ground{fill:#ffffff}.ink{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d1d9e0}"
    "@media (prefers-color-scheme: dark){.ground{fill:#161b22}.ink{fill:#e6edf3}.faint{fill:#9198a1}"
    ".grid{stroke:#30363d}}</style>"
)
_WIDTH = 860
_PANEL_WIDTH, _PANEL_HEIGHT, _GAP = 230, 220, 46
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


class Point(NamedTuple):
    """A value with its interval, at a place."""

    x: float
    y: float
    low: float
    high: float


class Panel(NamedTuple):
    """One plot of lines, values from 0 to 1."""

    title: str
    across: str
    lines: Mapping[str, Sequence[Point]]


class Bars(NamedTuple):
    """A group of bars."""

    title: str
    values: Mapping[str, float | None]
    form: str = ".2f"
    most: float | None = None
    """The value of a bar of full length; the largest one without it."""
    note: str = ""


def _colour(name: str, place: int) -> str:
    return _COLOURS.get(name, _OTHERS[place % len(_OTHERS)])


def _frame(title: str, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><title>{escape(title)}</title>{_STYLE}',
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="6"/>',
        f'<text class="ink" x="20" y="28" font-size="15" font-weight="600">{escape(title)}</text>',
    ]


def draw_lines(title: str, panels: Sequence[Panel]) -> str:
    """Return panels side by side, with one legend below."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    legend_rows = (len(names) + 3) // 4
    height = 60 + _PANEL_HEIGHT + 50 + 20 * legend_rows
    drawn = _frame(title, height)
    for place, panel in enumerate(panels):
        drawn += _panel(panel, 50 + place * (_PANEL_WIDTH + _GAP), 70)
    for place, name in enumerate(names):
        x, y = 30 + 205 * (place % 4), 60 + _PANEL_HEIGHT + 56 + 20 * (place // 4)
        colour = _colour(name, place)
        drawn.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 22}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>')
        drawn.append(f'<text class="ink" x="{x + 28}" y="{y}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>", ""])


def _panel(panel: Panel, left: int, top: int) -> list[str]:
    bottom = top + _PANEL_HEIGHT - 30
    most = max((point.x for points in panel.lines.values() for point in points), default=0.5) * 1.1
    tall = bottom - top

    def at(x: float, y: float) -> tuple[float, float]:
        return round(left + x / most * _PANEL_WIDTH, 1), round(bottom - y * tall, 1)

    drawn = [f'<text class="ink" x="{left}" y="{top - 12}" font-weight="600">{escape(panel.title)}</text>']
    for tick in _TICKS:
        _, y = at(0, tick)
        drawn.append(f'<line class="grid" x1="{left}" y1="{y}" x2="{left + _PANEL_WIDTH}" y2="{y}"/>')
        drawn.append(f'<text class="faint" x="{left - 6}" y="{y + 4}" text-anchor="end">{tick:.2f}</text>')
    for number in range(int(most * 10) + 1):
        x, _ = at(number / 10, 0)
        drawn.append(f'<text class="faint" x="{x}" y="{bottom + 16}" text-anchor="middle">{number / 10:.1f}</text>')
    middle = left + _PANEL_WIDTH // 2
    drawn.append(
        f'<text class="faint" x="{middle}" y="{bottom + 34}" text-anchor="middle">{escape(panel.across)}</text>'
    )
    for place, (name, points) in enumerate(panel.lines.items()):
        colour = _colour(name, place)
        path = " ".join(f"{x},{y}" for x, y in (at(point.x, point.y) for point in points))
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        for point in points:
            (x, y), (_, low), (_, high) = at(point.x, point.y), at(point.x, point.low), at(point.x, point.high)
            drawn.append(f'<line x1="{x}" y1="{low}" x2="{x}" y2="{high}" stroke="{colour}" stroke-opacity="0.5"/>')
            told = f"{name}: {point.y:.2f} ({point.low:.2f}–{point.high:.2f}) at {point.x:.2f} of the tokens"
            drawn.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"><title>{escape(told)}</title></circle>')
    return drawn


def draw_bars(title: str, groups: Sequence[Bars]) -> str:
    """Return groups of bars, one below the other, each bar with its name and figure."""
    rows = sum(len(group.values) for group in groups)
    height = 50 + 20 * rows + 46 * len(groups)
    drawn = _frame(title, height)
    y = 50
    for group in groups:
        y += 18
        note = f'<tspan class="faint" font-weight="400">  {escape(group.note)}</tspan>' if group.note else ""
        drawn.append(f'<text class="ink" x="20" y="{y}" font-weight="600">{escape(group.title)}{note}</text>')
        y += 8
        known = [value for value in group.values.values() if value is not None]
        most = group.most or max(known, default=1.0) or 1.0
        for place, (name, value) in enumerate(group.values.items()):
            y += 20
            drawn.append(f'<text class="ink" x="200" y="{y}" text-anchor="end">{escape(name)}</text>')
            if value is None:
                drawn.append(f'<text class="faint" x="210" y="{y}">not measured</text>')
                continue
            wide = round(max(1.0, 540 * max(0.0, value) / most), 1)
            drawn.append(
                f'<rect x="208" y="{y - 12}" width="{wide}" height="15" rx="2" fill="{_colour(name, place)}"/>'
            )
            drawn.append(f'<text class="ink" x="{214 + wide}" y="{y}">{value:{group.form}}</text>')
        y += 20
    return "\n".join([*drawn, "</svg>", ""])
