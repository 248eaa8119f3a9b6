"""The dialogue of the first run: a model is chosen from what was found, asked one question, and written down."""

from __future__ import annotations

import os
from pathlib import Path

import click

from everlong.cli.first_run.finding import FoundModel, find_claude_logs, find_models
from everlong.cli.menu import pick_line
from everlong.cli.output import say
from everlong.cli.screen import styled
from everlong.config.paths import user_config_path

__all__ = ["choose_model"]

_QUESTION = "Say hello in one short sentence."
_NOTHING = """\
Everlong needs a model, and found none. Any of these will do:

  a key        export ANTHROPIC_API_KEY=…   (or OPENAI_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY, …)
               everlong auth set anthropic  keeps a key in the system's keyring
  a server     start Ollama, LM Studio, llama.cpp or vLLM on this machine
  a file       everlong --local MODEL.gguf  serves a model file by itself
  elsewhere    everlong -m MODEL --base-url http://host:8080/v1

Then type `everlong` again. `everlong demo` needs none of it and shows what Everlong does.
"""


def choose_model() -> bool:
    """Let a person choose the model, prove that it answers, and write it to config.yaml; return False if they leave."""
    say("no model is chosen yet; looking for keys, servers and model files on this machine")
    found = find_models(os.environ, Path.home(), Path.cwd())
    if not found:
        click.echo(_NOTHING, nl=False)
        return False
    place = 0
    while True:
        width = max(len(_name(one)) for one in found)
        lines = [f"{_name(one):<{width}}  {one.about}" for one in found]
        chosen = pick_line("Which model should Everlong use?", lines, place)
        if chosen is None:
            say("no model was chosen; `everlong setup` asks again")
            return False
        place = chosen
        if _prove(found[chosen]):
            break
    _write(found[place])
    logs = find_claude_logs(Path.home())
    if logs is not None:
        say(f"there are {logs}; `everlong sessions import ~/.claude/projects` makes them searchable")
    return True


def _name(one: FoundModel) -> str:
    return one.value if one.setting == "agent.model" else Path(one.value).name


def _prove(one: FoundModel) -> bool:
    """Ask the model one question; say what it answered, or why it did not."""
    from everlong import config, providers  # noqa: PLC0415 - loads the client of a provider
    from everlong.errors import EverlongError  # noqa: PLC0415 - as above

    if one.setting == "agent.local":
        return True  # the chat itself serves it, and says what is wrong with it
    try:
        connection = providers.connect(one.value, config.load_settings().settings, timeout=60.0)
        reply = connection.complete([{"role": "user", "content": _QUESTION}], max_tokens=200)
        connection.close()
    except EverlongError as error:
        say(f"{one.value} did not answer: {error}")
        return False
    answer = " ".join(reply.text.split()) or "(an empty answer)"
    click.echo(styled(f"{one.value}: {answer}", fg="green"), err=True)
    return True


def _write(one: FoundModel) -> None:
    """Write the choice to the user's file; a new file begins with a word on what it is."""
    from everlong.config import set_value  # noqa: PLC0415 - as above

    path = user_config_path()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "# Everlong's settings. `everlong config list` shows all of them, with what they mean.\n", encoding="utf-8"
        )
    set_value(path, one.setting, one.value)
    say(f"{one.setting} is {one.value} from now on ({path}); `everlong setup` asks again")
