"""The errors that are still open: what went wrong, word for word, and has not been made good since.

An error is closed by a later step on the same thing that went well: the same program on the same target, the same tool,
the same file. A newer failure of the same thing takes its place. A complaint about how something was called (no such
file, unknown option, no such module) is closed as soon as it is called in a way that works. When the agent ends a task
and a person asks for the next one, what failed on the way is closed too, unless it was the last thing that was tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everlong.context.steps import Ran, Step, looks_only, ran_by
from everlong.context.summary.text import beginning

__all__ = ["OpenError", "open_errors"]

_MOST_OPEN = 5
_USAGE = re.compile(
    r"unknown (?:option|skill|tool|command|argument|flag)|unrecognized (?:option|argument)|invalid option"
    r"|not found|no such file|No module named|command not found|usage:|not recognized|does not exist",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"unknown (?:skill|tool|command|option):? ['\"`]?(?P<name>[\w:.-]+)|(?P<missing>[\w.-]+): command not found",
    re.IGNORECASE,
)
_MISSING = re.compile(r"^\S*python[\d.]*: No module named|: command not found$", re.MULTILINE)
"""Complaints about a program that is not there."""
_INNER = re.compile(r"^npm (?:error|ERR!) command sh -c (.+)$", re.MULTILINE)


class OpenError(NamedTuple):
    """An error that nothing has made good yet."""

    source: str
    """The command or call that it came from."""
    lines: tuple[str, ...]
    at: int = -1
    """The index of the call's message; -1 for one that an earlier summary names."""

    @property
    def text(self) -> str:
        """Its lines, word for word."""
        return "\n".join(self.lines)


class _Thing(NamedTuple):
    """What a step was about, by which a later step is known to be about the same."""

    tool: str
    path: str
    ran: Ran | None
    looks: bool


class _Open(NamedTuple):
    error: OpenError
    thing: _Thing


def open_errors(
    steps: Sequence[Step], ends: Sequence[int] = (), carried: Iterable[OpenError] = ()
) -> tuple[OpenError, ...]:
    """Return the errors that are open after these steps, oldest first.

    ``ends`` are the places of the messages with which a person began the next task after the agent had ended one.
    """
    ledger = [_Open(error, _thing_of_source(error.source)) for error in carried]
    last_acting: _Thing | None = ledger[-1].thing if ledger else None
    waiting = list(ends)
    inner: list[tuple[Ran, Ran]] = []
    """Programs, and those that they run in turn: when the first goes well, so did the second."""
    for step in steps:
        while waiting and step.at > waiting[0]:
            waiting.pop(0)
            ledger = [entry for entry in ledger if entry.thing == last_acting]
        thing = _Thing(step.call.name, step.path, step.ran, step.only_looks)
        if step.verdict == "unknown":
            continue
        if step.verdict == "succeeded":
            ran = step.ran
            within = [] if ran is None else [inside for outer, inside in inner if ran.covers(outer)]
            ledger = [entry for entry in ledger if not _closes(step, thing, entry) and not _is_within(entry, within)]
        else:
            ledger = [entry for entry in ledger if not _replaces(thing, entry, step.error_lines)]
            error = OpenError(step.title, step.error_lines, step.at)
            ledger.append(_Open(error, thing))
            named = _INNER.search(error.text)
            inside = ran_by(named[1].partition("&&")[0]) if named else None
            if inside is not None and step.ran is not None:
                inner.append((step.ran, inside))
        if not thing.looks:
            last_acting = thing
        dropped = {change.path for change in step.changes if change.kind == "dropped"}
        if dropped:
            ledger = [entry for entry in ledger if not (entry.thing.ran and entry.thing.ran.target in dropped)]
    if waiting:
        ledger = [entry for entry in ledger if entry.thing == last_acting]
    return tuple(entry.error for entry in ledger[-_MOST_OPEN:])


def _closes(step: Step, thing: _Thing, entry: _Open) -> bool:
    """Whether a step that went well makes an error good."""
    failed, is_usage = entry.thing, _USAGE.search(entry.error.text) is not None
    named = _NAMED.search(entry.error.text)
    name = (named["name"] or named["missing"] or "").lstrip("-") if named else ""
    if name and thing.ran is not None and name.lower() in thing.ran.words:
        return True
    if _MISSING.search(entry.error.text) and thing.ran is not None and not looks_only(thing.ran):
        return True  # it was done in another way
    if failed.looks:
        return thing.looks or not is_usage
    if failed.ran is not None:
        if thing.ran is None or looks_only(thing.ran):
            return False
        same = (
            thing.ran.covers(failed.ran)
            or _is_variant(thing.ran, failed.ran)
            or (is_usage and thing.ran.program == failed.ran.program)
        )
        return same or (thing.ran.program == "python" and failed.ran.program == "python" and is_usage)
    if failed.path:
        return (thing.path == failed.path and thing.tool == failed.tool) or _changes(step, failed.path)
    return thing.tool == failed.tool and thing.ran is None


def _is_variant(ran: Ran, failed: Ran) -> bool:
    """Whether a script is another one under a longer name, as ``reproduce_alone.sh`` is of ``reproduce.sh``."""
    name, other = ran.program.rpartition("."), failed.program.rpartition(".")
    return bool(other[0]) and name[2] == other[2] and name[0].startswith(f"{other[0]}_")


def _is_within(entry: _Open, within: Sequence[Ran]) -> bool:
    ran = entry.thing.ran
    return ran is not None and any(inside.covers(ran) for inside in within)


def _replaces(thing: _Thing, entry: _Open, lines: Sequence[str]) -> bool:
    """Whether a new failure says what is left of an old one."""
    failed = entry.thing
    if failed.ran is not None and thing.ran is not None:
        is_usage = _USAGE.search(entry.error.text) is not None and entry.error.text != "\n".join(lines)
        return thing.ran.covers(failed.ran) or (is_usage and thing.ran.program == failed.ran.program)
    return thing.tool == failed.tool and thing.path == failed.path and (thing.ran is None) == (failed.ran is None)


def _changes(step: Step, path: str) -> bool:
    return any(change.path == path and change.kind != "read" for change in step.changes)


def _thing_of_source(source: str) -> _Thing:
    """What an error of an earlier summary was about, as far as its source tells."""
    call = re.match(r"(\w+)\(", source)
    if call is not None:
        return _Thing(call[1], "", None, looks=False)
    named = re.fullmatch(r"(\w+) (\S*[./]\S*)", source)
    if named is not None and not re.fullmatch(r"python\d*|pytest|node|bash|sh|make|cargo|go|ruby|cat|ls", named[1]):
        return _Thing(named[1], named[2], None, looks=named[1] in ("read", "Read", "view"))
    ran = ran_by(beginning(source, 400).removesuffix(" ..."))
    return _Thing("", "", ran, looks=ran is not None and looks_only(ran))
