"""``everlong chat``: puts the parts of the chat together, for a terminal or for a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.local import CommandWithLocal, LocalModel, local_model, local_option
from everlong.cli.sessions_common import opened, store_option

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.cli.chat.commands import Registry
    from everlong.config import Settings
    from everlong.store import Store

__all__ = ["chat_command"]


@click.command("chat", cls=CommandWithLocal)
@click.option("-m", "--model", metavar="PROVIDER:MODEL", help="The model.  [default: agent.model]")
@click.option("--base-url", metavar="URL", help="The address of an endpoint that serves the model.")
@local_option()
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Go on with the newest session.")
@click.option("--resume", metavar="ID|TITLE", help="Go on with this session.")
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
@store_option(hidden=False)
def chat_command(**given: Any) -> None:
    """Talk to a model with tools, in a conversation that does not end at its window."""
    if given["prompt"] is not None:
        _one_prompt(given)
        return
    from everlong.config import load_settings  # noqa: PLC0415 - keeps `everlong --help` quick

    settings = load_settings().settings
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    with opened(new=True) as store, local_model(given, settings) as local:
        failed = _chat(settings, store, {**given, "local": local}, on_terminal=is_terminal and not given["plain"])
    if failed:
        raise click.exceptions.Exit(1)


def _one_prompt(given: dict[str, Any]) -> None:
    from everlong.cli.run import run_command  # noqa: PLC0415 - as above

    taken = ("model", "base_url", "local", "goes_on", "resume", "title", "yes", "cwd", "allow")
    click.get_current_context().invoke(run_command, prompt=given["prompt"], **{name: given[name] for name in taken})


def _chat(settings: Settings, store: Store, given: dict[str, Any], *, on_terminal: bool) -> bool:
    """Chat until the user leaves; whether it could not even begin."""
    from rich.console import Console  # noqa: PLC0415 - as above

    from everlong.cli.chat.commands import Desk  # noqa: PLC0415 - as above
    from everlong.cli.chat.show import Show  # noqa: PLC0415 - as above
    from everlong.cli.chat.state import ChatState  # noqa: PLC0415 - as above
    from everlong.cli.chat.worker import Worker  # noqa: PLC0415 - as above

    state = ChatState()
    console = Console(force_terminal=on_terminal or None, no_color=True if given["plain"] else None)
    show = Show(console, state, plain=given["plain"] or not on_terminal)
    desk = Desk(state, show, settings)
    registry = command_registry()

    def open_one(resume: str | None = None) -> Agent:
        return _opened(settings, store, {**given, "resume": resume or given["resume"]}, worker, show)

    def begin() -> Agent:
        agent = open_one()
        show.line(agent.caching_line, "dim")
        return agent

    desk.open_agent = open_one
    worker = Worker(state, show, begin, lambda line: registry.run(desk, line))
    if on_terminal:
        from everlong.cli.chat.terminal import talk  # noqa: PLC0415 - as above

        talk(state, worker, registry)
    else:
        _talk_plainly(state, worker)
    worker.end()
    if state.agent is not None:
        state.agent.close()
    return worker.failed


def _talk_plainly(state: Any, worker: Any) -> None:
    """Line by line, for pipes and dumb terminals: every line is a prompt or a command."""
    worker.start()
    for line in sys.stdin:
        text = line.strip()
        if text in {"/quit", "/exit"}:
            break
        if text:
            worker.send(text)
            worker.wait()
        if state.is_over:
            break


def command_registry() -> Registry:
    """All slash commands."""
    from everlong.cli.chat.changing import CHANGING  # noqa: PLC0415 - as above
    from everlong.cli.chat.commands import Command, Desk, Registry  # noqa: PLC0415 - as above
    from everlong.cli.chat.looking import LOOKING  # noqa: PLC0415 - as above

    def show_help(desk: Desk, words: str) -> None:
        """List the commands."""
        del words
        for command in registry.commands.values():
            desk.show.line(f"/{command.name} {command.takes}".ljust(40) + command.about)
        desk.show.line("Alt-Enter or Ctrl-J begins a new line, Ctrl-C stops, Ctrl-D leaves, Tab completes.", "dim")

    registry = Registry([*LOOKING, *CHANGING, Command("help", "", "This list.", show_help)])
    return registry


def _opened(settings: Settings, store: Store, given: dict[str, Any], worker: Any, show: Any) -> Agent:
    from everlong.agent import AgentOptions, approve_everything, open_agent  # noqa: PLC0415 - as above
    from everlong.agent.approval import refuse_everything  # noqa: PLC0415 - as above
    from everlong.providers import connect  # noqa: PLC0415 - as above

    model: Any = given["model"] or settings.agent.model
    if given["base_url"] is not None and model is not None:
        model = connect(model, settings, base_url=given["base_url"])
    resume = given["resume"]
    if resume is None and given["goes_on"]:
        newest = store.sessions.newest(limit=1)
        resume = newest[0].id if newest else None
    approver = worker.approve if sys.stdin.isatty() else refuse_everything("there is no terminal to ask; say --yes")
    options = AgentOptions(
        root=given["cwd"] or Path.cwd(),
        allowed=given["allow"],
        approver=approve_everything if given["yes"] else approver,
        resume=resume,
        title=given["title"],
    )
    local: LocalModel | None = given["local"]
    if local is not None:
        return local.open_agent(settings, options, store, show)
    return open_agent(settings, model, options, store=store, listen=show)
