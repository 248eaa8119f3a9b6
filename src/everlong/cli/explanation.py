"""The account of a compaction in the terminal: message by message, each reason once above the lines that it is for.

Knows how to lay an explanation out, not how it came about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text

from everlong.cli.picture import fit
from everlong.cli.screen import console
from everlong.context.explain import ExplainedLine, Explanation, Fate, Verdict

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: dict[Fate, str] = {
    "kept": "default",
    "quoted": "green",
    "told": "green",
    "partly": "cyan",
    "unclear": "yellow",
    "dropped": "red",
}
_UNBOUNDED = 1_000_000
_MOST_LOST = 4
_TELLING = 8
"""Characters from which on it is worth a remark that the same words stand elsewhere."""

_Told: TypeAlias = tuple[ExplainedLine, Verdict]


def print_explanation(explanation: Explanation, name: str = "") -> None:
    """Every line with its reason, then how many fared how."""
    out = console(highlight=False)
    if not out.is_terminal:  # whoever searches the output wants whole lines
        out = console(highlight=False, width=_UNBOUNDED)
    if name:
        out.print(Text(f"== {name}", style="bold"))
    for index, lines in explanation.by_message():
        out.print(Text(f"message {index}, {lines[0].role}", style="bold"))
        for run in _runs(lines):
            _print_run(run, out)
    total = len(explanation.lines)
    figures = ", ".join(f"{number:,} {fate}" for fate, number in explanation.fates.items())
    out.print(Text(f"{total:,} line{'' if total == 1 else 's'}: {figures}", style="bold"))


def _runs(lines: Sequence[ExplainedLine]) -> Iterator[list[_Told]]:
    """Verdicts that follow each other and say the same."""
    told = ((line, part) for line in lines for part in line.parts)
    for _, run in groupby(told, key=lambda pair: _heading(pair[1])):
        yield list(run)


def _heading(verdict: Verdict) -> tuple[Fate, str, str]:
    """What a run of lines has in common: the fate, the reason, and the summary's words where they say more."""
    where = f"{verdict.section}: " if verdict.section and verdict.fate in ("quoted", "told") else ""
    item = verdict.item or ""
    says_more = item.removeprefix("- ") != verdict.text
    return verdict.fate, where + verdict.reason, item if says_more else ""


def _print_run(run: list[_Told], out: Console) -> None:
    fate, reason, item = _heading(run[0][1])
    out.print(Text(f"  {fate:<8} {reason}", style=_STYLES[fate]))
    for line, verdict in run:
        call = f"{line.call}: " if line.call and not verdict.text.startswith(f"{line.call}(") else ""
        row, remark = f"    {line.line:>5} │ {call}{_plain(verdict.text)}", _remark(verdict)
        shown = fit(row, max(out.width // 2, out.width - len(remark)))
        out.print(Text(fit(shown + remark, out.width), style="dim" if fate == "dropped" else ""))
    if item:
        out.print(Text(fit(f"          = {_plain(item)}", out.width), style=_STYLES[fate]))


def _remark(verdict: Verdict) -> str:
    """What a person would look for next: where the same words stand, or what is lost with them."""
    if verdict.also is not None and len(verdict.text) >= _TELLING:
        return f"  (also in message {verdict.also} of the result)"
    lost = [name for name in verdict.lost if len(name) > 2 or not name.isdigit()]  # the number of a line is no loss
    if not lost:
        return ""
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    return f"  (lost: {', '.join(lost[:_MOST_LOST])}{more})"


def _plain(text: str) -> str:
    return " ".join(text.split())
