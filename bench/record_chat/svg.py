"""A screen as a picture: letters in a grid, with their colours, in one SVG file that loads nothing."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    import pyte

__all__ = ["picture"]

_WIDE, _HIGH, _EDGE = 8.4, 18, 14
_COLOURS = {
    "default": "#d8dee9",
    "black": "#3b4252",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#e5e9f0",
}
_GROUND = "#1e2127"


def picture(screen: pyte.Screen, title: str) -> str:
    """Return the screen as SVG."""
    width, height = round(screen.columns * _WIDE + 2 * _EDGE), screen.lines * _HIGH + 2 * _EDGE
    rows = "".join(_row(screen, line) for line in range(screen.lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{_GROUND}"/>\n{rows}</svg>\n'
    )


def _row(screen: pyte.Screen, line: int) -> str:
    cells = [(column, screen.buffer[line][column]) for column in range(screen.columns)]
    drawn = ""
    for look, group in groupby(cells, key=lambda cell: _look(cell[1])):
        run = list(group)
        text = "".join(char.data for _, char in run)
        colour, ground, weight = look
        x, y = _EDGE + run[0][0] * _WIDE, _EDGE + line * _HIGH
        if ground:
            drawn += f'<rect x="{x:.1f}" y="{y}" width="{len(run) * _WIDE:.1f}" height="{_HIGH}" fill="{ground}"/>'
        if text.strip():
            # Each run is as long as its cells, whatever the font that a reader has.
            length = f'textLength="{len(run) * _WIDE:.1f}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"'
            drawn += f'<text x="{x:.1f}" y="{y + 13}" fill="{colour}"{weight} {length}>{escape(text)}</text>'
    return f"{drawn}\n" if drawn else ""


def _look(char: Any) -> tuple[str, str, str]:
    """Return colour, background and weight."""
    colour, ground = _colour(char.fg, _COLOURS["default"]), _colour(char.bg, "")
    if char.reverse:
        colour, ground = ground or _GROUND, colour
    return colour, ground, ' font-weight="bold"' if char.bold else ""


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return _COLOURS.get(name.removeprefix("bright"), f"#{name}" if len(name) == 6 else default)
