"""Chat histories of aider: Markdown that a person reads, one file for a folder.

A line with four ``#`` is what the person said, a quoted line is what the program told the person, the rest is what the
model said. Everything else that a log may have is missing: the system prompt and the files that were sent along, tool
calls (aider has none), a model for each reply, and the times of messages; only the start of each chat has one. Figures
are rounded as aider prints them (``1.9k sent``), so tokens agree with aider's own to two digits, and dollars to the
cent or better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from everlong.model import seconds_of
from everlong.wire.logs.log import LogFacts, LogReader, LogUsage

__all__ = ["AiderReader", "is_aider_history"]

_STARTED = b"# aider chat started at "
_ASKED = "#### "
_TOLD = re.compile(r"Tokens: ([\d.]+)(k|M)? sent(?:, ([\d.]+)(k|M)? cache write)?(?:, ([\d.]+)(k|M)? cache hit)?")
_RECEIVED = re.compile(r"([\d.]+)(k|M)? received")
_COST = re.compile(r"Cost: \$([\d.]+) message")
_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)")
_SCALES = {None: 1, "k": 1_000, "M": 1_000_000}


def is_aider_history(data: bytes) -> bool:
    """Return whether a file's beginning is that of a chat history."""
    return data.lstrip().startswith(_STARTED)


class AiderReader(LogReader):
    """The reader of a chat history."""

    client = "aider"

    def __init__(self, carried: Mapping[str, Any] | None = None, offset: int = 0, *, is_whole: bool = False) -> None:
        super().__init__(carried, offset, is_whole=is_whole)
        self._asked: list[str] = []
        self._said: list[str] = []

    def feed(self, line: bytes, offset: int) -> None:
        """Read the next line."""
        if line.startswith(_STARTED):
            self.finish()
            stamp = line.removeprefix(_STARTED).decode("utf-8", "replace").strip()
            self.begin_conversation(
                LogFacts(self.client, f"{self.folder or ''}:{stamp}", folder=self.folder, started=_moment(stamp)),
                offset,
            )
            return
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith(_ASKED) or text.rstrip() == _ASKED.strip():
            if self._said or not self._asked:
                self.finish()
                self.settle(offset)
            self._asked.append(text.removeprefix("####").removeprefix(" ").rstrip())
        elif text.startswith("> ") or text == ">":
            self._read_told(text[2:])
        elif self._asked or self._said:
            if self._asked and not self._said and not text.strip():
                return  # the empty line after a question
            self._said.append(text)

    def finish(self) -> None:
        """Tell the question and the answer that are being read."""
        asked = "\n".join(self._asked).strip()
        said = "\n".join(self._said).strip()
        self._asked, self._said = [], []
        if asked and not _is_command(asked):
            self.say({"role": "user", "content": asked}, self.facts.started)
        if said and (asked or self._is_begun):
            self.say({"role": "assistant", "content": said}, self.facts.started)

    def _read_told(self, text: str) -> None:
        if (sent := _TOLD.match(text)) is not None:
            received, cost = _RECEIVED.search(text), _COST.search(text)
            written, read = _number(sent[3], sent[4]), _number(sent[5], sent[6])
            said = _number(received[1], received[2]) if received else 0
            given = _number(sent[1], sent[2])
            self.count(LogUsage(given, said, read, written, 0, 1, float(cost[1]) if cost else 0.0))
        elif (model := _MODEL.match(text)) is not None:
            self.learn(model=model[1])
        elif (version := _VERSION.match(text)) is not None:
            self.learn(version=version[1])


def _number(digits: str | None, scale: str | None) -> int:
    return round(float(digits) * _SCALES[scale]) if digits else 0


def _moment(stamp: str) -> float | None:
    try:
        return seconds_of(datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").astimezone().timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _is_command(asked: str) -> bool:
    """Return whether a line was a command to aider, which no model saw; questions may be asked with one."""
    word = asked.split(maxsplit=1)[0] if asked else ""
    is_command = asked.startswith(("/", "!")) and "\n" not in asked
    return is_command and word not in {"/ask", "/code", "/architect", "/context", "/help"}
