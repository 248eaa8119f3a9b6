"""Describe a client: its programs, its configuration file, its settings, and how to start it behind a gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from everlong.cli.clients.configuration import ConfigurationFile
from everlong.cli.clients.formats import Format, value_at
from everlong.errors import ConfigError

__all__ = ["VARIABLES", "Client", "Gateway", "Run", "Setting", "around_proxies", "base_urls"]

VARIABLES = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
}
"""Environment variables by which programs find an API; the first is that of the official SDK."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway that a client is to use."""

    address: str
    """Without a path: ``http://127.0.0.1:8642``."""
    is_anthropic: bool = False
    """True if requests for Claude go on to Anthropic's own address."""
    model: str | None = None
    """The model that the client is to use, where the user named one."""
    context_length: Callable[[str], int | None] = lambda _: None
    """Returns the window of a model; None where it is not known."""

    @property
    def v1(self) -> str:
        """The base URL of clients that append ``/chat/completions`` or ``/messages``."""
        return f"{self.address}/v1"

    def base_url(self, api: str) -> str:
        """Return the base URL that the official SDK of an API takes."""
        return self.v1 if api == "openai" else self.address


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in a configuration file."""

    path: tuple[str, ...]
    value: Any
    api: str | None = None
    """The API whose base URL it is."""
    is_ours: Callable[[Any], bool] = lambda _: False
    """For lists: returns whether an item was put there by Everlong."""
    is_frame: bool = False
    """True for a field that an entry needs to be valid: it stays while others use the entry."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program: its words and its environment."""

    command: list[str]
    env: dict[str, str]


class Client:
    """A client of the gateway; what is different for one of them, its class says."""

    name = ""
    title = ""
    programs: tuple[str, ...] = ()
    """Names of its executables."""
    format: Format | None = None
    """The format of its configuration file; None for a library, which is set up in code."""
    takes_model = False
    """True if its configuration depends on the model."""

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        """Return where its configuration file is, or would be."""
        raise NotImplementedError

    def settings(self, gateway: Gateway, values: Any) -> list[Setting]:
        """Return what its configuration file must say, given what it says now."""
        raise NotImplementedError

    def code(self, gateway: Gateway) -> str:
        """Return the lines of code that set up a library."""
        raise NotImplementedError

    def notes(self, _gateway: Gateway, _env: Mapping[str, str], _home: Path) -> list[str]:
        """Return what a person should know when it is set up."""
        return []

    def login_upstream(self, _env: Mapping[str, str], _home: Path) -> dict[str, str]:
        """Return where requests must go because of how the user is logged in, by API."""
        return {}

    @contextmanager
    def started(self, gateway: Gateway, run: Run, _home: Path) -> Iterator[Run]:
        """Prepare one run of it through the gateway; the variables of all programs are set already."""
        del gateway
        yield run

    # -- the same for all ----------------------------------------------------------------------------------------------

    def file(self, env: Mapping[str, str], home: Path) -> ConfigurationFile:
        """Return its configuration file."""
        assert self.format is not None  # noqa: S101 - asked only of clients with a file
        return ConfigurationFile(self.path(env, home), self.format)

    def upstreams(self, env: Mapping[str, str], home: Path) -> dict[str, str]:
        """Return where its requests would go by its configuration, as the user wrote it, by API."""
        found = self.login_upstream(env, home)
        if self.format is None:
            return found
        try:
            values = self.file(env, home).original()
            settings = self.settings(Gateway(""), values)
        except ConfigError:  # it is broken: the client will say so itself
            return found
        for setting in settings:
            url = value_at(values, setting.path)
            if setting.api is not None and isinstance(url, str) and urlsplit(url).scheme in {"http", "https"}:
                found[setting.api] = url
        return found


def base_urls(gateway: Gateway) -> dict[str, str]:
    """Return the variables that lead any program with an official SDK through the gateway."""
    return {name: gateway.base_url(api) for api, names in VARIABLES.items() for name in names}


def around_proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program reaches a gateway on this machine without its network's proxy.

    Without a proxy in the environment there are none: some programs take the variable alone for all there is to know
    of proxies, and forget the system's.
    """
    if not any(env.get(name) for name in _PROXIES):
        return {}
    given = env.get("no_proxy") or env.get("NO_PROXY") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    if "*" not in hosts:
        hosts += [host for host in _LOOPBACK if host not in hosts]
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(hosts))


_LOOPBACK = ("127.0.0.1", "localhost")
_PROXIES = tuple(spelled for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for spelled in (name, name.lower()))


def folder_of(variable: str, usual: Path, env: Mapping[str, str]) -> Path:
    """Return the folder that an environment variable names, else the usual one."""
    named = env.get(variable, "").strip()
    return Path(named).expanduser() if named else usual


def with_words(command: Sequence[str], *words: str) -> list[str]:
    """Return a command with words right behind the program's name."""
    return [command[0], *words, *command[1:]]
