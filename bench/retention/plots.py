"""Plots as SVG, written by hand: a measure over the share kept, a line for every method, with its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.retention.summary import Mean, Row

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 400, 60, 40, 150, 50
_COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8e6c8a", "#b08900")
_NAMES = {
    "recall": "future-reference recall",
    "bound": "recall with company",
    "far": "recall of what was said long ago",
}


def write_plots(found: Sequence[Row], folder: Path) -> list[Path]:
    """Write a file for every kind and measure."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, chained in dict.fromkeys((row.kind, row.chained) for row in found):
        for measure, name in _NAMES.items():
            mine = [row for row in found if (row.kind, row.chained) == (kind, chained)]
            title = f"{name}, {kind}{', after a chain of three' if chained else ''}"
            path = folder / f"{kind}-{'chain-' if chained else ''}{measure}.svg"
            path.write_text(picture(mine, measure, title), encoding="utf-8")
            written.append(path)
    return written


def picture(found: Sequence[Row], measure: str, title: str) -> str:
    """Return one plot."""
    largest = max(0.1, *(row.kept_share for row in found)) * 1.08
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        lines.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{tenth / 10:.1f}</text>')
    step = 0.1 if largest > 0.25 else 0.05
    for mark in range(int(largest / step) + 1):
        x = _x(mark * step, largest)
        lines.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{mark * step:.2f}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    lines.append(f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">share of the tokens kept</text>')
    for place, method in enumerate(dict.fromkeys(row.method for row in found)):
        mine = [(row, mean) for row in found if row.method == method and (mean := row.means[measure]) is not None]
        lines += _line(method, place, mine, largest)
    return "\n".join([*lines, "</svg>", ""])


def _line(method: str, place: int, points: Sequence[tuple[Row, Mean]], largest: float) -> list[str]:
    colour = _COLOURS[place % len(_COLOURS)]
    legend = _TOP + 10 + 20 * place
    lines = [
        f'<text x="{_WIDTH - _RIGHT + 16}" y="{legend}" fill="{colour}">{escape(method)}</text>',
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
        + " ".join(f"{_x(row.kept_share, largest)},{_y(mean.value)}" for row, mean in points)
        + '"/>',
    ]
    for row, mean in points:
        x = _x(row.kept_share, largest)
        lines.append(f'<line x1="{x}" y1="{_y(mean.low)}" x2="{x}" y2="{_y(mean.high)}" stroke="{colour}"/>')
        lines.append(
            f'<circle cx="{x}" cy="{_y(mean.value)}" r="3.5" fill="{colour}"><title>{escape(method)}: {mean.value:.3f} '
            f"({mean.low:.3f}–{mean.high:.3f}) at {row.kept_share:.3f}</title></circle>"
        )
    return lines


def _x(share: float, largest: float) -> float:
    return round(_LEFT + share / largest * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(value: float) -> float:
    return round(_HEIGHT - _BOTTOM - value * (_HEIGHT - _TOP - _BOTTOM), 1)
