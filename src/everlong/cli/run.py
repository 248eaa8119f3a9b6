"""``everlong run``: works on one prompt with tools until it is done."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import everlong.agent
from everlong import config
from everlong.agent.text import visible
from everlong.cli.chat.attachments import attach_files
from everlong.cli.chosen_store import newest_to_resume, open_chosen_store
from everlong.cli.local import agent_options, local_model, open_agent
from everlong.cli.output import counted, say
from everlong.cli.trust import settle_trust, tell_notices

if TYPE_CHECKING:
    from everlong.agent import AgentOptions
    from everlong.agent.events import AgentEvent, CompactionFinished, TurnFinished
    from everlong.store import Store


@click.command("run")
@click.argument("prompt", required=False)
@agent_options
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Stop after this many answers of the model.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Stop after this many US dollars.")
def run_command(prompt: str | None, **given: Any) -> None:
    """Work on one PROMPT with tools, in the current folder, until it is done.

    Without PROMPT, or with "-", the prompt is read from standard input; @FILE in it gives the model a file, and in what
    comes by standard input only a file of this folder. Before a tool writes or runs anything, you are asked on the
    terminal; without a terminal it is refused, unless you say --yes.
    """
    said = attach_files(_read_prompt(prompt), Path.cwd(), say, is_typed=prompt not in {None, "-"})
    is_watched = sys.stdin.isatty() and sys.stderr.isatty() and not given["as_json"]
    settle_trust(trusts=given["trust"], asks=is_watched)
    limits = ("max_steps", "max_cost")
    loaded = config.load_settings({f"agent.{name}": given[name] for name in limits if given[name] is not None})
    tell_notices(loaded)
    settings = loaded.settings
    with open_chosen_store(new=True) as store, local_model(given, settings) as local:
        listen = JsonSpeaker() if given["as_json"] else PlainSpeaker()
        agent = open_agent(given, settings, _make_options(store, given), store, listen, local)
        try:
            if not given["as_json"]:
                click.echo(agent.caching_line, err=True)
            finished = agent.run(said)
        finally:
            agent.close()
    if finished.stop == "interrupted":
        raise click.exceptions.Exit(130)
    if finished.stop != "end":
        raise click.exceptions.Exit(1)


def _make_options(store: Store, given: dict[str, Any]) -> AgentOptions:
    from everlong.agent.approval import ask_on_terminal  # noqa: PLC0415 - keeps `--help` quick

    resume = given["resume"]
    if given["goes_on"]:
        if resume is not None:
            raise click.UsageError("use --continue or --resume, not both")
        resume = newest_to_resume(store, Path.cwd())
    return everlong.agent.AgentOptions(
        root=Path.cwd(),
        allowed=given["allow"],
        approver=everlong.agent.approve_everything if given["yes"] else ask_on_terminal,
        resume=resume,
    )


def _read_prompt(prompt: str | None) -> str:
    if prompt in {None, "-"}:
        if sys.stdin.isatty() and prompt is None:
            raise click.UsageError('there is no prompt; write everlong run "…", or pipe one in')
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not prompt or not prompt.strip():
        raise click.UsageError("the prompt is empty; write what is to be done")
    return prompt


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
        say(visible(text))

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


def compaction_line(event: CompactionFinished) -> str:
    """Return one line on a compaction: the reason, the cost, the sizes before and after, the quality."""
    from everlong.agent.commands.compaction import REASONS  # noqa: PLC0415 - keeps `--help` quick

    reason = REASONS.get(event.reason, event.reason)
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
