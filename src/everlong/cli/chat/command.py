"""``everlong chat``: the command, and the chat line by line for a pipe or a plain terminal.

``terminal.py`` is the chat with a prompt that stays at the bottom; ``commands.py`` has the slash commands.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.chat.state import ASKED, STARTING, ChatState
from everlong.cli.local import agent_options
from everlong.cli.screen import console, unguarded
from everlong.cli.trust import settle_trust

if TYPE_CHECKING:
    from everlong.agent.commands.registry import Registry
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import Question
    from everlong.cli.chat.worker import ChatWorker


@click.command("chat")
@agent_options
@click.option("--title", help="A title for the session.")
@click.option("--plain", is_flag=True, help="No colour, no drawing, for screen readers and dumb terminals.")
def chat_command(**given: Any) -> None:
    """Talk to a model with tools, in a conversation that does not end at its window."""
    if given["goes_on"] and given["resume"] is not None:
        raise click.UsageError("use --continue or --resume, not both")
    settle_trust(trusts=given["trust"], asks=sys.stdin.isatty() and sys.stderr.isatty())
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if is_terminal and _lacks_model(given):
        from everlong.cli.first_run import choose_model  # noqa: PLC0415 - only at the first run

        if not choose_model(plain=given["plain"]):
            raise click.exceptions.Exit(1)
    if not _chat(given, on_terminal=is_terminal and not given["plain"]):
        raise click.exceptions.Exit(1)


def _lacks_model(given: dict[str, Any]) -> bool:
    """Return whether neither the command line nor the settings name a model."""
    if any(given[name] is not None for name in ("model", "base_url", "local")):
        return False
    from everlong.config import load_settings  # noqa: PLC0415 - keeps `--help` quick

    return load_settings().settings.agent.model is None


def _chat(given: dict[str, Any], *, on_terminal: bool) -> bool:
    """Chat until the user leaves; return whether all went well.

    The prompt comes first: the worker opens settings, store and agent in a thread of its own.
    """
    from everlong.cli.chat.worker import ChatWorker, Opening  # noqa: PLC0415 - keeps `--help` quick

    state, registry = ChatState(), command_registry()
    is_pipe = not sys.stdin.isatty()
    opening = Opening(click.get_current_context(), given, state, registry, asks=not is_pipe)
    worker = ChatWorker(state, lambda: _make_show(state, plain=not on_terminal), opening.desk)
    has_ended = True
    if on_terminal:
        from everlong.cli.chat.terminal import talk  # noqa: PLC0415 - keeps `--help` quick

        with unguarded():  # it draws with escapes
            has_ended = talk(state, worker, registry)
    else:
        talk_plainly(state, worker)
        worker.end()
    if on_terminal and state.agent is not None and state.agent.conversation.session is not None:
        talk_id = state.agent.conversation.session.conversation
        click.echo(f"go on with: everlong chat --resume {talk_id}", err=True)
    if not has_ended:
        # Long work in the worker's thread would keep the program. Everything said is stored; the rest is like a crash.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return not worker.could_not_begin and not (is_pipe and worker.failures)


def _make_show(state: ChatState, *, plain: bool) -> Show:
    from everlong.cli.chat.show import Show  # noqa: PLC0415 - keeps `--help` quick

    # In a pipe only answers are data.
    aside = None if sys.stdout.isatty() else console(stderr=True, force_terminal=False)
    return Show(console(force_terminal=not plain), state, plain=plain, aside=aside)


def command_registry() -> Registry:
    """Return the registry of all slash commands."""
    from everlong.agent.commands.registry import Registry  # noqa: PLC0415 - keeps `--help` quick
    from everlong.cli.chat.commands import COMMANDS  # noqa: PLC0415 - as above

    return Registry(COMMANDS)


class _PlainChat:
    """A chat that reads a line and waits until it is done."""

    def __init__(self, state: ChatState, worker: ChatWorker) -> None:
        self._state = state
        self._worker = worker
        self._is_asked = sys.stdin.isatty()
        self._changed = threading.Event()
        state.changed = self._changed.set

    def talk(self) -> None:
        """Send every line, and wait until it is done."""
        self._worker.start()
        self._wait_until(lambda: self._state.busy != STARTING)
        while not self._state.is_over:
            try:
                line = self._read_line("> ")
            except KeyboardInterrupt:
                if not self._is_asked:
                    raise
                sys.stdout.write("\n")  # like a shell: drop the line
                continue
            if line is None:
                return
            if line.strip():
                self._worker.send(line)
                self._finish()

    def _read_line(self, prompt: str) -> str | None:
        """Return the next line; None at the end."""
        if self._is_asked:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line and self._is_asked:
            sys.stdout.write("\n")
        return line.rstrip("\r\n") if line else None

    def _finish(self) -> None:
        """Wait until everything sent is done; Ctrl-C stops that, and ends a chat in a pipe."""
        try:
            self._wait_until(lambda: self._worker.is_done)
        except KeyboardInterrupt:
            self._worker.interrupt()
            self._wait_until(lambda: self._worker.is_done)
            if not self._is_asked:
                raise

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.wait(1.0)
            self._changed.clear()
            question = self._state.question
            if question is not None and not question.is_answered.is_set():
                self._ask(question)

    def _ask(self, question: Question) -> None:
        from everlong.agent.approval import discard_typed  # noqa: PLC0415 - keeps `--help` quick

        line: str | None = ""
        discard_typed(sys.stdin)
        while line is not None and not line.strip():
            line = self._read_line(ASKED)
        question.decide("no" if line is None else line)


def talk_plainly(state: ChatState, worker: ChatWorker) -> None:
    """Chat line by line until there are no more lines."""
    _PlainChat(state, worker).talk()
