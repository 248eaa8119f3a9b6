"""A client's configuration file: changed in a few places, with a backup beside it, and put back exactly.

A file that cannot be read or is broken is never written. The backup is the file as it was before the first change.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.cli.clients.formats import Format, value_at
from everlong.config.atomic import write_whole
from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.cli.clients.client import Setting

__all__ = ["ConfigurationFile", "put_back"]

_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """One configuration file and its format."""

    path: Path
    format: Format

    @property
    def backup(self) -> Path:
        """The file as it was, beside it."""
        return self.path.with_name(f"{self.path.name}.before-everlong")

    @property
    def absence(self) -> Path:
        """An empty file that stands for the backup where there was no file."""
        return self.path.with_name(f"{self.path.name}.absent-before-everlong")

    def text(self) -> str | None:
        """Return the file's text; None where there is no file.

        Raises:
            ConfigError: it cannot be read.
        """
        return _read(self.path)

    def values(self) -> Any:
        """Return what the file says.

        Raises:
            ConfigError: it cannot be read, or is broken.
        """
        return self._parsed(self.text() or "")

    def original(self) -> Any:
        """Return what the file said before it was changed here; what it says where it was not."""
        if self.absence.exists():
            return {}
        if self.backup.exists():
            return self._parsed(_read(self.backup) or "", self.backup)
        return self.values()

    def changed(self, settings: Sequence[Setting]) -> str:
        """Return the text with settings made, proven to say the same as before everywhere else.

        Raises:
            ConfigError: the file cannot be read, is broken, or cannot be changed without changing something else.
        """
        text = self.text() or ""
        wanted = self._parsed(text)
        for setting in settings:
            if value_at(wanted, setting.path) == setting.value:
                continue
            wanted = _with(wanted, setting.path, setting.value)
            mark = _MARK if text.startswith(_MARK) else ""
            try:
                text = mark + self.format.put(text.removeprefix(_MARK), setting.path, setting.value)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise self._refused(setting, str(error)) from error
        try:
            is_right = self.format.parse(text) == wanted
        except ValueError:
            is_right = False
        if not is_right:
            raise self._refused(settings[0], "other values would change")
        return text

    def write(self, settings: Sequence[Setting]) -> bool:
        """Make settings, after a backup; return False where the file says all of it already."""
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
        """Put the file back as it was; return what was done, for people.

        Where something else in the file was changed since, only what was set here is taken back.
        """
        is_new = self.absence.exists()
        if not is_new and not self.backup.exists():
            return f"nothing to undo: there is no backup beside {self.path}"
        before = None if is_new else _read(self.backup)
        text = self.text()
        try:
            if text is None and before is None:
                done = f"{self.path} is gone already"
            elif text is None or self._is_same_elsewhere(text, before, settings):
                done = self._restore(before)
            else:
                ours = [one for one in settings if not one.is_frame]
                write_whole(self.path, put_back(self.format, text, self._parsed(before or "", self.backup), ours))
                done = f"{self.path} was changed since: took back only what everlong had set"
            for spare in (self.backup, self.absence):
                spare.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return done

    def _restore(self, before: str | None) -> str:
        if before is None:
            self.path.unlink()
            return f"removed {self.path}, which was not there before"
        write_whole(self.path, before, new_mode=stat.S_IMODE(self.backup.stat().st_mode))
        return f"restored {self.path}"

    def _is_same_elsewhere(self, text: str, before: str | None, settings: Sequence[Setting]) -> bool:
        old = self._parsed(before or "", self.backup)
        undone = put_back(self.format, text, old, settings)
        return bool(self._parsed(undone) == old)

    def _back_up(self, before: str | None, settings: Sequence[Setting]) -> None:
        if self.absence.exists() or self.backup.exists():
            old, now = self.original(), self._parsed(before or "")
            if any(value_at(old, one.path) != value_at(now, one.path) for one in settings):
                return  # it was changed here before: the backup is still the original
        self.absence.unlink(missing_ok=True)
        if before is None:
            self.backup.unlink(missing_ok=True)
            write_whole(self.absence, "")
        else:
            write_whole(self.backup, before, new_mode=stat.S_IMODE(self.path.stat().st_mode))

    def _parsed(self, text: str, path: Path | None = None) -> Any:
        try:
            return self.format.parse(text)
        except ValueError as error:
            raise ConfigError(
                f"{path or self.path} is not valid {self.format.name} ({error}); nothing was changed. Repair it first"
            ) from error

    def _refused(self, setting: Setting, why: str) -> ConfigError:
        name = ".".join(setting.path) or "the list"
        return ConfigError(f"{name} cannot be set in {self.path} ({why}); nothing was changed. Edit the file by hand")


def put_back(form: Format, text: str, old: Any, settings: Sequence[Setting]) -> str:
    """Return a text whose settings are what they were in ``old``, and which is otherwise as it is now."""
    for setting in settings:
        now, before = value_at(form.parse(text), setting.path), value_at(old, setting.path)
        if isinstance(setting.value, list) and isinstance(now, list):
            had = before if isinstance(before, list) else []
            kept = [item for item in now if item in had or not setting.is_ours(item)]
            before = [*kept, *(item for item in had if item not in kept)] or before
        if now == before:
            continue
        if before is not None and (setting.path or before):
            text = form.put(text, setting.path, before)
            continue
        text = form.remove(text, setting.path) if setting.path else ""
        for depth in range(len(setting.path) - 1, 0, -1):
            above = setting.path[:depth]
            if value_at(form.parse(text), above) == {} and value_at(old, above) is None:
                text = form.remove(text, above)
    return text


def _with(values: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    name, *rest = path
    inside = values if isinstance(values, dict) else {}
    return {**inside, name: _with(inside.get(name), rest, value)}


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8; nothing was changed. Repair it first") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; nothing was changed") from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(f"{path} cannot be written: {reason}; check the permissions of its folder")
