"""``everlong hook CLIENT``: what the hooks of a client call.

The client says on standard input what happens: a session begins, is about to be compacted, or rests. Then the session
is stored, or its folder's last conversation is told in few words. Nothing here may stop the client: what goes wrong is
said on stderr, with a code that clients do not take for a veto.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.chosen_store import index_pending, open_chosen_store, store_option
from everlong.cli.clients.client import ConfigurationFile, Setting, folder_of
from everlong.cli.clients.formats import JSON, TEXT, value_at
from everlong.config import load_settings
from everlong.errors import TranscriptError
from everlong.processes import own_command

if TYPE_CHECKING:
    from everlong.store import Conversation, Store

_MOST_BYTES = 200_000_000
_INDEX_SECONDS = 2.0
_MOST_LOOKED_AT = 50
"""Conversations of a folder that are looked through for one that is not the session's own."""
_HANDOVER_TOKENS = 1_200
"""Tokens that tell a new session where the folder's last conversation stands."""

_KINDS = {
    "SessionStart": "start",
    "session.start": "start",
    "PreCompact": "compacting",
    "session.compacting": "compacting",
    "Stop": "rest",
    "SessionEnd": "rest",
    "session.idle": "rest",
}
"""The events of all clients, by what they mean."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """What a client says: an event of one of its sessions."""

    client: str
    kind: str
    """start, compacting or rest."""
    session: str
    folder: Path
    log: Path | None = None
    """The file with the session."""
    source: str = ""
    """How a session starts: startup, clear, compact or resume."""
    told: Mapping[str, Any] | None = None
    """The session itself, from a client that hands it over."""


@click.command("hook")
@click.argument("client", type=click.Choice(["claude-code", "codex", "opencode"]))
@store_option
def hook_command(client: str) -> None:
    """Do what a hook of CLIENT is for: `everlong setup CLIENT --hooks` has the client call this.

    The event is JSON on standard input. At the start of a session it prints where the folder's last conversation
    stands; before a compaction and after a turn it stores the session.
    """
    event = read_event(client, sys.stdin.buffer.read(_MOST_BYTES + 1), os.environ, Path.home())
    if event is None:
        return
    with open_chosen_store(new=True) as store:
        if event.kind == "start":
            _tell(event, _handover(store, event))
            return
        _store_session(store, event)
        if event.kind == "compacting" and client == "opencode":
            _tell(event, _handover(store, event))


def read_event(client: str, data: bytes, env: Mapping[str, str], home: Path) -> HookEvent | None:
    """Return the event that a client tells; None for one that needs nothing.

    Raises:
        TranscriptError: it is not what this client says.
    """
    if len(data) > _MOST_BYTES:
        raise TranscriptError(f"the event of {client} has more than {_MOST_BYTES:,} bytes and is left out")
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TranscriptError(
            f"{client} must say as JSON what happens; got {len(data):,} bytes that are none"
        ) from error
    if not isinstance(told, dict):
        raise TranscriptError(f"{client} must say what happens as an object of JSON; got {type(told).__name__}")
    name = _text(told, "hook_event_name", "event")
    kind = _KINDS.get(name)
    if kind is None:
        return None
    about = told.get("session") if isinstance(told.get("session"), dict) else told
    session = _text(about, "session_id", "id")
    folder = _text(about, "cwd", "directory")
    if not session or not folder:
        raise TranscriptError(f"{client} says {name} without its session and folder; is it another version?")
    log = _text(told, "transcript_path")
    path = Path(log).expanduser() if log else None
    if client == "codex" and path is None:
        path = _find_rollout(session, env, home)
    return HookEvent(client, kind, session, Path(folder), path, _text(told, "source"), told)


def _text(told: Any, *names: str) -> str:
    found = (told.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), "")


def _find_rollout(session: str, env: Mapping[str, str], home: Path) -> Path | None:
    """Return the file in which Codex keeps a session; its name ends with the session's id."""
    if not session.replace("-", "").isalnum():
        return None
    named = env.get("CODEX_HOME", "").strip()
    folder = (Path(named).expanduser() if named else home / ".codex") / "sessions"
    found = sorted(folder.glob(f"*/*/*/rollout-*-{session}.jsonl"))
    return found[-1] if found else None


# -- storing ----------------------------------------------------------------------------------------------------------


def _store_session(store: Store, event: HookEvent) -> None:
    """Store a session; one that is stored already gets what is new."""
    if event.client == "opencode":
        _store_told(store, event)
    elif event.log is None or not event.log.is_file():
        raise TranscriptError(f"the log of session {event.session} is not there: {event.log or 'no path was told'}")
    else:
        from everlong.cli.archive.log_import import LogImport  # noqa: PLC0415 - loads the database

        if LogImport(store, is_own=lambda _: True).add(event.log) is None:
            raise TranscriptError(f"{event.log} was not stored: it is no log of {event.client}")
    index_pending(store, seconds=_INDEX_SECONDS)


def _store_told(store: Store, event: HookEvent) -> None:
    """Store the session that a client hands over with its messages."""
    import time  # noqa: PLC0415 - as above

    from everlong.agent.accounting import price_log  # noqa: PLC0415 - loads the database
    from everlong.store.imports import Importer, ImportOrigin  # noqa: PLC0415 - as above
    from everlong.wire.logs.opencode import read_opencode_session  # noqa: PLC0415 - as above

    told = event.told or {}
    run = read_opencode_session(told.get("session") or {}, list(_messages(told.get("messages"))))
    if run.messages:
        importer = Importer(store, partial(price_log, load_settings().settings))
        importer.add_run(run, ImportOrigin("opencode", time.time()))


def _messages(told: Any) -> Iterator[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]:
    for one in told if isinstance(told, list) else ():
        info, parts = (one.get("info"), one.get("parts")) if isinstance(one, dict) else (None, None)
        if isinstance(info, dict) and isinstance(parts, list):
            yield info, [part for part in parts if isinstance(part, dict)]


# -- telling ----------------------------------------------------------------------------------------------------------


def _handover(store: Store, event: HookEvent) -> str:
    """Return where the folder's last conversation stands; after a compaction, where this one stands."""
    from everlong.agent.handover import (  # noqa: PLC0415 - as above
        conversations_of,
        folder_spellings,
        is_trusted,
        write_handover,
    )
    from everlong.tokens import EstimatingCounter  # noqa: PLC0415 - as above

    if event.source == "resume":
        return ""
    is_same = event.source == "compact" or event.kind == "compacting"
    found = conversations_of(store, folder_spellings(event.folder))
    for _, one in zip(range(_MOST_LOOKED_AT), found, strict=False):
        if _is_of(one, event.session) == is_same and is_trusted(one):  # nobody asked for words of others
            return write_handover(store, one, _HANDOVER_TOKENS, EstimatingCounter().count_text)
    return ""


def _is_of(one: Conversation, session: str) -> bool:
    """Return whether a conversation is that of a client's session, stored by the gateway or from its log."""
    names = (one.client_session or "", str((one.origin or {}).get("id") or ""))
    return any(name.partition("/")[0] == session for name in names)


def _tell(event: HookEvent, text: str) -> None:
    """Print what the client gives to the model."""
    if not text:
        return
    if event.client == "opencode":
        click.echo(text)
        return
    told = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}}
    click.echo(json.dumps(told))


HOOKED = ("claude-code", "codex", "opencode")
"""The clients with hooks."""

_MARK = "everlong-hooks"
_START_SECONDS = 30
_STORE_SECONDS = 300


HookFile = tuple[ConfigurationFile, list[Setting]]
"""A file that holds hooks of a client, and the settings that are these hooks."""


def hook_files(client: str, env: Mapping[str, str], home: Path) -> list[HookFile]:
    """Return the files that hold a client's hooks, as they ought to be."""
    command = own_command("everlong", "hook", client)
    if client == "claude-code":
        path = folder_of("CLAUDE_CONFIG_DIR", home / ".claude", env) / "settings.json"
        return [_events_file(path, command)]
    if client == "codex":
        folder = folder_of("CODEX_HOME", home / ".codex", env)
        return [_events_file(folder / "hooks.json", command)]
    path = folder_of("XDG_CONFIG_HOME", home / ".config", env) / "opencode" / "plugins" / "everlong.js"
    source = files("everlong.cli.clients").joinpath("opencode_plugin.js").read_text(encoding="utf-8")
    plugin = source.replace('["everlong", "hook", "opencode"]', json.dumps(command))
    return [(ConfigurationFile(path, TEXT, _MARK), [Setting(("text",), plugin)])]


def _events_file(path: Path, command: Sequence[str]) -> HookFile:
    """Return the file whose hooks have the shape that Claude Code gave them."""
    file = ConfigurationFile(path, JSON, _MARK)
    values = file.values()
    line = shlex.join(command)

    def is_ours(item: Any) -> bool:
        inside = item.get("hooks") if isinstance(item, dict) else None
        words = f" hook {command[-1]}"
        return isinstance(inside, list) and any(
            isinstance(one, dict) and "everlong" in str(one.get("command")) and str(one.get("command")).endswith(words)
            for one in inside
        )

    settings = []
    for event in ("SessionStart", "PreCompact", "Stop"):
        before = value_at(values, ("hooks", event))
        kept = [item for item in before if not is_ours(item)] if isinstance(before, list) else []
        call: dict[str, Any] = {"type": "command", "command": line, "timeout": _STORE_SECONDS}
        entry: dict[str, Any] = {"hooks": [call]}
        if event == "SessionStart":
            call["timeout"] = _START_SECONDS
            entry = {"matcher": "startup|clear|compact", **entry}
        settings.append(Setting(("hooks", event), [*kept, entry], is_ours=is_ours))
    return file, settings
