"""What this machine offers: keys in the environment, model servers on loopback, model files, and logs of clients.

Nothing leaves the machine: servers are asked on loopback only, and a key is only seen to be there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from everlong.cli.output import counted, format_bytes
from everlong.errors import ConfigError
from everlong.providers.endpoints import ENDPOINTS, Endpoint
from everlong.providers.keys import key_source

__all__ = ["FoundModel", "find_claude_logs", "find_models", "find_served_models"]

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
_FILE_PLACES = (".", "models", "~/models", "~/.lmstudio/models", "~/.cache/lm-studio/models", "~/.cache/llama.cpp")
_MOST_LOOKED_AT = 20_000
"""Directory entries that are looked at in all places together."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that can be used now."""

    setting: str
    """The setting that chooses it: ``agent.model`` or ``agent.local``."""
    value: str
    about: str
    """Where it was found."""


def find_models(env: Mapping[str, str], home: Path, folder: Path) -> list[FoundModel]:
    """Return the models that can be used now: behind keys, on servers of this machine, in files."""
    return [*_models_with_keys(env), *find_served_models(), *_models_in_files(home, folder), *_models_in_package()]


def _models_with_keys(env: Mapping[str, str]) -> Iterator[FoundModel]:
    for name, endpoint in ENDPOINTS.items():
        source = key_source(endpoint, env) if name in USUAL_MODELS else None
        if source is not None:
            where = source.removeprefix("env ") if source.startswith("env ") else "the system's keyring"
            yield FoundModel("agent.model", f"{name}:{USUAL_MODELS[name]}", f"with the key in {where}")


def find_served_models() -> Iterator[FoundModel]:
    """Yield the models of servers on this machine."""
    local = [one for one in ENDPOINTS.values() if not one.needs_key and one.base_url]
    with ThreadPoolExecutor(len(local)) as pool:
        for endpoint, names in zip(local, pool.map(_list_served, local), strict=True):
            for name in names[:_MOST_SERVED]:
                about = f"{_SERVERS.get(endpoint.name, endpoint.name)} on this machine"
                yield FoundModel("agent.model", f"{endpoint.name}:{name}", about)


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
    found: dict[Path, int] = {}
    for path in _gguf_files([_place(name, home, folder) for name in _FILE_PLACES]):
        size = _size(path)
        if size >= _LEAST_FILE:
            found.setdefault(path.resolve(), size)
    for path, size in sorted(found.items(), key=lambda one: one[1])[:_MOST_FILES]:
        yield FoundModel("agent.local", str(path), f"a model file of {format_bytes(size)}")


def _models_in_package() -> Iterator[FoundModel]:
    """Yield the model that `make local-model` installs, if there is a server for it."""
    if find_spec("xllamacpp") is None:
        return
    from everlong.providers.local import find_model_file  # noqa: PLC0415 - seldom needed

    with suppress(ConfigError):  # it is not installed
        yield FoundModel("agent.local", str(find_model_file().path), "a very small model, to try the chat with")


def _place(name: str, home: Path, folder: Path) -> Path:
    return home / name[2:] if name.startswith("~/") else folder / name


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _gguf_files(places: Sequence[Path]) -> Iterator[Path]:
    """Yield model files in some folders, three levels deep at most, and never more than so many entries."""
    looked = 0
    waiting = [(place, 0) for place in places]
    while waiting:
        place, depth = waiting.pop(0)
        try:
            entries = list(os.scandir(place))
        except OSError:
            continue
        for entry in entries:
            looked += 1
            if looked > _MOST_LOOKED_AT:
                return
            if entry.name.lower().endswith(".gguf") and "mmproj" not in entry.name.lower():
                yield Path(entry.path)
            elif place != places[0] and depth < 3 and entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), depth + 1))


def find_claude_logs(home: Path) -> str | None:
    """Return how many logs of Claude Code there are, in words; None without any."""
    folder = home / ".claude" / "projects"
    try:
        count = sum(1 for _ in folder.glob("*/*.jsonl"))
    except OSError:
        return None
    return f"{counted(count, 'conversation')} of Claude Code in {folder}" if count else None
