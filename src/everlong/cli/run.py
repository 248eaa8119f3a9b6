"""``everlong run``: works on one prompt with tools until it is done."""

from __future__ import annotations

import base64
import mimetypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import everlong.agent
from everlong import config, providers
from everlong.cli.chosen_store import newest_to_resume, open_chosen_store, store_option
from everlong.cli.local import CommandWithLocal, LocalModel, local_model, local_option
from everlong.cli.trust import settle_trust, tell_notices, trust_option

if TYPE_CHECKING:
    from everlong.agent import Agent, AgentOptions
    from everlong.config import Settings
    from everlong.store import Store

__all__ = ["run_command"]

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST_IMAGE_BYTES = 20_000_000


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
@click.option(
    "--image",
    "images",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A picture to show to the model; can be repeated.",
)
@trust_option
@click.option("--max-steps", type=click.IntRange(min=1), help="Stop after this many answers of the model.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Stop after this many US dollars.")
@store_option
def run_command(prompt: str | None, **given: Any) -> None:
    """Work on one PROMPT with tools, in the current folder, until it is done.

    Without PROMPT, or with "-", the prompt is read from standard input. Before a tool writes or runs anything, you are
    asked on the terminal; without a terminal it is refused, unless you say --yes.
    """
    said = _read_prompt(prompt, given["images"])
    is_watched = sys.stdin.isatty() and sys.stderr.isatty() and not given["as_json"]
    settle_trust(trusts=given["trust"], asks=is_watched)
    loaded = config.load_settings(_limits(given))
    tell_notices(loaded)
    settings = loaded.settings
    with open_chosen_store(new=True) as store, local_model(given, settings) as local:
        agent = _open_agent(settings, store, given, local)
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


def _limits(given: dict[str, Any]) -> dict[str, Any]:
    """Return the limits of the command line as settings."""
    names = ("max_steps", "max_cost")
    return {f"agent.{name}": given[name] for name in names if given[name] is not None}


def _open_agent(settings: Settings, store: Store, given: dict[str, Any], local: LocalModel | None) -> Agent:
    from everlong.cli.speaking import JsonSpeaker, PlainSpeaker  # noqa: PLC0415 - keeps `--help` quick

    listen = JsonSpeaker() if given["as_json"] else PlainSpeaker()
    if local is not None:
        return local.open_agent(settings, _make_options(store, given), store, listen)
    model: Any = given["model"] or settings.agent.model
    if given["base_url"] is not None:
        if model is None:
            raise click.UsageError("--base-url needs --model NAME")
        model = providers.connect(model, settings, base_url=given["base_url"])
    return everlong.agent.open_agent(settings, model, _make_options(store, given), store=store, listen=listen)


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


def _read_prompt(prompt: str | None, images: tuple[Path, ...]) -> str | list[dict[str, Any]]:
    if prompt in {None, "-"}:
        if sys.stdin.isatty() and prompt is None:
            raise click.UsageError('there is no prompt; write everlong run "…", or pipe one in')
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not prompt or not prompt.strip():
        raise click.UsageError("the prompt is empty; write what is to be done")
    if not images:
        return prompt
    return [{"type": "text", "text": prompt}, *map(_encode_image, images)]


def _encode_image(path: Path) -> dict[str, Any]:
    kind = mimetypes.guess_type(path.name)[0]
    if kind not in _IMAGE_TYPES:
        raise click.UsageError(f"{path} is no picture that models accept; allowed are {', '.join(_IMAGE_TYPES)}")
    if path.stat().st_size > _MOST_IMAGE_BYTES:
        raise click.UsageError(f"{path} has {path.stat().st_size:,} bytes; models accept {_MOST_IMAGE_BYTES:,} at most")
    data = base64.b64encode(path.read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
