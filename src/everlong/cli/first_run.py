"""The dialogue of the first run: a model is chosen from what was found, asked one question, and written down."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import click

from everlong.cli.output import format_bytes, say
from everlong.cli.screen import pick_line, styled
from everlong.config.paths import user_config_path
from everlong.errors import ConfigError
from everlong.extras import install_command
from everlong.providers.endpoints import ENDPOINTS, Endpoint, is_model_file, key_source

if TYPE_CHECKING:
    from everlong.providers.connection import Connection

_QUESTION = "Say hello in one short sentence."
_SECONDS = 60.0
"""Seconds that the first answer may take: a server may have to load the model."""
_ELSE = "something else"
_WAYS = """\
Any of these will do:

  a key        export ANTHROPIC_API_KEY=…
               (or OPENAI_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY, …)
  a server     start Ollama, LM Studio, llama.cpp or vLLM on this machine
  a file       everlong --local MODEL.gguf
               (needs: {local})
  elsewhere    everlong -m MODEL --base-url http://host:8080/v1

Then type `everlong` again. `everlong demo` needs no model.
"""


def choose_model(*, plain: bool = False) -> bool:
    """Let a person choose the model, prove that it answers, and write it to config.yaml; return False if they leave.

    Args:
        plain: True to ask by numbers and draw nothing, for screen readers.
    """
    say("looking for models: keys, servers on this machine, model files")
    found = find_models(os.environ, Path.home(), Path.cwd())
    if not found:
        click.echo(f"\nEverlong needs a model and found none. {_ways()}", nl=False)
        return False
    place = 0
    while True:
        chosen = pick_line("Which model should Everlong use?", _lines(found), place, plain=plain)
        if chosen is None:
            say("no model was chosen; `everlong setup` asks again")
            return False
        if chosen == len(found):
            click.echo(f"\n{_ways()}", nl=False)
            return False
        failure = _prove(found[chosen])
        if failure is None:
            break
        found[chosen] = replace(found[chosen], about=f"✗ {failure}")
        place = (chosen + 1) % (len(found) + 1)
    _write(found[chosen])
    return True


def _ways() -> str:
    return _WAYS.format(local=install_command("local"))


def _lines(found: list[FoundModel]) -> list[str]:
    width = max(len(_ELSE), *(len(_name(one)) for one in found))
    return [*(f"{_name(one):<{width}}  {one.about}" for one in found), f"{_ELSE:<{width}}  names the other ways"]


def _name(one: FoundModel) -> str:
    return Path(one.value).name if one.is_file else one.value


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
    if not one.is_file:
        connection = providers.connect(one.value, settings, timeout=_SECONDS)
    else:
        from everlong.providers.local import LocalServer, find_model_file  # noqa: PLC0415 - only for a file

        server = opened.enter_context(LocalServer(find_model_file(Path(one.value))))
        name = f"llamacpp:{server.name}"
        connection = providers.connect(name, settings, base_url=server.url, api_key=server.api_key, timeout=_SECONDS)
    opened.callback(connection.close)
    return connection


def _write(one: FoundModel) -> None:
    """Write the choice to the user's file."""
    from everlong.config import set_value  # noqa: PLC0415 - seldom needed

    path = user_config_path()
    set_value(path, "agent.model", one.value)
    say(f"agent.model is {one.value} from now on ({path}); `everlong setup` asks again")


# -- what this machine offers ------------------------------------------------------------------------------------------


USUAL_MODELS = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-6-luna",
    "openrouter": "anthropic/claude-sonnet-5",
    "deepseek": "deepseek-chat",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-large-latest",
    "xai": "grok-4",
    "gemini": "gemini-2.5-pro",
    "nous": "Hermes-4-70B",
}
"""The model that is offered of each provider with a key; ``agent.model`` takes any other."""
_SERVERS = {"ollama": "Ollama", "llamacpp": "llama.cpp", "lmstudio": "LM Studio", "vllm": "vLLM"}
_NO_CHAT = ("embed", "rerank", "whisper")
"""Words in the names of served models that one cannot talk to."""
_PROBE_SECONDS = 0.4
_MOST_SERVED = 5
"""Models offered of one server."""
_MOST_FILES = 5
_LEAST_FILE = 50_000_000
"""Bytes of the smallest model file that is offered; smaller ones are vocabularies and tests."""
_FILE_PLACES = (
    "*.gguf",
    "models/*.gguf",
    "~/models/*.gguf",
    "~/models/*/*.gguf",
    "~/.lmstudio/models/*/*/*.gguf",
    "~/.cache/lm-studio/models/*/*/*.gguf",
    "~/.cache/llama.cpp/*.gguf",
)
_MOST_LOOKED_AT = 100
"""Model files that are looked at in all places together."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that can be used now."""

    value: str
    """The name or the file, as ``agent.model`` has it."""
    about: str
    """Where it was found."""

    @property
    def is_file(self) -> bool:
        """True for a model in a file."""
        return is_model_file(self.value)


def find_models(env: Mapping[str, str], home: Path, folder: Path) -> list[FoundModel]:
    """Return the models that can be used now: behind keys, on servers of this machine, in files."""
    return [*_models_with_keys(env), *find_served_models(), *_models_in_files(home, folder), *_models_in_package()]


def _models_with_keys(env: Mapping[str, str]) -> Iterator[FoundModel]:
    for name, endpoint in ENDPOINTS.items():
        source = key_source(endpoint, env) if name in USUAL_MODELS else None
        if source is not None:
            yield FoundModel(f"{name}:{USUAL_MODELS[name]}", f"with the key in {source}")


def find_served_models() -> Iterator[FoundModel]:
    """Yield the models of servers on this machine."""
    local = [one for one in ENDPOINTS.values() if not one.needs_key and one.base_url]
    with ThreadPoolExecutor(len(local)) as pool:
        for endpoint, names in zip(local, pool.map(_list_served, local), strict=True):
            for name in names[:_MOST_SERVED]:
                about = f"{_SERVERS.get(endpoint.name, endpoint.name)} on this machine"
                yield FoundModel(f"{endpoint.name}:{name}", about)


def _list_served(endpoint: Endpoint) -> list[str]:
    """Return the models of a server on loopback; none if nobody answers like one."""
    try:
        opener = build_opener(ProxyHandler({}))  # loopback is never behind a proxy
        with opener.open(f"{endpoint.base_url}/models", timeout=_PROBE_SECONDS) as answer:
            listed = json.loads(answer.read(1_000_000))
        names = [str(one["id"]) for one in listed["data"]]
        return [name for name in names if not any(word in name.lower() for word in _NO_CHAT)]
    except (OSError, URLError, ValueError, KeyError, TypeError):
        return []


def _models_in_files(home: Path, folder: Path) -> Iterator[FoundModel]:
    places = ((home, name[2:]) if name.startswith("~/") else (folder, name) for name in _FILE_PLACES)
    paths = (path for place, pattern in places for path in place.glob(pattern) if "mmproj" not in path.name.lower())
    sizes = {path.resolve(): _size(path) for path in islice(paths, _MOST_LOOKED_AT)}
    large = sorted((size, path) for path, size in sizes.items() if size >= _LEAST_FILE)
    for size, path in large[:_MOST_FILES]:
        yield FoundModel(str(path), f"a model file of {format_bytes(size)}")


def _models_in_package() -> Iterator[FoundModel]:
    """Yield the model that `make local-model` installs, if there is a server for it."""
    if find_spec("xllamacpp") is None:
        return
    from everlong.providers.local import find_model_file  # noqa: PLC0415 - seldom needed

    with suppress(ConfigError):  # it is not installed
        yield FoundModel(str(find_model_file()), "a very small model, to try the chat with")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
