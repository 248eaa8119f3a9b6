"""``everlong run``: works on one prompt with tools until it is done."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import everlong.agent
from everlong import config
from everlong.cli.chat.attachments import attach_files
from everlong.cli.chosen_store import newest_to_resume, open_chosen_store, store_option
from everlong.cli.local import CommandWithLocal, local_model, local_option, open_agent
from everlong.cli.output import say
from everlong.cli.trust import settle_trust, tell_notices, trust_option

if TYPE_CHECKING:
    from everlong.agent import AgentOptions
    from everlong.store import Store

__all__ = ["run_command"]


@click.command("run", cls=CommandWithLocal)
@click.argument("prompt", required=False)
@click.option("-m", "--model", metavar="PROVIDER:MODEL", help="The model.  [default: agent.model]")
@click.option("--base-url", metavar="URL", help="The address of a server that has the model.")
@local_option()
@click.option("-y", "--yes", is_flag=True, help="Approve everything that writes or runs something.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Continue the newest conversation of this folder.")
@click.option("--resume", metavar="ID|TITLE", help="Continue this conversation.")
@click.option(
    "--allow",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Another folder that file tools may use; can be repeated.",
)
@trust_option
@click.option("--max-steps", type=click.IntRange(min=1), help="Stop after this many answers of the model.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Stop after this many US dollars.")
@store_option
def run_command(prompt: str | None, **given: Any) -> None:
    """Work on one PROMPT with tools, in the current folder, until it is done.

    Without PROMPT, or with "-", the prompt is read from standard input; @FILE in it gives the model a file. Before a
    tool writes or runs anything, you are asked on the terminal; without a terminal it is refused, unless you say --yes.
    """
    from everlong.cli.speaking import JsonSpeaker, PlainSpeaker  # noqa: PLC0415 - keeps `--help` quick

    said = attach_files(_read_prompt(prompt), Path.cwd(), say)
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
        resume, instead = newest_to_resume(store, Path.cwd(), "everlong run")
        if resume is None:
            raise click.UsageError(f"{instead}; or leave --continue out")
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
