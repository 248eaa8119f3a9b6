"""``everlong demo``: plays a long agent session in a small window, without a key and without a network."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.padding import Padding
from rich.text import Text

from everlong.cli.demo_playback import (
    MODEL,
    PRICES,
    Answer,
    Cutting,
    Everlong,
    HeadAndTail,
    Played,
    answers_of,
    load_session,
    play,
)
from everlong.cli.inspect_web import check_installed, serve_inspector
from everlong.cli.output import counted, print_values, working
from everlong.cli.picture import console, curve
from everlong.context.literals import is_summary
from everlong.model import text_of
from everlong.store import open_store

_WINDOW = 32_768
"""The window in tokens: small, so that the session fills it several times."""


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--web", is_flag=True, help="Then open the inspector on the played session in the browser.")
def demo_command(as_json: bool, web: bool) -> None:
    """Play a long agent session in a small window, and show what three ways to deal with that make of it."""
    if web:
        check_installed()
    session, facts = load_session()
    with (
        tempfile.TemporaryDirectory(prefix="everlong-demo-") as folder,
        open_store(Path(folder) / "demo.db", waits_for_disk=False) as store,
    ):
        messages = sum(message["role"] != "system" for message in session)  # as everything else counts them
        screens = None if as_json else DemoScreens(messages, _WINDOW)
        if screens is not None:
            screens.question([(one.name, one.about) for one in (Cutting, HeadAndTail, Everlong)])
        with working("playing the session"):
            played = play(session, _WINDOW, store)
        store.searcher.index_pending()
        answers = [
            answers_of(track, facts, store if track.contender is played.everlong else None) for track in played.tracks
        ]
        if screens is None:
            print_values(_figures(played, answers))
        else:
            screens.results(played, answers)
        if web:
            models = {MODEL: {"context_length": _WINDOW, **PRICES}}
            serve_inspector(store, "everlong demo", port=0, opens_browser=True, models=models)


def _figures(played: Played, answers: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    return {
        "window": played.window,
        "threshold": played.everlong.engine.threshold_tokens,
        "requests": len(played.raw_sizes),
        "largest_without": max(played.raw_sizes),
        "ways": [
            {
                "name": track.contender.name,
                "largest_request": max(track.sizes),
                "tokens_from_cache": track.read,
                "tokens_fresh": track.written,
                "dollars": round(track.dollars, 4),
                "facts": {one.fact.id: one.source for one in known},
            }
            for track, known in zip(played.tracks, answers, strict=True)
        ],
        "compactions": [{"message": index, **report.to_dict()} for index, report in played.everlong.reports],
    }


_SUMMARY_LINES = 9
_ITEM_CHARS = 76
"""Characters shown of a line of the summary: one line of the screen."""
_NAME_CELLS = 22
_WIDEST = 80
_STYLES = ("red", "magenta", "green")
_SOURCES = ("context", "recall", "lost")
_NEXT = (
    ("everlong", "a chat that goes on past its window"),
    ("everlong wrap -- claude", "the same for Claude Code, Codex and others"),
    ("everlong compress FILE --diff", "try it on a transcript of your own"),
    ("everlong demo --web", "this session in the browser"),
)


class DemoScreens:
    """The output of one run, in order.

    Args:
        messages: The messages of the session.
        window: The window in tokens.
    """

    def __init__(self, messages: int, window: int) -> None:
        self._out = console()
        self._out.width = min(self._out.width, _WIDEST)
        self._messages = messages
        self._window = window

    def question(self, ways: Sequence[tuple[str, str]]) -> None:
        """Show the question and the ways.

        Args:
            ways: The name of each way, and what it does.
        """
        self._line(f"A session of {self._messages:,} messages, and a model that reads {self._window:,} tokens", "bold")
        self._line("An agent builds a booking system. Three ways to go on when the window is full:")
        for (name, about), style in zip(ways, _STYLES, strict=True):
            self._out.print(Text.assemble((f"  {name:<{_NAME_CELLS}}", style), about))
        self._line("No model is asked and nothing leaves this machine.", "dim")

    def results(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        """Show what came of it."""
        self._heading(
            f"The size of {len(played.raw_sizes)} requests; all of it would be {max(played.raw_sizes):,} tokens"
        )
        for track, style in zip(played.tracks, _STYLES, strict=True):
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}")
            row.append(curve(track.sizes, played.window, self._out.width - _NAME_CELLS - 1), style=style)
            self._out.print(row)
        self._table(played, answers)
        self._summary(played)
        self._questions(played, answers)
        self._heading("What to run next")
        for command, about in _NEXT:
            self._out.print(Text.assemble("  ", (f"{command:<31}", "bold"), about))

    def _heading(self, text: str) -> None:
        self._out.print(Text(f"\n{text}", style="bold"))

    def _line(self, text: str, style: str = "") -> None:
        self._out.print(Text(text, style=style))

    def _wrapped(self, text: str, style: str = "") -> None:
        self._out.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))

    def _table(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        self._heading(
            f"What each way knows at the end, of {counted(len(answers[0]), 'fact')}, and what its input costs"
        )
        self._line(f"{'':<{_NAME_CELLS}}{'in context':>12}{'by search':>12}{'not found':>12}{'cost':>12}", "dim")
        for track, known, style in zip(played.tracks, answers, _STYLES, strict=True):
            kept, found, lost = (sum(one.source == source for one in known) for source in _SOURCES)
            searched = str(found) if track is played.tracks[-1] else "-"
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}", style=style)
            row.append(f"{kept:>12}{searched:>12}{lost:>12}{f'${track.dollars:,.2f}':>12}", style="default")
            self._out.print(row)
        self._line(
            "By search: the question as it stands finds it in the store, which has it all.\n"
            "Cost: $3 per million tokens, a tenth of that for what the provider has cached.",
            "dim",
        )

    def _summary(self, played: Played) -> None:
        """Show the beginning of the newest summary's sections."""
        held = played.everlong
        summary = next((one for one in held.messages if is_summary(one)), None)
        if summary is None:
            return
        hidden, tokens = self._messages - len(held.messages) + 2, held.counter.count(summary)
        self._heading(f"Everlong's summary: {tokens:,} tokens for {counted(hidden, 'message')} (one line of each part)")
        shown = [(title, items[0]) for title, items in _sections(text_of(summary)) if items]
        for title, item in shown[: _SUMMARY_LINES // 2]:
            self._line(f"  {title}", "cyan")
            self._wrapped(textwrap.shorten(item, _ITEM_CHARS, placeholder=" …"))

    def _questions(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        """Show a question that the context answers and one that a search does, lost by the other ways if possible."""
        *others, ours = answers
        picked = []
        for source in ("context", "recall"):
            found = [place for place, one in enumerate(ours) if one.source == source]
            lost = [place for place in found if all(known[place].source == "lost" for known in others)]
            picked += [*lost, *found][:1]
        if not picked:
            return
        self._heading(
            "Two questions about what was said early" if len(picked) > 1 else "A question about what was said"
        )
        for place in picked:
            fact = ours[place].fact
            self._out.print(Text.assemble(fact.question, (f" (message {fact.message:,})", "dim")))
            where = "in the context" if ours[place].source == "context" else "by search"
            names = [
                track.contender.name
                for track, known in zip(played.tracks, answers, strict=True)
                if known[place].source == "lost"
            ]
            too = f"; lost: {', '.join(names)}" if names else ""
            self._wrapped(f"Everlong: “{ours[place].words}”, {where}{too}", "green")


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the headings of a summary with the lines under each."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(("## ", "Standing rules")):
            found.append((line, []))
        elif line.strip() and not line.startswith(("#", "(")) and found:
            found[-1][1].append(line)
    return found
