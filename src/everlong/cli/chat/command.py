"""``everlong chat``: puts the parts of the chat together, for a terminal or for a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.local import CommandWithLocal, local_option
from everlong.cli.screen import console, unguarded
from everlong.cli.sessions_common import store_option
from everlong.cli.trust import settle_trust, trust_option

if TYPE_CHECKING:
    from everlong.cli.chat.commands import Registry
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import ChatState

__all__ = ["chat_command"]


@click.command("chat", cls=CommandWithLocal)
@click.option("-m", "--model", metavar="PROVIDER:MODEL", help="The model.  [default: agent.model]")
@click.option("--base-url", metavar="URL", help="The address of an endpoint that serves the model.")
@local_option()
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Go on with the newest conversation of this folder.")
@click.option("--resume", metavar="ID|TITLE", help="Go on with this conversation.")
@click.option("-p", "--prompt", help="Answer this one prompt and leave, as everlong run does.")
@click.option("--title", help="A title for the session.")
@click.option("-y", "--yes", is_flag=True, help="Approve everything that writes or runs something.")
@click.option("--plain", is_flag=True, help="No colour, no drawing, for screen readers and dumb terminals.")
@click.option("--cwd", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Work in this folder.")
@click.option(
    "--allow",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="A further folder that file tools may touch; may be given again.",
)
@trust_option
@store_option(hidden=False)
def chat_command(**given: Any) -> None:
    """Talk to a model with tools, in a conversation that does not end at its window."""
    if given["goes_on"] and given["resume"] is not None:
        raise click.UsageError("say --continue or --resume, not both")
    if given["prompt"] is not None:
        _one_prompt(given)
        return
    settle_trust(given["cwd"], trusts=given["trust"], asks=sys.stdin.isatty() and sys.stderr.isatty())
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not _chat(given, on_terminal=is_terminal and not given["plain"]):
        raise click.exceptions.Exit(1)


def _one_prompt(given: dict[str, Any]) -> None:
    from everlong.cli.run import run_command  # noqa: PLC0415 - keeps `everlong --help` quick

    taken = ("model", "base_url", "local", "goes_on", "resume", "title", "yes", "cwd", "allow", "trust")
    click.get_current_context().invoke(run_command, prompt=given["prompt"], **{name: given[name] for name in taken})


def _chat(given: dict[str, Any], *, on_terminal: bool) -> bool:
    """Chat until the user leaves; whether all was well.

    The prompt comes first: settings, store and agent are opened by the worker, in a thread of its own.
    """
    from everlong.cli.chat.opening import Opening  # noqa: PLC0415 - as above
    from everlong.cli.chat.state import ChatState  # noqa: PLC0415 - as above
    from everlong.cli.chat.worker import Worker  # noqa: PLC0415 - as above

    state, registry = ChatState(), command_registry()
    is_pipe = not sys.stdin.isatty()
    opening = Opening(click.get_current_context(), given, state, registry, asks=not is_pipe)
    worker = Worker(state, lambda: _show(state, plain=not on_terminal), opening.desk)
    if on_terminal:
        from everlong.cli.chat.terminal import talk  # noqa: PLC0415 - as above

        with unguarded():  # what it draws with are escapes
            talk(state, worker, registry)
            worker.end()
    else:
        from everlong.cli.chat.plain import talk_plainly  # noqa: PLC0415 - as above

        talk_plainly(state, worker)
    worker.end()
    if on_terminal and state.agent is not None and state.agent.conversation.session is not None:
        click.echo(f"go on with: everlong chat --resume {state.agent.conversation.session.conversation}", err=True)
    return not worker.could_not_begin and not (is_pipe and worker.failures)


def _show(state: ChatState, *, plain: bool) -> Show:
    from everlong.cli.chat.show import Show  # noqa: PLC0415 - as above

    # In a pipe only answers are data.
    aside = None if sys.stdout.isatty() else console(stderr=True, force_terminal=False)
    return Show(console(force_terminal=not plain), state, plain=plain, aside=aside)


def command_registry() -> Registry:
    """All slash commands."""
    from everlong.cli.chat.changing import CHANGING  # noqa: PLC0415 - as above
    from everlong.cli.chat.commands import Registry  # noqa: PLC0415 - as above
    from everlong.cli.chat.looking import LOOKING  # noqa: PLC0415 - as above
    from everlong.cli.chat.rules import RULES  # noqa: PLC0415 - as above

    return Registry([*LOOKING, *CHANGING, *RULES])
