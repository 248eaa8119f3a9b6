"""Log lines in JSON: one for each request, with its id and numbers, and never a word of content nor a key.

Lines are gathered and written by another thread a moment later, so that a slow disk or a stopped terminal holds up no
request; where nobody takes them at all, the newest are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.gateway.account import Account

__all__ = ["LEVELS", "Log", "captured", "open_log", "server_logger"]

LEVELS = ("debug", "info", "warning", "error")
_SOON = 0.05
_MOST_LINES = 10_000
_MOST_CHARS = 200


class Log:
    """Writes lines to a file; without one, nowhere."""

    def __init__(self, file: IO[bytes] | RawIOBase | None, level: str = "info") -> None:
        self._file = file
        self._least = LEVELS.index(level) if file is not None else len(LEVELS)
        self._lines: list[Callable[[], bytes]] = []
        """Put into words by the thread that writes them."""
        self._dropped = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._is_due = False

    def request(self, account: Account) -> None:
        """Say what became of a request."""
        level = "error" if account.problem else "warning" if account.status >= 500 else "info"
        if account.route in {"health", "metrics"} and level == "info":
            level = "debug"
        if self._wants(level):
            self._put(partial(_request_line, level, time.time(), account, account.seconds))

    def say(self, level: str, event: str, **fields: Any) -> None:
        """Say something else."""
        if self._wants(level):
            self._put(partial(_line, level, event, time.time(), fields))

    def close(self) -> None:
        """Write what is left."""
        self._write()
        if self._file is not None and self._file is not sys.stderr.buffer:
            self._file.close()
        self._file = None

    def _wants(self, level: str) -> bool:
        return LEVELS.index(level) >= self._least

    def _put(self, line: Callable[[], bytes]) -> None:
        with self._lock:
            if len(self._lines) >= _MOST_LINES:
                self._dropped += 1
                return
            self._lines.append(line)
            is_first, self._is_due = not self._is_due, True
        if is_first:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # before or after the gateway runs
                self._write()
                return
            loop.call_later(_SOON, lambda: loop.run_in_executor(None, self._write))

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                lines, self._lines, self._is_due = self._lines, [], False
                dropped, self._dropped = self._dropped, 0
            if self._file is None or not lines:
                return
            if dropped:
                lines.append(partial(_line, "warning", "lines dropped", time.time(), {"count": dropped}))
            try:
                self._file.write(b"".join(line() for line in lines))
                self._file.flush()
            except (OSError, ValueError):  # a full disk, or a terminal that is gone: requests matter more
                self._dropped += len(lines)


def open_log(path: str | None, level: str) -> Log:
    """A log in a file, or on stderr."""
    if path is None:
        return Log(sys.stderr.buffer, level)
    try:
        return Log(Path(path).expanduser().open("ab"), level)
    except OSError as error:
        raise ConfigError(
            f"the log file {path} cannot be written: {error.strerror or error}; choose another with gateway.log_file",
            key="gateway.log_file",
        ) from error


def server_logger(log: Log) -> logging.Logger:
    """What the HTTP server complains about: only what kind of error it is, because the text may quote a request."""
    logger = logging.Logger("everlong.gateway")
    logger.addHandler(_Kinds(log))
    return logger


@contextmanager
def captured(log: Log) -> Iterator[None]:
    """Take what the gateway's own modules say into the log; they name kinds of errors, never what was sent."""
    logger, handler = logging.getLogger("everlong.gateway"), _Sayings(log)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _Sayings(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self._log.say(level, "gateway", message=record.getMessage()[:_MOST_CHARS])


class _Kinds(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        is_clients = kind is not None and kind.__module__.startswith("aiohttp.")  # what it sent was no request
        level = "warning" if is_clients else "error"
        self._log.say(level, "connection", problem=kind.__name__ if kind is not None else "unknown")


def _request_line(level: str, now: float, account: Account, seconds: float) -> bytes:
    usage, miss = account.usage, account.miss
    fields: dict[str, Any] = {
        "id": account.id,
        "method": account.method[:_MOST_CHARS],
        "path": account.path[:_MOST_CHARS],
        "status": account.status,
        "ms": round(seconds * 1000, 3),
        "received": account.received,
        "sent": account.sent,
        "tenant": account.tenant or None,
        "model": _without_key(account, account.model)[:_MOST_CHARS] or None,
        "session": account.session,
        "branch": account.branch,
        "opted_out": account.opted_out or None,
        "compactions": account.compactions or None,
        "prompt_tokens": usage.prompt_tokens if usage is not None else None,
        "output_tokens": usage.output_tokens if usage is not None else None,
        "cache_read_tokens": usage.cache_read_tokens if usage is not None else None,
        "cache_missed_tokens": miss.tokens if miss is not None else None,
        "cache_miss": f"{miss.reason}: {miss.detail}" if miss and miss.detail else miss.reason if miss else None,
        "cache_diagnosis": (miss.diagnosis or None) if miss is not None else None,
        "problem": account.problem or None,
    }
    return _line(level, "request", now, {name: value for name, value in fields.items() if value is not None})


def _without_key(account: Account, text: str) -> str:
    """Return a text of the client's, unless it has put its key there."""
    return "" if account.caller is not None and account.caller.has_key_in(text) else text


def _line(level: str, event: str, now: float, fields: dict[str, Any]) -> bytes:
    moment = datetime.fromtimestamp(now, tz=UTC).isoformat(timespec="milliseconds")
    return orjson.dumps({"time": moment, "level": level, "event": event, **_clean(fields)}) + b"\n"


def _clean(fields: dict[str, Any]) -> dict[str, Any]:
    """Texts that can be written: a client may send what is no Unicode."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in fields.items()
    }
