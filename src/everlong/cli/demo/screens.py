"""The screens of the demo: bars that fill and fall, what each way knows, a summary, three questions, the way back.

Every screen fits a terminal of 80 columns and 24 lines. In a pipe, and with ``--fast``, they follow each other at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from everlong.cli.demo.pause import Pause
from everlong.cli.demo.playback import DOLLARS_PER_TOKEN, Answer, Played, Track, Undone
from everlong.cli.output import counted, working
from everlong.cli.picture import console, curve, fit
from everlong.context.literals import is_summary
from everlong.model import text_of

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["DemoScreens"]

_PLAYING_SECONDS = 10.0
"""Seconds that the moving picture takes, at least."""
_READING_SECONDS = 4.5
"""Seconds that each screen stays before the next one follows."""
_REDRAWS = 15
"""Redraws in a second."""
_SUMMARY_LINES = 21
_SECTION_LINES = 2
_NAME_CELLS = 22
_WIDEST = 100
_STYLES = ("red", "magenta", "green")
_SOURCES = ("context", "recall", "lost")


class DemoScreens:
    """The screens of one run, in order.

    Args:
        messages: The messages of the session.
        window: The window in tokens.
        is_moving: True if requests and screens are shown one after the other, where the terminal can.
    """

    def __init__(self, messages: int, window: int, *, is_moving: bool) -> None:
        self._out = console()
        self._out.width = min(self._out.width, _WIDEST)
        self._messages = messages
        self._window = window
        self._is_moving = is_moving and self._out.is_terminal
        self._pause = Pause(_READING_SECONDS, self._out) if self._is_moving else None
        self._live: Live | None = None
        self._began = self._drawn = 0.0
        self._requests = 0

    # -- while it plays ------------------------------------------------------------------------------------------------

    @contextmanager
    def playing(self, ways: Sequence[tuple[str, str]], requests: int) -> Iterator[None]:
        """Show the requests while the block runs.

        Args:
            ways: The name of each way, and what it does.
            requests: The requests to come.
        """
        self._requests = requests
        self._line("One long agent session in a small context window, played three ways", "bold")
        self._line(
            f"\nAn agent builds a booking system for a harbour: {self._messages:,} messages. Its model reads at most "
            f"{self._window:,} tokens in one request. Three ways to make the session fit:\n"
        )
        for (name, about), style in zip(ways, _STYLES, strict=True):
            self._row(name, about, style)
        self._line("\nRules make both summaries: no model is asked, nothing leaves this machine.\n", "dim")
        self._began = time.monotonic()
        if not self._is_moving:
            with working("playing the session"):
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
        done = len(played.raw_sizes)
        if now - self._drawn >= 1 / _REDRAWS or done == self._requests:
            self._live.update(self._bars(played), refresh=True)
            self._drawn = now
        due = self._began + _PLAYING_SECONDS * done / max(1, self._requests)
        time.sleep(max(0.0, due - time.monotonic()))

    def _bars(self, played: Played) -> RenderableType:
        width = max(10, self._out.width - _NAME_CELLS - 34)
        done = len(played.raw_sizes)
        rows = [Text(fit(f"request {done:>3}: {played.asked}", self._out.width - 1), style="dim")]
        for track, style in zip(played.tracks, _STYLES, strict=True):
            full = min(width, round(track.sizes[-1] / played.window * width))
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}")
            row.append("█" * full, style=style)
            row.append("░" * (width - full), style="dim")
            row.append(f" {track.sizes[-1]:>7,} ")
            row.append(track.contender.told, style="dim")
            rows.append(row)
        raw = played.raw_sizes[-1]
        full = min(width, round(raw / played.window * width))
        told = f"{raw / played.window:.1f} windows"
        rows.append(
            Text(f"{'(all of it)':<{_NAME_CELLS}}{'▒' * full}{' ' * (width - full)} {raw:>7,} {told}", style="dim")
        )
        return Group(*rows)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def results(self, played: Played, answers: Sequence[Sequence[Answer]], undone: Undone | None) -> None:
        """Show what came of it, screen by screen."""
        if not self._is_moving:
            self._out.print(self._bars(played))
        self._sizes(played)
        self._table(played, answers)
        self._wait()
        self._summary(played)
        self._questions(played, answers)
        self._way_back(answers[-1], undone)
        self._in_short(played, answers)
        self._next()

    def _wait(self) -> None:
        if self._pause is not None:
            self._pause()

    def _heading(self, text: str) -> None:
        self._out.print(Text(f"\n{text}", style="bold"))

    def _line(self, text: str, style: str = "") -> None:
        self._out.print(Text(text, style=style))

    def _row(self, name: str, text: str, style: str = "") -> None:
        """Print a name, and a text beside it."""
        row = Table.grid(padding=0)
        row.add_column(width=_NAME_CELLS + 2)
        row.add_column()
        row.add_row(Text(f"  {name}", style=style), Text(text))
        self._out.print(row)

    def _sizes(self, played: Played) -> None:
        """Draw the size of every request of each way: full, or filling and falling."""
        self._heading(
            f"The size of each of {len(played.raw_sizes)} requests, first to last; a full block is a full window"
        )
        for track, style in zip(played.tracks, _STYLES, strict=True):
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}")
            row.append(curve(track.sizes, played.window, 1, self._out.width - _NAME_CELLS - 1)[0], style=style)
            self._out.print(row)

    def _table(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        facts = len(answers[0])
        self._heading(f"What each way still knows at the end, of {counted(facts, 'fact')} said along the way")
        self._line(f"{'':<{_NAME_CELLS}}{'in context':>12}{'by search':>12}{'neither':>9}{'input cost':>13}", "dim")
        for track, known, style in zip(played.tracks, answers, _STYLES, strict=True):
            kept, found, lost = (sum(one.source == source for one in known) for source in _SOURCES)
            searched = str(found) if track is played.tracks[-1] else "-"
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}", style=style)
            row.append(f"{kept:>12}{searched:>12}{lost:>9}{f'${track.dollars:,.2f}':>13}", style="default")
            self._out.print(row)
        price = DOLLARS_PER_TOKEN * 1e6
        cut, last = _cached(played.tracks[0]), _cached(played.tracks[-1])
        why = f" A list that is cut at its start is cached badly: {cut:.0%} of it, Everlong's {last:.0%}."
        self._line(
            "\nin context: its words are in the next request. by search: one search of Everlong's store with the "
            "question as it stands. neither: gone for good in the first two ways, on disk with Everlong. A model's "
            "summary, which Everlong can use, would hold more in both ways.\n"
            f"Cost: ${price:g} per million input tokens, a tenth if the provider has them cached, a quarter more to "
            f"cache them.{why if cut < last else ''}",
            "dim",
        )

    def _summary(self, played: Played) -> None:
        """Show the beginning of each section of the newest summary."""
        summary = next((one for one in played.everlong.held.messages if is_summary(one)), None)
        if summary is None:
            return
        held = played.everlong.held
        hidden = self._messages - len(held.messages) + 1
        tokens = held.counter.count(summary)
        self._heading(f"Everlong's summary: {tokens:,} tokens in place of {counted(hidden, 'message')} (shown in part)")
        shown = 0
        for title, items in _sections(text_of(summary)):
            if shown + 2 > _SUMMARY_LINES or not items:
                continue
            room = min(_SECTION_LINES, _SUMMARY_LINES - shown - 1)
            more = f"  ({len(items) - room} more)" if len(items) > room else ""
            self._out.print(Text.assemble("  ", (title, "cyan"), (more, "dim")))
            for item in items[:room]:
                self._line(f"  {fit(item, self._out.width - 3)}")
            shown += 1 + min(room, len(items))
        self._wait()

    def _questions(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        """Show one question for each place that an answer comes from, early facts first."""
        self._heading("Three questions about what was said early, and where each answer comes from")
        self._line("(picked from what the other two have lost; the table above counts all facts)", "dim")
        *others, ours = answers
        for source in _SOURCES:
            found = [place for place, one in enumerate(ours) if one.source == source]
            if not found:
                continue
            # Preferably one that the other ways have lost.
            place = next((one for one in found if all(known[one].source == "lost" for known in others)), found[0])
            fact = ours[place].fact
            said = f" (message {fact.message + 1:,} of {self._messages:,})"
            self._out.print(Text.assemble(f"\n  {fact.question}", (said, "dim")))
            for track, known in zip(played.tracks, answers, strict=True):
                text, style = _told(known[place])
                row = Text(f"    {track.contender.name:<{_NAME_CELLS}}")
                row.append(fit(text, self._out.width - _NAME_CELLS - 5), style=style)
                self._out.print(row)
        self._wait()

    def _way_back(self, ours: Sequence[Answer], undone: Undone | None) -> None:
        """Show how a fact is fetched that is no longer in the context, and that a compaction can be taken back."""
        found = [one for one in ours if one.source == "recall"]
        missed = [one for one in ours if one.source == "lost"]
        if not found and undone is None:
            return
        self._heading("How to get back what is no longer in the context")
        if found:
            self._line("\n  Search the store. The agent has a tool for it; you have a command:")
            self._command(f'everlong sessions search "{found[0].fact.question}"')
            self._line(fit(f"    found: {found[0].passage}", self._out.width - 1), "green")
        stored = [one for one in missed if one.is_stored]
        if stored:
            them = "all" if len(stored) == len(missed) else str(len(stored))
            self._line(
                f"\n  {counted(len(missed), 'fact')} not found by their question; on disk: {them} (checked now)."
            )
            self._line("  Search with other words, or read the conversation (everlong sessions list tells its ID):")
            self._command("everlong sessions show ID")
        if undone is not None:
            same = "every message as before" if undone.is_same else "not every message as before"
            self._line("\n  Undo the newest compaction. It hid messages and deleted none:")
            self._command("/undo in the chat, or the Undo of everlong inspect --web")
            self._line(
                f"    tried now: {undone.before:,} → {undone.compacted:,} tokens; undone: {undone.after:,}, {same}",
                "green" if undone.is_same else "red",
            )
        self._wait()

    def _command(self, text: str) -> None:
        self._line(f"    {fit(text, self._out.width - 5)}", "bold")

    def _in_short(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        ours, track = answers[-1], played.tracks[-1]
        kept, found, lost = (sum(one.source == source for one in ours) for source in _SOURCES)
        others = " and ".join(f"${one.dollars:,.2f}" for one in played.tracks[:-1])
        gone = (
            f"{found + lost} of {len(ours)} facts: a search with the question finds {found}, "
            f"{lost} {'needs' if lost == 1 else 'need'} other words"
        )
        self._heading("In short")
        for name, text in (
            ("What Everlong does", f"runs {max(played.raw_sizes):,} tokens of work in a window of {played.window:,}"),
            ("What it kept", f"{kept} of {len(ours)} facts in the context, and every word in a store on disk"),
            ("What left the context", gone if found + lost else "nothing"),
            ("How to get it back", "search the store, or undo the compaction"),
            ("What it cost", f"${track.dollars:,.2f} of input; the other two {others}"),
        ):
            self._row(name, text)

    def _next(self) -> None:
        self._heading("What to run next")
        width = self._out.width
        for command, about in (
            ("everlong", "a chat that goes on past its window"),
            ("everlong wrap -- claude", "the same for Claude Code, Codex and others"),
            ("everlong compress FILE --diff", "try it on a transcript of your own"),
            ("everlong demo --web", "this session in the browser"),
        ):
            row = Text.assemble("  ", (f"{command:<31}", "bold"))
            row.append(fit(about, width - 34))
            self._out.print(row)


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the headings of a summary with the lines under each."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(("## ", "Standing rules")):
            found.append((line, []))
        elif line.strip() and not line.startswith(("#", "(")) and found:
            found[-1][1].append(line)
    return found


def _told(answer: Answer) -> tuple[str, str]:
    """Return where an answer comes from, in words, with their style."""
    if answer.source == "context":
        return f"in context: “{answer.words}”", "green"
    if answer.source == "recall":
        return f"by search: “{answer.words}”", "green"
    return ("not found by this question, but stored", "magenta") if answer.is_stored else ("lost", "red")


def _cached(track: Track) -> float:
    return track.read / max(1, track.read + track.written)
