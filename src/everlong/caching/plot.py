"""Line charts with labelled axes, as SVG or as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module

from everlong.errors import EverlongError
from everlong.extras import install_command

__all__ = ["Chart", "draw_svg", "draw_text", "to_png"]

_WIDTH, _PANEL, _LEFT, _RIGHT, _GAP, _TOP = 900, 220, 90, 230, 80, 40
_COLOURS = ("#666666", "#c8553d", "#1b6ca8", "#588157", "#8e4c9a", "#b08900", "#10606b", "#222222")
_DASHES = ("", "8 4", "2 3", "10 3 2 3", "5 2", "1 3", "12 5", "4 4")
_MARKS = "abcdefghijklmnop"
_TEXT_HEIGHT = 12
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the same steps."""

    title: str
    across: str
    """What the steps are: the label of the horizontal axis."""
    upwards: str
    """What the values are: the label of the vertical axis."""
    lines: Mapping[str, Sequence[float]]
    form: str = ",.2f"
    """The format of the figures."""
    first: int = 1
    last: int | None = None
    """The numbers of the first and the last step; without a last, steps are counted."""

    @property
    def most(self) -> float:
        """The largest value."""
        return max((value for values in self.lines.values() for value in values), default=1.0) or 1.0

    @property
    def steps(self) -> int:
        """The steps of the longest line."""
        return max((len(values) for values in self.lines.values()), default=1)

    def number(self, share: float) -> int:
        """Return the number of the step at a share of the way."""
        last = self.first + self.steps - 1 if self.last is None else self.last
        return round(self.first + (last - self.first) * share)


# -- as SVG ------------------------------------------------------------------------------------------------------------


def draw_svg(title: str, charts: Sequence[Chart]) -> str:
    """Return the SVG of several charts, one below the other."""
    height = len(charts) * (_PANEL + _GAP) + _TOP
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )
    lines = [line for place, chart in enumerate(charts) for line in _panel(chart, _TOP + place * (_PANEL + _GAP))]
    return "\n".join([frame, *lines, "</svg>", ""])


def _panel(chart: Chart, top: int) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, top + _PANEL
    room = right - _LEFT
    lines = [f'<text x="{_LEFT}" y="{top - 14}" font-size="14">{escape(chart.title)}</text>']
    for tick in range(_TICKS + 1):
        y, x = round(bottom - _PANEL * tick / _TICKS, 1), round(_LEFT + room * tick / _TICKS, 1)
        figure = f"{chart.most * tick / _TICKS:{chart.form}}"
        lines += [
            f'<line x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{figure}</text>',
            f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{chart.number(tick / _TICKS):,}</text>',
        ]
    middle = round(top + _PANEL / 2)
    lines += [
        f'<text x="{_LEFT + room // 2}" y="{bottom + 36}" text-anchor="middle">{escape(chart.across)}</text>',
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">'
        f"{escape(chart.upwards)}</text>",
    ]
    for place, (name, values) in enumerate(chart.lines.items()):
        colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)]
        look = f'fill="none" stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
        points = " ".join(
            f"{round(_LEFT + room * at / max(1, chart.steps - 1), 1)},{round(bottom - _PANEL * value / chart.most, 1)}"
            for at, value in enumerate(values)
        )
        y = top + 8 + 18 * place
        last = f" {values[-1]:{chart.form}}" if values else ""
        lines += [
            f'<polyline class="series" {look} points="{points}"/>',
            f'<line x1="{right + 14}" y1="{y}" x2="{right + 44}" y2="{y}" {look}/>',
            f'<text x="{right + 50}" y="{y + 4}" fill="{colour}">{escape(name + last)}</text>',
        ]
    return lines


# -- as text -----------------------------------------------------------------------------------------------------------


def draw_text(charts: Sequence[Chart], width: int = 80) -> str:
    """Return several charts as text: a letter for each line, and ``*`` where lines meet."""
    return "\n\n".join(_text_panel(chart, width) for chart in charts) + "\n"


def _text_panel(chart: Chart, width: int) -> str:
    scale = [f"{chart.most * row / (_TEXT_HEIGHT - 1):{chart.form}}" for row in range(_TEXT_HEIGHT)]
    margin = max(map(len, scale))
    columns = max(20, min(chart.steps, width - margin - 3))
    grid = [[" "] * columns for _ in range(_TEXT_HEIGHT)]
    for mark, values in zip(_MARKS, chart.lines.values(), strict=False):
        for column in range(columns if values else 0):
            value = values[min(len(values) - 1, round(column * (chart.steps - 1) / (columns - 1)))]
            cells = grid[round(max(0.0, value) / chart.most * (_TEXT_HEIGHT - 1))]
            cells[column] = mark if cells[column] == " " else "*"
    drawn = [chart.title, chart.upwards]
    for row in range(_TEXT_HEIGHT - 1, -1, -1):
        figure = scale[row] if row % 3 == 2 or row == 0 else ""
        drawn.append(f"{figure:>{margin}} │{''.join(grid[row])}".rstrip())
    drawn.append(f"{'':>{margin}} └{'─' * columns}")
    first, last = f"{chart.number(0):,}", f"{chart.across} {chart.number(1):,}"
    drawn.append(f"{'':>{margin}}  {first}{last:>{columns - len(first)}}")
    for mark, (name, values) in zip(_MARKS, chart.lines.items(), strict=False):
        drawn.append(f"  {mark}  {name}: {values[-1] if values else 0:{chart.form}}")
    return "\n".join([*drawn, "  *  several lines"])


def to_png(svg: str, path: str) -> None:
    """Write the picture as PNG; raise if no converter is installed."""
    try:
        converter = import_module("cairosvg")
    except ImportError as error:
        raise EverlongError(
            f"cannot write {path}: PNG needs the package cairosvg ({install_command('png')}); or write an .svg"
        ) from error
    converter.svg2png(bytestring=svg.encode(), write_to=path)
