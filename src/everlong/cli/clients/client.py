"""A client of the gateway: its programs, its configuration file, its settings, and how to start it.

`Client` is the base class; ``known.py`` has one subclass for each client.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from everlong.cli.clients.formats import Format, value_at
from everlong.config.files import open_regular, write_whole
from everlong.errors import ConfigError

_MARK = "\ufeff"
_MOST_BYTES = 10_000_000
"""Bytes of the largest configuration file that is read."""


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """One configuration file and its format."""

    path: Path
    format: Format

    @property
    def backup(self) -> Path:
        """The backup beside the file; empty if there was no file before."""
        return self.path.with_name(f"{self.path.name}.before-everlong")

    def text(self) -> str | None:
        """Return the file's text; None if there is no file.

        Raises:
            ConfigError: it cannot be read.
        """
        return _read(self.path)

    def values(self) -> Any:
        """Return the values of the file.

        Raises:
            ConfigError: it cannot be read, or is broken.
        """
        return self._parse(self.text() or "")

    def original(self) -> Any:
        """Return the values of the file before Everlong changed it."""
        if self.backup.exists():
            return self._parse(_read(self.backup) or "", self.backup)
        return self.values()

    def changed(self, settings: Sequence[Setting]) -> str:
        """Return the text with these settings, checked to be the same everywhere else.

        Raises:
            ConfigError: the file cannot be read, is broken, or cannot be changed without changing something else.
        """
        text = self.text() or ""
        wanted = self._parse(text)
        for setting in settings:
            if value_at(wanted, setting.path) == setting.value:
                continue
            wanted = _assign(wanted, setting.path, setting.value)
            mark = _MARK if text.startswith(_MARK) else ""
            try:
                text = mark + self.format.put(text.removeprefix(_MARK), setting.path, setting.value)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise self._refusal(setting, str(error)) from error
        try:
            is_right = self.format.parse(text) == wanted
        except ValueError:
            is_right = False
        if not is_right:
            raise self._refusal(settings[0], "other values would change")
        return text

    def preview(self, settings: Sequence[Setting]) -> str:
        """Return the settings as they would stand in an empty file; empty if the file has them."""
        values = self.values()
        if all(value_at(values, setting.path) == setting.value for setting in settings):
            return ""
        text = ""
        for setting in settings:
            text = self.format.put(text, setting.path, setting.value)
        return text.rstrip()

    def write(self, settings: Sequence[Setting]) -> bool:
        """Write settings after a backup; return False if the file has them already."""
        fresh = self.changed(settings)
        before = self.text()
        if fresh == before:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._back_up(before, settings)
            write_whole(self.path, fresh)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return True

    def undo(self, settings: Sequence[Setting]) -> str:
        """Restore the file, and return what was done, for people.

        If something else in the file was changed since, only Everlong's own settings are removed.
        """
        before = _read(self.backup)
        if before is None:
            return f"nothing to undo: there is no backup beside {self.path}"
        text = self.text()
        try:
            if text is None and not before:
                done = f"{self.path} is gone already"
            elif text is None or self._is_same_elsewhere(text, before, settings):
                done = self._restore(before)
            else:
                ours = [one for one in settings if not one.is_frame]
                write_whole(self.path, put_back(self.format, text, self._parse(before, self.backup), ours))
                done = f"{self.path} was changed since: took back only what everlong had set"
            self.backup.unlink()
        except ValueError as error:
            raise ConfigError(
                f"{self.path} cannot be changed ({error}); {self.backup.name} beside it is as it was"
            ) from error
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return done

    def _restore(self, before: str) -> str:
        if not before:
            self.path.unlink()
            return f"removed {self.path}, which was not there before"
        write_whole(self.path, before, new_mode=stat.S_IMODE(self.backup.stat().st_mode))
        return f"restored {self.path}"

    def _is_same_elsewhere(self, text: str, before: str, settings: Sequence[Setting]) -> bool:
        old = self._parse(before, self.backup)
        undone = put_back(self.format, text, old, settings)
        return bool(self._parse(undone) == old)

    def _back_up(self, before: str | None, settings: Sequence[Setting]) -> None:
        if self.backup.exists():
            old, now = self.original(), self._parse(before or "")
            if any(value_at(old, one.path) != value_at(now, one.path) for one in settings):
                return  # Everlong changed it before: the backup is still the original
        mode = 0o600 if before is None else stat.S_IMODE(self.path.stat().st_mode)
        write_whole(self.backup, before or "", new_mode=mode)

    def _parse(self, text: str, path: Path | None = None) -> Any:
        try:
            return self.format.parse(text)
        except ValueError as error:
            raise ConfigError(
                f"{path or self.path} is not valid {self.format.name} ({error}); nothing was changed. Repair it first"
            ) from error

    def _refusal(self, setting: Setting, why: str) -> ConfigError:
        name = ".".join(setting.path)
        return ConfigError(f"{name} cannot be set in {self.path} ({why}); nothing was changed. Edit the file by hand")


def put_back(form: Format, text: str, old: Any, settings: Sequence[Setting]) -> str:
    """Return the text with these settings as they were in ``old``, and everything else as it is now.

    Raises:
        ValueError: something else would change.
    """
    wanted = form.parse(text)
    for setting in settings:
        now, before = value_at(form.parse(text), setting.path), value_at(old, setting.path)
        if isinstance(setting.value, list) and isinstance(now, list):
            had = before if isinstance(before, list) else []
            kept = [item for item in now if item in had or not setting.is_ours(item)]
            before = [*kept, *(item for item in had if item not in kept)] or before
        if now == before:
            continue
        wanted = _assign(wanted, setting.path, before)
        if before is not None:
            text = form.put(text, setting.path, before)
            continue
        text = form.remove(text, setting.path)
        for depth in range(len(setting.path) - 1, 0, -1):
            above = setting.path[:depth]
            if value_at(form.parse(text), above) == {} and value_at(old, above) is None:
                text = form.remove(text, above)
    if _pruned(form.parse(text)) != _pruned(wanted):
        raise ValueError("other values would change")
    return text


def _pruned(values: Any) -> Any:
    """Return values without those that are none, and without mappings of nothing else."""
    if not isinstance(values, dict):
        return values
    inside = {name: _pruned(value) for name, value in values.items()}
    return {name: value for name, value in inside.items() if value not in (None, {})}


def _assign(values: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    name, *rest = path
    inside = values if isinstance(values, dict) else {}
    return {**inside, name: _assign(inside.get(name), rest, value)}


def _read(path: Path) -> str | None:
    try:
        with open_regular(Path(os.path.realpath(path))) as file:  # a project's own may lead to a pipe or a device
            data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise ConfigError(f"{path} has more than {_MOST_BYTES:,} bytes, too many for settings; make it smaller")
            return data.decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text; nothing was changed. Repair it first") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; nothing was changed") from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(f"{path} cannot be written: {reason}; check the permissions of its folder")


VARIABLES = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
}
"""Environment variables that tell programs the base URL of an API; the official SDK reads the first."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """The gateway that a client uses."""

    address: str
    """Without a path: ``http://127.0.0.1:8642``."""
    is_anthropic: bool = False
    """True if requests for Claude go on to Anthropic's own address."""
    context_length: Callable[[str], int | None] = lambda _: None
    """Returns the window of a model; None if it is unknown."""

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
    """The API whose base URL this is."""
    is_ours: Callable[[Any], bool] = lambda _: False
    """For lists: returns whether an item was put there by Everlong."""
    is_frame: bool = False
    """True for a field that only makes its entry valid: undoing keeps it while the entry has other fields."""


@dataclass(frozen=True, slots=True)
class ClientRun:
    """One run of a program: its command line and its environment."""

    command: list[str]
    env: dict[str, str]


class Client:
    """A client of the gateway; a subclass overrides what is different for it."""

    name = ""
    title = ""
    programs: tuple[str, ...] = ()
    """Names of its executables."""
    format: Format
    """The format of its configuration file."""

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        """Return the path of its configuration file, which need not exist."""
        raise NotImplementedError

    def settings(self, gateway: GatewayAddress, values: Any) -> list[Setting]:
        """Return the settings that its configuration file needs, given its values now."""
        raise NotImplementedError

    def notes(self, _gateway: GatewayAddress, _env: Mapping[str, str], _home: Path) -> list[str]:
        """Return notes for a person who sets it up."""
        return []

    def login_upstream(self, _env: Mapping[str, str], _home: Path) -> dict[str, str]:
        """Return the upstreams that the user's login requires, by API."""
        return {}

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, _home: Path) -> Iterator[ClientRun]:
        """Prepare one run through the gateway; the base-URL variables are set already."""
        del gateway
        yield run

    # -- not overridden ----------------------------------------------------------------------------------------------

    def file(self, env: Mapping[str, str], home: Path) -> ConfigurationFile:
        """Return its configuration file."""
        return ConfigurationFile(self.path(env, home), self.format)

    def values(self, env: Mapping[str, str], home: Path) -> Any:
        """Return the values of its configuration file; none if that is broken, which the client will report itself."""
        try:
            return self.file(env, home).values()
        except ConfigError:
            return {}

    def upstreams(self, env: Mapping[str, str], home: Path) -> dict[str, str]:
        """Return the upstreams of its own configuration, as the user wrote it, by API."""
        found = self.login_upstream(env, home)
        try:
            values = self.file(env, home).original()
            settings = self.settings(GatewayAddress(""), values)
        except ConfigError:  # the client will report its broken file itself
            return found
        for setting in settings:
            url = value_at(values, setting.path)
            if setting.api is not None and isinstance(url, str) and urlsplit(url).scheme in {"http", "https"}:
                found[setting.api] = url
        return found


def base_urls(gateway: GatewayAddress) -> dict[str, str]:
    """Return the variables that lead any program with an official SDK through the gateway."""
    return {name: gateway.base_url(api) for api, names in VARIABLES.items() for name in names}


def no_proxy_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make a program reach a gateway on this machine without a proxy.

    Empty if the environment names no proxy: with these variables alone, some programs would forget the system's proxy.
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


def insert_words(command: Sequence[str], *words: str) -> list[str]:
    """Return a command with words right behind the program's name."""
    return [command[0], *words, *command[1:]]
