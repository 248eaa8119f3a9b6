"""Chat histories of aider: Markdown that a person reads, one file for a folder.

A line with four ``#`` and two spaces at its end is what the person said: headings of a model have no spaces there. A
quoted line is what the program told the person, the rest is what the model said. Everything else that a log may have
is missing: the system prompt and the files that were sent along, tool calls (aider has none), a model for each reply,
and the times of messages; only the start of each chat has one. Figures are rounded as aider prints them (``1.9k
sent``), so tokens agree with aider's own to two digits, and dollars to the cent or better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from everlong.model import seconds_of
from everlong.wire.logs import LogFacts, LogRun, LogUsage, count_of, dollars_of

__all__ = ["is_aider_history", "read_aider"]

_STARTED = "# aider chat started at "
_ASKED, _ENDED = "####", "  "
_NUMBER = r"(\d++(?:\.\d++)?)(k|M)?"
_SENT = re.compile(rf"Tokens: {_NUMBER} sent(?:, {_NUMBER} cache write)?(?:, {_NUMBER} cache hit)?")
_RECEIVED = re.compile(rf"(?<![\d.]){_NUMBER} received")
_COST = re.compile(rf"Cost: \${_NUMBER} message")
_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)")
_SCALES = {None: 1, "k": 1_000, "M": 1_000_000}


def is_aider_history(data: bytes) -> bool:
    """Return whether a file's beginning is that of a chat history."""
    return data.lstrip().startswith(_STARTED.encode())


def read_aider(lines: Iterable[bytes], folder: str) -> list[LogRun]:
    """Return the chats of a history that lies in a folder."""
    runs: list[LogRun] = []
    asked: list[str] = []
    said: list[str] = []

    def end_turn() -> None:
        if runs:
            _say(runs[-1], "\n".join(asked).strip(), "\n".join(said).strip())
        asked.clear()
        said.clear()

    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith(_STARTED):
            end_turn()
            stamp = text.removeprefix(_STARTED).strip()
            runs.append(LogRun(LogFacts("aider", f"{folder}:{stamp}", folder=folder, started=_moment(stamp))))
        elif text.startswith(f"{_ASKED} ") and text.endswith(_ENDED):
            if said:
                end_turn()
            asked.append(text.removeprefix(_ASKED).removeprefix(" ").rstrip())
        elif runs and (text.startswith("> ") or text == ">"):
            _read_remark(runs[-1], text[2:])
        elif said or (asked and text.strip()):
            said.append(text)
    end_turn()
    return runs


def _say(run: LogRun, asked: str, said: str) -> None:
    if asked and not _is_command(asked):
        run.say(run.facts.started, {"role": "user", "content": asked})
    if said and (asked or run.messages):
        run.say(run.facts.started, {"role": "assistant", "content": said})


def _read_remark(run: LogRun, text: str) -> None:
    """Read what aider told the person: figures, a model, or its version."""
    if (sent := _SENT.match(text)) is not None:
        received, cost = _RECEIVED.search(text), _COST.search(text)
        output = _number(received[1], received[2]) if received else 0
        given, written, read = _number(sent[1], sent[2]), _number(sent[3], sent[4]), _number(sent[5], sent[6])
        used = LogUsage(given, output, read, written, 0, 1, dollars_of(float(cost[1])) if cost else 0.0)
        run.usage = run.usage.plus(used)
    elif (model := _MODEL.match(text)) is not None:
        run.learn(model=model[1])
    elif (version := _VERSION.match(text)) is not None:
        run.learn(version=version[1])


def _number(digits: str | None, scale: str | None) -> int:
    return count_of(float(digits) * _SCALES[scale] + 0.5) if digits else 0


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
