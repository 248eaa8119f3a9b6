"""Pictures for the terminal: tables, bars, coloured lists, and a curve over time.

rich fits colours and widths to the terminal, and leaves them out in a pipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from everlong.cli import screen
from everlong.context.report import MessageFate, compare_lists
from everlong.model import Message, calls_of, format_share, is_image, parts_of, text_of

if TYPE_CHECKING:
    from rich.console import Console

_LOOK: dict[MessageFate, tuple[str, str]] = {
    "kept": (" ", "default"),
    "noted": ("~", "cyan"),
    "cleared": ("~", "yellow"),
    "repeated": ("+", "green"),
    "summarized": ("-", "red"),
    "added": ("+", "green"),
}
_LABEL_CELLS = 36
_TITLE_CELLS = 30
"""Cells the last column of a table gets at least; less important columns are left out to make room for it."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not wrap lines shorter than 100 columns outside a terminal."""
    made = screen.console(stderr=stderr, highlight=False)
    return made if made.is_terminal else screen.console(stderr=stderr, highlight=False, width=max(100, made.width))


def print_changes(before: Sequence[Message], after: Sequence[Message]) -> None:
    """Print every message on a line, with a mark and a colour for its fate."""
    out = console()
    listed = compare_lists(before, after)
    for change in listed:
        mark, style = _LOOK[change.fate]
        place = "" if change.source is None else str(change.source + 1)
        head = f"{mark} {place:>5} {change.fate:<10} {change.message['role']:<9} "
        out.print(Text(fit(head + headline(change.message), out.width), style=style))
    totals = {fate: sum(change.fate == fate for change in listed) for fate in _LOOK}
    out.print(Text(", ".join(f"{number} {fate}" for fate, number in totals.items() if number), style="bold"))


def headline(message: Message) -> str:
    """Return a message in one line."""
    pieces = [" ".join(text_of(message).split())]
    pieces += [f"{call.name}({' '.join(call.arguments.split())})" for call in calls_of(message)]
    pieces += ["[image]" for part in parts_of(message) if is_image(part)]
    return " ".join(piece for piece in pieces if piece) or "(empty)"


def fit(text: str, width: int) -> str:
    """Return a line cut to this many terminal cells; wide characters take two."""
    printable = "".join(character if character.isprintable() else "�" for character in text)
    if cell_len(printable) <= width:
        return printable
    return set_cell_size(printable, max(1, width - 1)).rstrip() + "…"


def print_table(heads: list[str], rows: list[list[str]], right: set[int], spare: Sequence[int] = ()) -> None:
    """Print a table; on a narrow terminal, leave out the columns of ``spare``, one by one, in this order."""
    out = console()
    widths = [max(cell_len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    kept = [at for at in range(len(heads)) if at not in spare or any(row[at] for row in rows)]
    for at in spare:
        needed = sum(widths[one] + 2 for one in kept[:-1]) + min(_TITLE_CELLS, widths[kept[-1]])
        if not out.is_terminal or needed <= out.width:
            break
        kept = [one for one in kept if one != at]
    if not out.is_terminal:  # a file or pipe has no width
        out.width = max(out.width, sum(widths[one] + 2 for one in kept))
    for place, row in enumerate([heads, *rows]):
        cells = [row[at].rjust(widths[at]) if at in right else row[at].ljust(widths[at]) for at in kept]
        out.print(Text(fit("  ".join(cells).rstrip(), out.width), style="bold" if place == 0 else ""))


def bars(rows: Sequence[tuple[str, int, str]], total: int, out: Console, title: str) -> None:
    """Print labelled bars on a common scale; each row is a label, a value and a remark, with its share of the total."""
    most = max((value for _, value, _ in rows), default=0)
    label_width = min(_LABEL_CELLS, max((cell_len(label) for label, _, _ in rows), default=0))
    value_width = len(f"{most:,}")
    room = max(8, min(40, (out.width - label_width - value_width) // 3))
    out.print(Text(title, style="bold"))
    for label, value, remark in rows:
        length = value / most * room if most else 0
        bar = ("█" * int(length) + ("▌" if length % 1 >= 0.5 else "")) or "▏"
        shown = set_cell_size(fit(label, label_width), label_width)
        line = Text(f"  {shown} {value:>{value_width},} {format_share(value / max(1, total)):>4} ")
        line.append(f"{bar:<{room + 1}}", style="cyan")
        line.append(fit(remark, max(1, out.width - line.cell_len - 1)), style="dim")
        out.print(line, no_wrap=True, overflow="ellipsis")


def curve(values: Sequence[int], ceiling: int, width: int) -> str:
    """Return a curve as a line of block characters; each column is the maximum of its values."""
    columns = min(width, len(values))
    edges = [len(values) * column // columns for column in range(columns + 1)]
    shares = [max(values[edges[c] : max(edges[c + 1], edges[c] + 1)]) / max(1, ceiling) for c in range(columns)]
    return "".join(_BLOCKS[max(0, min(8, round(share * 8)))] for share in shares)
