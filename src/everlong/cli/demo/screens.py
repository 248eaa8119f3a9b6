"""The screens of the demo: three bars that fill and fall, then what each way kept, a summary, questions and cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from everlong.cli.demo.playing import DOLLARS_PER_TOKEN, Answer, Played, Track, Undone
from everlong.cli.output import counted
from everlong.cli.picture import console, fit
from everlong.context.literals import is_summary
from everlong.model import text_of

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["DemoScreens"]

_SECONDS = 12.0
"""Seconds that the moving picture takes, at least."""
_REDRAWS = 15
"""Redraws in a second."""
_SUMMARY_LINES = 22
_STYLES = ("red", "yellow", "green")
_SOURCES = {"context": "in the context", "recall": "by recall", "lost": "lost"}


class DemoScreens:
    """The screens of one run, in order.

    Args:
        messages: The messages of the session.
        window: The window in tokens.
        is_moving: True if requests are shown one after the other, where the terminal can.
    """

    def __init__(self, messages: int, window: int, *, is_moving: bool) -> None:
        self._out = console()
        self._messages = messages
        self._window = window
        self._is_moving = is_moving and self._out.is_terminal
        self._live: Live | None = None
        self._drawn = 0.0
        self._pause = 0.0

    # -- while it plays ------------------------------------------------------------------------------------------------

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Show the requests while the block runs."""
        self._out.print(Text("An agent works on a harbour's booking system. ", style="bold"), end="")
        self._out.print(
            f"Its {self._messages:,} messages pass through a window of {self._window:,} tokens,\n"
            "with three ways to deal with a full window side by side. No model is asked, nothing leaves this machine.\n"
        )
        if not self._is_moving:
            yield
            return
        with Live(console=self._out, auto_refresh=False) as self._live:
            yield
        self._live = None

    def request(self, played: Played) -> None:
        """Show a request of each way."""
        if self._live is None:
            return
        now = time.monotonic()
        if now - self._drawn >= 1 / _REDRAWS:
            self._live.update(self._bars(played), refresh=True)
            self._drawn = now
        time.sleep(_SECONDS / (self._messages / 2) / 2)

    def _bars(self, played: Played) -> RenderableType:
        width = max(10, min(50, self._out.width - 62))
        rows: list[RenderableType] = []
        for track, style in zip(played.tracks, _STYLES, strict=True):
            share = track.sizes[-1] / played.window
            row = Text(f"{track.contender.name:<20} ")
            row.append("█" * round(share * width), style=style)
            row.append("░" * (width - round(share * width)), style="dim")
            row.append(f" {track.sizes[-1]:>7,}  ")
            row.append(track.contender.told, style="dim")
            rows.append(row)
        raw = played.raw_sizes[-1] if played.raw_sizes else 0
        rows.append(
            Text(f"request {len(played.raw_sizes):>4}           without any of it: {raw:>8,} tokens", style="dim")
        )
        return Group(*rows)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def results(self, played: Played, answers: Sequence[Sequence[Answer]], undone: Undone | None) -> None:
        """Show what came of it, screen by screen."""
        if not self._is_moving:
            self._out.print(self._bars(played))
        times = max(played.raw_sizes) / played.window
        self._heading(f"{len(played.raw_sizes)} requests; without a cut the last one would be {times:.1f} windows long")
        self._table(played, answers)
        self._summary(played)
        self._questions(answers)
        if undone is not None:
            self._heading("A compaction can be taken back")
            same = "every message as it was" if undone.is_same else "not all messages as they were"
            self._line(
                f"One more compaction: {undone.before:,} → {undone.compacted:,} tokens. "
                f"Undo: {undone.after:,} again, {same} (compared just now)."
            )
        self._next()

    def _heading(self, text: str) -> None:
        self._out.print(Text(f"\n{text}", style="bold"))

    def _line(self, text: str, style: str = "") -> None:
        self._out.print(Text(text, style=style))

    def _table(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        table.add_column("")
        for head in ("known in context", "by recall", "lost", "largest request", "from the cache", "cost"):
            table.add_column(head, justify="right")
        for track, known, style in zip(played.tracks, answers, _STYLES, strict=True):
            counts = [sum(one.source == source for one in known) for source in _SOURCES]
            table.add_row(
                Text(track.contender.name, style=style),
                *map(str, counts),
                f"{max(track.sizes):,}",
                f"{_cached(track):.0%}",
                f"${track.dollars:.2f}",
            )
        self._out.print(table)
        facts = len(answers[0])
        self._line(
            f"Of {counted(facts, 'fact')} that were stated along the way, known at the end. Cost of all input at "
            f"${DOLLARS_PER_TOKEN * 1e6:g} per million tokens,\n10 % of that where the provider's cache holds them, "
            "125 % where it takes them in.",
            "dim",
        )

    def _summary(self, played: Played) -> None:
        summary = next((one for one in played.everlong.held.messages if is_summary(one)), None)
        if summary is None:
            return
        self._heading("The summary that stands in the context now")
        lines = [line for line in text_of(summary).splitlines() if line.strip()]
        for line in lines[:_SUMMARY_LINES]:
            self._line(f"  {fit(line, self._out.width - 3)}", "cyan" if line.startswith("#") else "")
        if len(lines) > _SUMMARY_LINES:
            self._line(f"  … and {len(lines) - _SUMMARY_LINES} more lines", "dim")

    def _questions(self, answers: Sequence[Sequence[Answer]]) -> None:
        """Show one question for each place that an answer comes from, early facts first."""
        self._heading("Three questions about what was said early")
        *others, ours = answers
        for source in _SOURCES:
            found = [place for place, one in enumerate(ours) if one.source == source]
            if not found:
                continue
            # Preferably one that the other ways have lost.
            place = next((one for one in found if all(known[one].source == "lost" for known in others)), found[0])
            answer = ours[place]
            self._line(f"  {answer.fact.question}")
            if source == "lost":
                self._line("    lost: neither in the context nor among the first ten hits of a search", "red")
                continue
            told = answer.words if source == "context" else answer.passage
            where = "in the context" if source == "context" else "recalled from the store"
            self._line(fit(f"    {where}: {told}", self._out.width - 1), "green")
            missing = [
                f"“{name}”" for name, known in zip(_OTHERS, others, strict=True) if known[place].source == "lost"
            ]
            if missing:
                self._line(f"    lost by {' and by '.join(missing)}", "dim")

    def _next(self) -> None:
        self._heading("What to run next")
        for command, about in (
            ("everlong", "a chat that does not end at its window; it finds your model"),
            ("everlong wrap claude", "Claude Code, Codex and others without an end, through the gateway"),
            ("everlong compress FILE --diff", "what a compaction does to a transcript of your own"),
            ("everlong sessions import ~/.claude/projects", "your old conversations, to be searched"),
        ):
            self._out.print(Text.assemble("  ", (f"{command:<46}", "bold"), (about, "dim")))


_OTHERS = ("cut off the oldest", "head, summary, tail")


def _cached(track: Track) -> float:
    return track.read / max(1, track.read + track.written)
