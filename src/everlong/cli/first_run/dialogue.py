"""The dialogue of the first run: a model is chosen from what was found, asked one question, and written down."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong.cli.first_run.found_models import FoundModel, find_claude_logs, find_models
from everlong.cli.menu import pick_line
from everlong.cli.output import say
from everlong.cli.screen import styled
from everlong.config.paths import user_config_path
from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.providers.connection import Connection

__all__ = ["choose_model"]

_QUESTION = "Say hello in one short sentence."
_SECONDS = 60.0
"""Seconds that the first answer may take: a server may have to load the model."""
_ELSE = "something else"
_CHOICES = """\
  a key        export ANTHROPIC_API_KEY=…
               (or OPENAI_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY, …);
               `everlong auth set anthropic` keeps a key in the system's keyring
  a server     start Ollama, LM Studio, llama.cpp or vLLM on this machine
  a file       everlong --local MODEL.gguf
               (needs: {local})
  elsewhere    everlong -m MODEL --base-url http://host:8080/v1

Then type `everlong` again. `everlong demo` shows what Everlong does without a model.
"""
_COMMENTED = """\
# Everlong's settings. `everlong config show` lists all of them.
agent:
  # {about}; `everlong setup` chooses another.
  {name}: null
"""
_ABOUT = {
    "model": "The model that `everlong` talks to, as PROVIDER:MODEL",
    "local": "The model file that `everlong` serves on this machine and talks to",
}


def choose_model(*, plain: bool = False) -> bool:
    """Let a person choose the model, prove that it answers, and write it to config.yaml; return False if they leave.

    Args:
        plain: True to ask by numbers and draw nothing, for screen readers.
    """
    say("looking for models: keys, servers on this machine, model files")
    found = find_models(os.environ, Path.home(), Path.cwd())
    if not found:
        click.echo(f"\nEverlong needs a model and found none. Any of these will do:\n\n{_choices()}", nl=False)
        return False
    place = 0
    while True:
        chosen = pick_line("Which model should Everlong use?", _lines(found), place, plain=plain)
        if chosen is None:
            say("no model was chosen; `everlong setup` asks again")
            return False
        if chosen == len(found):
            click.echo(f"\nAny of these will do:\n\n{_choices()}", nl=False)
            return False
        failure = _prove(found[chosen])
        if failure is None:
            break
        found[chosen] = replace(found[chosen], about=f"✗ {failure}")
        place = (chosen + 1) % (len(found) + 1)
    _write(found[chosen])
    logs = find_claude_logs(Path.home())
    if logs is not None:
        say(f"there are {logs}; `everlong sessions import ~/.claude/projects` makes them searchable")
    return True


def _choices() -> str:
    return _CHOICES.format(local=install_command("local"))


def _lines(found: list[FoundModel]) -> list[str]:
    width = max(len(_ELSE), *(len(_name(one)) for one in found))
    return [*(f"{_name(one):<{width}}  {one.about}" for one in found), f"{_ELSE:<{width}}  names the other ways"]


def _name(one: FoundModel) -> str:
    return one.value if one.setting == "agent.model" else Path(one.value).name


def _prove(one: FoundModel) -> str | None:
    """Ask the model one question and print its answer; return why there is none, in a few words."""
    from everlong.errors import AuthenticationFailed, EverlongError  # noqa: PLC0415 - loads the client of a provider

    say(f"asking {_name(one)} for a word …")
    try:
        with ExitStack() as opened:
            reply = _connect(one, opened).complete([{"role": "user", "content": _QUESTION}], max_tokens=400)
    except AuthenticationFailed:
        say(f"{one.value.partition(':')[0]} refused {one.about.removeprefix('with ')}; correct it, or choose another")
        return "its key was refused"
    except EverlongError as error:
        say(str(error))
        return "it did not answer"
    except KeyboardInterrupt:
        say("stopped")
        return "you stopped it"
    answer = " ".join(reply.text.split()) or "(an empty answer)"
    click.echo(styled(f"{_name(one)}: {answer}", fg="green"), err=True)
    return None


def _connect(one: FoundModel, opened: ExitStack) -> Connection:
    """Return a connection to a model that was found; a model in a file is served until the stack is closed."""
    from everlong import config, providers  # noqa: PLC0415 - loads the client of a provider

    settings = config.load_settings().settings
    if one.setting == "agent.model":
        connection = providers.connect(one.value, settings, timeout=_SECONDS)
    else:
        from everlong.providers.local import LocalServer, find_model_file  # noqa: PLC0415 - only for a file

        server = opened.enter_context(LocalServer(find_model_file(Path(one.value))))
        name = f"llamacpp:{server.model.name}"
        connection = providers.connect(name, settings, base_url=server.url, api_key=server.api_key, timeout=_SECONDS)
    opened.callback(connection.close)
    return connection


def _write(one: FoundModel) -> None:
    """Write the choice to the user's file; a new file says what its lines mean."""
    from everlong.config import load_settings, set_value  # noqa: PLC0415 - seldom needed

    path, name = user_config_path(), one.setting.removeprefix("agent.")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_COMMENTED.format(about=_ABOUT[name], name=name), encoding="utf-8")
    if name == "local" and load_settings().settings.agent.model is not None:
        set_value(path, "agent.model", "null")  # it would come first
    set_value(path, one.setting, one.value)
    say(f"{one.setting} is {one.value} from now on ({path}); `everlong setup` asks again")
