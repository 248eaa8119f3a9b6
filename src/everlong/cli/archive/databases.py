"""The databases of opencode and Hermes, read session by session; nothing is ever written to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from everlong.cli.archive.formats import open_database
from everlong.wire.logs.hermes import COMPRESSION, read_hermes_session
from everlong.wire.logs.log import LogRun, explain_malformed, json_in
from everlong.wire.logs.opencode import OpencodeMessage, read_opencode_session

__all__ = ["read_hermes", "read_opencode"]

Lineages = Iterator[tuple[list[LogRun], dict[str, Any]]]
"""Conversations, each as its parts in order, with what is to be noted once it is stored."""


def read_opencode(path: Path, state: Mapping[str, Any], *, is_quiet: bool = True) -> Lineages:
    """Yield the sessions that changed since the last time, parents first."""
    since = state.get("since")
    last = since if isinstance(since, int) else 0
    with explain_malformed(), closing(open_database(path)) as connection:
        connection.row_factory = sqlite3.Row
        changed = (
            "SELECT s.*, MAX(COALESCE(m.updated, 0), s.time_updated) AS changed FROM session s LEFT JOIN"
            " (SELECT session_id, MAX(time_updated) AS updated FROM message GROUP BY session_id) m"
            " ON m.session_id = s.id WHERE MAX(COALESCE(m.updated, 0), s.time_updated) >= ? ORDER BY s.time_created"
        )
        newest = last
        for row in connection.execute(changed, (last,)).fetchall():
            newest = max(newest, row["changed"])
            session = {
                "id": row["id"],
                "parentID": row["parent_id"],
                "directory": row["directory"],
                "title": row["title"],
                "version": row["version"],
                "time": {"created": row["time_created"]},
                "revert": json_in(row["revert"]),
            }
            messages = list(_opencode_messages(connection, row["id"]))
            if not is_quiet and messages and _is_open(messages[-1][0]):
                messages.pop()
            yield [read_opencode_session(session, messages)], {"since": last}
        yield [], {"since": newest}


def _is_open(message: Mapping[str, Any]) -> bool:
    """Return whether an answer is still being written."""
    times = message.get("time")
    is_over = isinstance(times, dict) and times.get("completed") is not None
    return message.get("role") == "assistant" and not is_over and not message.get("error")


def _opencode_messages(connection: sqlite3.Connection, ident: str) -> Iterator[OpencodeMessage]:
    parts: dict[str, list[Mapping[str, Any]]] = {}
    query = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
    for row in connection.execute(query, (ident,)):
        told = json_in(row["data"])
        if isinstance(told, dict):
            parts.setdefault(row["message_id"], []).append({**told, "id": row["id"]})
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for row in connection.execute(query, (ident,)).fetchall():
        told = json_in(row["data"])
        if isinstance(told, dict):
            yield {**told, "id": row["id"]}, parts.get(row["id"], [])


def read_hermes(path: Path, state: Mapping[str, Any], *, is_quiet: bool = True) -> Lineages:  # noqa: ARG001 - one form
    """Yield the lineages that changed since the last time, each as its parts in order."""
    since = state.get("last")
    last = since if isinstance(since, int) else 0
    with explain_malformed(), closing(open_database(path)) as connection:
        connection.row_factory = sqlite3.Row
        every = connection.execute("SELECT * FROM sessions ORDER BY started_at, id").fetchall()
        sessions = {row["id"]: dict(row) for row in every}
        newest = connection.execute("SELECT MAX(id) FROM messages").fetchone()[0] or 0
        rows = connection.execute("SELECT DISTINCT session_id FROM messages WHERE id > ?", (last,)).fetchall()
        changed = {row["session_id"] for row in rows}
        for lineage in _hermes_lineages(sessions):
            if last and changed.isdisjoint(one["id"] for one in lineage):
                continue
            runs = [read_hermes_session(one, _hermes_messages(connection, one["id"])) for one in lineage]
            yield runs, {"last": last}
        yield [], {"last": newest}


def _hermes_lineages(sessions: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the lineages: a session and the children in which compactions let it go on."""
    children: dict[str, str] = {}
    for ident, one in sessions.items():
        parent = sessions.get(str(one.get("parent_session_id") or ""))
        if parent is not None and parent.get("end_reason") == COMPRESSION and not _is_delegate(one):
            children.setdefault(str(parent["id"]), ident)
    inner = set(children.values())
    for ident, one in sessions.items():
        if ident in inner:
            continue
        lineage, seen = [one], {ident}
        while (after := children.get(str(lineage[-1]["id"]))) is not None and after not in seen:
            seen.add(after)
            lineage.append(sessions[after])
        yield lineage


def _is_delegate(one: Mapping[str, Any]) -> bool:
    config = json_in(one.get("model_config"))
    marks = {"_delegate_from", "_branched_from"}
    return one.get("source") == "subagent" or (isinstance(config, dict) and not marks.isdisjoint(config))


def _hermes_messages(connection: sqlite3.Connection, ident: str) -> list[dict[str, Any]]:
    query = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
    return [dict(row) for row in connection.execute(query, (ident,))]
