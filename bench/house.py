"""Draws docs/house.svg (the packages of everlong, with an arrow where one imports another) and prints their sizes.

Run ``python -m bench.house`` after a change of imports; ``tests/bench/test_house.py`` fails while the picture is stale.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import grimp

PICTURE = Path(__file__).parent.parent / "docs" / "house.svg"

_WIDTH, _BOX_WIDTH, _BOX_HEIGHT, _ROW_HEIGHT, _MARGIN = 860, 132, 34, 76, 24
_COLUMNS = {
    "cli": 530,
    "gateway": 530,
    "agent": 530,
    "inspector": 310,
    "integrations": 750,
    "plugins": 420,
    "memory": 90,
    "testing": 310,
    "providers": 530,
    "store": 750,
    "context": 200,
    "caching": 420,
    "tokens": 530,
    "wire": 750,
    "config": 310,
    "model": 530,
    "exports": 310,
    "workers": 90,
    "errors": 530,
}
"""Where each package stands from left to right, so that no arrow runs behind a box; others stand in the middle."""

Imports = Mapping[str, frozenset[str]]
"""The packages that each package imports."""


class Point(NamedTuple):
    """The middle of a package's box in the picture, or another point of it."""

    x: float
    y: float


def main() -> None:
    """Draw the picture and write it."""
    PICTURE.write_text(draw(imports()), encoding="utf-8")
    print(sizes(Path(__file__).parent.parent / "src" / "everlong"))


def sizes(root: Path) -> str:
    """Return a table of the files, lines and statements in each folder of a package, with their sums at the end."""
    sums: dict[str, list[int]] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        statements = sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
        inside = path.relative_to(root).parts
        for name in (inside[0] if len(inside) > 1 else "(top)", "all"):
            counted = sums.setdefault(name, [0, 0, 0])
            counted[:] = map(sum, zip(counted, (1, text.count("\n"), statements), strict=True))
    rows = [(name, *counted) for name, counted in sums.items() if name != "all"] + [("all", *sums["all"])]
    head = f"{'folder':14}{'files':>7}{'lines':>9}{'statements':>12}"
    return "\n".join([head, *(f"{name:14}{files:7,}{lines:9,}{count:12,}" for name, files, lines, count in rows)])


def rows_of(packages: Imports) -> list[list[str]]:
    """Return the packages in rows from top to bottom, each package as far down as its imports allow."""
    height: dict[str, int] = {}
    while len(height) < len(packages):
        ready = [name for name in packages if name not in height and packages[name] <= height.keys()]
        if not ready:
            raise ValueError(f"these packages import each other: {', '.join(sorted(packages.keys() - height.keys()))}")
        height |= {name: 1 + max((height[target] for target in packages[name]), default=-1) for name in ready}
    rows: list[list[str]] = [[] for _ in range(1 + max(height.values()))]
    for name in sorted(packages):
        rows[height[name]].append(name)
    return rows[::-1]


def imports() -> Imports:
    """Return the packages and single modules directly below everlong, with the others that each of them imports."""
    graph = grimp.build_graph("everlong", cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in graph.modules - {"everlong"}:
        package = module.split(".")[1]
        targets = graph.find_modules_directly_imported_by(module)
        found.setdefault(package, set()).update(target.split(".")[1] for target in targets - {"everlong"})
    return {
        package: frozenset(targets - {package}) for package, targets in found.items() if not package.startswith("__")
    }


def shown_arrows(packages: Imports) -> list[tuple[str, str]]:
    """Return the imports that do not follow from others: with a → b → c, the arrow a → c is left out."""
    return sorted(
        (package, target)
        for package, targets in packages.items()
        for target in targets
        if not any(target in _reached(packages, other) for other in targets - {target})
    )


def _reached(packages: Imports, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in packages[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached


def draw(packages: Imports) -> str:
    """Return the picture as an SVG document; the title of a box lists everything that its package imports."""
    rows, arrows = rows_of(packages), shown_arrows(packages)
    boxes = _place(rows)
    height = 2 * _MARGIN + _ROW_HEIGHT * (len(rows) - 1) + _BOX_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="15">',
        "<title>The packages of everlong; an arrow means: imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#6b7785"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *(_arrow(boxes[start], boxes[end]) for start, end in arrows),
        *(_box(name, box, packages[name]) for name, box in boxes.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _place(rows: Sequence[Sequence[str]]) -> dict[str, Point]:
    heights = {
        name: _MARGIN + _BOX_HEIGHT / 2 + number * _ROW_HEIGHT for number, row in enumerate(rows) for name in row
    }
    return {name: Point(_COLUMNS.get(name, _WIDTH / 2), y) for name, y in heights.items()}


def _curve(start: Point, end: Point) -> list[Point]:
    """Return the four points of the Bézier curve from the bottom of a box to the top of another."""
    top, bottom = start.y + _BOX_HEIGHT / 2, end.y - _BOX_HEIGHT / 2 - 1
    middle = (top + bottom) / 2
    return [Point(start.x, top), Point(start.x, middle), Point(end.x, middle), Point(end.x, bottom)]


def _arrow(start: Point, end: Point) -> str:
    first, *others = (f"{point.x:g} {point.y:g}" for point in _curve(start, end))
    path = f"M{first} C{' '.join(others)}"
    return f'<path d="{path}" fill="none" stroke="#6b7785" stroke-width="1.4" marker-end="url(#tip)"/>'


def _box(name: str, box: Point, targets: frozenset[str]) -> str:
    left, top = box.x - _BOX_WIDTH / 2, box.y - _BOX_HEIGHT / 2
    return "".join(
        [
            f"<g><title>{escape(_sentence(name, targets))}</title>",
            f'<rect x="{left:g}" y="{top:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" ',
            'fill="#eef3f8" stroke="#2f5d8a"/>',
            f'<text x="{box.x:g}" y="{box.y + 5:g}" text-anchor="middle" fill="#16283a">{escape(name)}</text></g>',
        ]
    )


def _sentence(name: str, targets: frozenset[str]) -> str:
    return f"{name} imports {', '.join(sorted(targets))}" if targets else f"{name} imports nothing of everlong"


if __name__ == "__main__":
    main()
