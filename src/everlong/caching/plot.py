"""Line charts of costs as SVG: each caching strategy beside the oracle, request by request and in total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from itertools import accumulate

from everlong.caching.simulation import Replay
from everlong.errors import EverlongError
from everlong.extras import install_command

__all__ = ["PANEL_HEIGHT", "draw", "panel", "picture", "to_png"]

_WIDTH, _PANEL, _LEFT, _RIGHT, _GAP = 860, 220, 80, 190, 60
PANEL_HEIGHT = _PANEL + _GAP
_COLOURS = ("#888888", "#c8553d", "#1b6ca8", "#588157", "#8e6c8a", "#b08900", "#2f4858", "#5b8c8a")


def draw(results: Sequence[Replay]) -> str:
    """Return the SVG of some sessions, two panels for each."""
    lines: list[str] = []
    top = 40
    for result in results:
        series = {
            name: [outcome.cost for outcome in outcomes if not outcome.is_ping]
            for name, outcomes in result.outcomes.items()
        }
        any_outcomes = next(iter(result.outcomes.values()))
        series["oracle"] = [outcome.oracle for outcome in any_outcomes if not outcome.is_ping]
        totals = {name: list(accumulate(costs)) for name, costs in _with_pings(result).items()}
        totals["oracle"] = list(accumulate(series["oracle"]))
        title = f"{result.name or 'session'}: {result.requests} requests to {result.model}"
        lines += panel(f"{title}; cost per request", series, top)
        lines += panel("cost in total", totals, top + PANEL_HEIGHT)
        top += 2 * PANEL_HEIGHT
    return picture("Cost of prompt caching strategies", lines, 2 * len(results))


def panel(title: str, series: Mapping[str, Sequence[float]], top: int, form: str = ",.0f") -> list[str]:
    """Return the SVG lines of one panel, a curve for each series; ``form`` formats the figures at its side."""
    most = max((value for values in series.values() for value in values), default=1.0) or 1.0
    longest = max((len(values) for values in series.values()), default=1)
    lines = [f'<text x="{_LEFT}" y="{top - 10}" font-size="14">{escape(title)}</text>']
    for quarter in range(5):
        y = round(top + _PANEL * (1 - quarter / 4), 1)
        lines.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{most * quarter / 4:{form}}</text>')
    for place, (name, values) in enumerate(series.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        room = _WIDTH - _LEFT - _RIGHT
        points = " ".join(
            f"{round(_LEFT + room * at / max(1, longest - 1), 1)},{round(top + _PANEL * (1 - value / most), 1)}"
            for at, value in enumerate(values)
        )
        dash = ' stroke-dasharray="5 4"' if name == "oracle" else ""
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5"{dash} points="{points}"/>')
        legend = top + 14 + 18 * place
        lines.append(f'<text x="{_WIDTH - _RIGHT + 14}" y="{legend}" fill="{colour}">{escape(name)}</text>')
    return lines


def picture(title: str, lines: Sequence[str], panels: int) -> str:
    """Return the SVG of several panels, one below the other; the first has its top at 40."""
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {panels * PANEL_HEIGHT + 20}" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )
    return "\n".join([frame, *lines, "</svg>", ""])


def to_png(svg: str, path: str) -> None:
    """Write the picture as PNG; raise if no converter is installed."""
    try:
        converter = import_module("cairosvg")
    except ImportError as error:
        raise EverlongError(
            f"cannot write {path}: PNG needs the package cairosvg ({install_command('png')}); or write an .svg"
        ) from error
    converter.svg2png(bytestring=svg.encode(), write_to=path)


def _with_pings(result: Replay) -> dict[str, list[float]]:
    """Return the costs per request, with the cost of each ping added to the request before it."""
    found: dict[str, list[float]] = {}
    for name, outcomes in result.outcomes.items():
        costs: list[float] = []
        for outcome in outcomes:
            if outcome.is_ping and costs:
                costs[-1] += outcome.cost
            else:
                costs.append(outcome.cost)
        found[name] = costs
    return found
