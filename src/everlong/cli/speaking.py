"""The output of ``everlong run``: events for a person as they happen, or JSON lines for a program.

On a terminal, words appear as they arrive. In a pipe, stdout gets the final answer only. Everything else goes to
stderr.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import click

from everlong.agent.text import visible
from everlong.cli.output import counted

if TYPE_CHECKING:
    from everlong.agent.events import AgentEvent, CompactionFinished, TurnFinished

__all__ = ["JsonSpeaker", "PlainSpeaker", "compaction_line", "fallback_line", "stop_line"]

_LONGEST_REASON = 90
_NAMES = re.compile(r"\S+(?:, else \S+)*")
"""Names of summarizers and of errors, which stand before the reason."""


class JsonSpeaker:
    """A listener that prints every event as one line of JSON."""

    def __call__(self, event: AgentEvent) -> None:
        """Print an event."""
        from everlong.agent.events import as_dict  # noqa: PLC0415 - keeps `everlong --help` quick

        click.echo(json.dumps(as_dict(event), ensure_ascii=True, default=str))


class PlainSpeaker:
    """A listener that prints answers on stdout and everything else on stderr."""

    def __init__(self, *, streams: bool | None = None) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._streams = self._is_terminal if streams is None else streams
        self._is_midline = False

    def __call__(self, event: AgentEvent) -> None:
        """Print an event."""
        from everlong.agent import events as e  # noqa: PLC0415 - keeps `everlong --help` quick

        if isinstance(event, e.TextDelta):
            self._word(event.text)
        elif isinstance(event, e.Restarted):
            self._note(f"the answer broke off and is asked for again ({event.reason})")
        elif isinstance(event, e.Answered):
            self._end_line()
        elif isinstance(event, e.ToolFinished):
            lines = event.text.count("\n") + 1 if event.text else 0
            size = f"{counted(lines, 'line')}, {event.seconds:.1f} s"
            self._note(f"· {event.summary} → {event.outcome}, {size}")
        elif isinstance(event, e.CompactionFinished):
            self._note(compaction_line(event))
            if event.fallback:
                self._note(fallback_line(event.fallback))
        elif isinstance(event, e.Notice):
            self._note(f"note: {event.text}")
        elif isinstance(event, e.TurnFinished):
            self._print_end(event)

    def _word(self, text: str) -> None:
        if self._streams and text:
            click.echo(visible(text) if self._is_terminal else text, nl=False)
            self._is_midline = not text.endswith("\n")

    def _print_end(self, event: TurnFinished) -> None:
        self._end_line()
        if not self._streams and event.text:
            click.echo(visible(event.text) if self._is_terminal else event.text)
        if event.stop != "end":
            self._note(stop_line(event))
        usage = event.usage
        answers = counted(event.steps, "answer")
        cost = f", ${event.cost:.4f}" if event.cost else ""
        self._note(
            f"{answers}, {usage.prompt_tokens:,} tokens read ({usage.cache_read_tokens:,} cached), "
            f"{usage.output_tokens:,} written{cost}; session {event.session_id}"
        )

    def _note(self, text: str) -> None:
        self._end_line()
        click.echo(f"everlong: {visible(text)}", err=True)

    def _end_line(self) -> None:
        if self._is_midline:
            click.echo()
        self._is_midline = False


def stop_line(event: TurnFinished) -> str:
    """Return why a turn ended without an answer."""
    reasons = {
        "limit": f"stopped at a limit: {event.detail}",
        "interrupted": "interrupted",
        "length": "the answer was cut off at its longest; agent.max_output_tokens sets another length",
        "refusal": "the model declined to answer",
    }
    return reasons[event.stop]


_REASONS = {"preflight": "the next request would not fit", "hygiene": "resumed with an almost full window"}
"""Reasons whose names only we know, in words."""


def compaction_line(event: CompactionFinished) -> str:
    """Return one line on a compaction: the reason, the cost, the sizes before and after, the quality."""
    reason = _REASONS.get(event.reason, event.reason)
    if event.outcome != "compacted":
        return f"compaction ({reason}): {event.outcome}"
    quality = f"; {event.quality}" if event.quality else ""
    tokens = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
    messages = f"{event.messages_before:,} → {counted(event.messages_after, 'message')}"
    cost = f", ${event.cost:.4f}" if event.cost else ""
    return f"compacted ({reason}): {tokens}, {messages}{cost}, {event.seconds:.1f} s{quality}"


def fallback_line(reason: str) -> str:
    """Return one short line on why no model wrote the summary; `/history` has the whole reason."""
    parts = (reason.splitlines() or [""])[0].split(": ")
    while len(parts) > 1 and _NAMES.fullmatch(parts[0]):
        del parts[0]
    why = ": ".join(parts)
    if len(why) > _LONGEST_REASON:
        why = f"{why[: _LONGEST_REASON - 1].rsplit(' ', 1)[0]} …"
    return f"the built-in summarizer wrote it: {why}"
