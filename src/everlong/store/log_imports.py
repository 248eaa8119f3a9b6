"""Imports from the logs of other clients: runs of conversations become sessions, once, however often they are read.

A conversation that went through the gateway is in the store already. It is known by the name that its client gives it
both in its requests and in its log, else by its words; then its log adds to it what the gateway did not see, and no
second conversation appears.

`LogFiles` knows how far log files are imported, so that a later run reads only what has changed. Its rows have no words
of a conversation. They are written after the messages that they speak for, which can be imported twice without harm; so
whoever dies in between reads a little more the next time, and two who import at once do not disturb each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, delete, select, update

from everlong.model import Trace, checked_messages, leading_system_count, text_of
from everlong.store.database import in_batches
from everlong.store.imports import FOUND_IN, REASON, Imported, Importer, ImportOrigin, fill_times, key_of
from everlong.store.paths import leads_through, segments_to, sessions_along, stretch_of
from everlong.store.schema import log_file, session
from everlong.store.sessions import TOTALS, clean_title, prompt_blob
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.store import Store
    from everlong.wire.logs import LogFacts, LogRun, LogUsage


_LATER = 120.0
"""Seconds by which a log may end after the gateway's last turn of the same conversation and tell nothing new."""


def client_session_of(facts: LogFacts) -> str | None:
    """Return the name of a conversation as its client's requests have it."""
    if facts.client == "claude-code":
        return None if facts.session is None else f"{facts.session}/{facts.agent or ''}"
    return facts.session


def _named(name: str | None, origin: ImportOrigin) -> str | None:
    """Return a client's name for a conversation; those in files that nobody named are apart from those of clients."""
    return f"{FOUND_IN}:{name}" if name is not None and origin.is_apart else name


class LogImporter(Importer):
    """The importer of runs into one store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._parents: dict[str, str | None] = {}

    def add_run(self, run: LogRun, origin: ImportOrigin) -> Imported:
        """Store a conversation, and give it a session if it has none."""
        if origin.is_apart:
            run.facts = replace(run.facts, folder=origin.found_in)
        store, facts = self._store, run.facts
        said = [store.cleaned(message) for message in checked_messages(run.messages)]
        times = fill_times(run.times, origin.written if facts.started is None else facts.started)
        lead = leading_system_count(said)
        trace = store.chain.trace(said[lead:], store.chain.root(origin.root))
        if not trace.ids:
            return Imported("empty", None)
        named = None if origin.is_apart else self._gateway_session(facts)
        if named is not None:
            self._learn_folder(named.id, facts)
        if named is not None and times[-1] <= named.active + _LATER and not self._is_known(trace):
            # The gateway has it in the words of the requests, which differ a little from those of the log.
            return Imported("known", named.conversation)
        name = _named(client_session_of(facts), origin)
        at = store.recording.whole(said, None, times, None, name, conversation=origin.root)
        key = log_key(facts, trace)
        columns = self._columns(facts, origin, key, times, run.usage)
        first = next((n for n, one in enumerate(said[lead:]) if one.get("role") == "assistant"), len(trace.ends))
        columns["opened"] = trace.ends[first - 1] if first else 0
        if named is not None:
            columns["works_for"] = columns["works_for"] or named.conversation
        prompt = "\n\n".join(filter(None, map(text_of, said[:lead])))
        has_reply = first < len(trace.ends)
        # Many conversations begin with the same question: until a reply tells them apart, the client's name must.
        may_be_in = None if has_reply or named is None else named.conversation

        def find(connection: Connection) -> Imported | None:
            found = self._of_same_conversation(connection, at, key)
            if found is None and (has_reply or may_be_in is not None):
                found = self._of_gateway(connection, at, may_be_in)
            return found

        done = self._give_session(at, key, columns, prompt_blob(store, prompt or None), None, find=find)
        if done.outcome in {"known", "grown"}:
            self._update(at, done, facts, run.usage, max(times))
        return done

    def _columns(
        self, facts: LogFacts, origin: ImportOrigin, key: str, times: Sequence[float], usage: LogUsage
    ) -> dict[str, Any]:
        """Return the columns of a new session."""
        about: dict[str, Any] = {"import": key, "file": origin.file, FOUND_IN: origin.found_in}
        told = {"id": facts.key, "git_branch": facts.git_branch, "version": facts.version, "agent": facts.agent}
        about = {name: value for name, value in (about | told).items() if value is not None}
        if facts.title is not None:
            about["titled"] = True
        return {
            "kind": "agent" if facts.agent is not None else "main",
            "client": facts.client,
            "client_session": clean_title(_named(client_session_of(facts), origin)),
            "folder": clean_title(facts.folder),
            "works_for": self._parent(facts, origin),
            "active": max(times),
            "title": None if facts.title is None else clean_title(self._store.cleaned_text(facts.title)),
            "platform": origin.source or facts.client,
            "source": origin.source or facts.client,
            "user": clean_title(facts.user),
            "model": clean_title(facts.model),
            "origin": json.dumps(about),
            "started": min(times) if facts.started is None else min(facts.started, *times),
            "ended": max(times),
            "end_reason": clean_title(facts.end_reason) or REASON,
            **{name: getattr(usage, name) for name in (*TOTALS, "cost")},
        }

    def _parent(self, facts: LogFacts, origin: ImportOrigin) -> str | None:
        """Return the conversation that had this one begun."""
        if facts.works_for is None:
            return None
        parent = replace(facts, session=facts.works_for, agent=None, works_for=None)
        name = _named(client_session_of(parent), origin)
        if name is None:
            return None
        if self._parents.get(name) is None:
            query = select(session.c.conversation).where(
                session.c.tenant == self._store.tenant, session.c.client_session == name, session.c.kind == "main"
            )
            with self._store.database.read() as connection:
                self._parents[name] = connection.execute(query.order_by(session.c.started).limit(1)).scalar()
        return self._parents[name]

    # -- sessions that are there ---------------------------------------------------------------------------------------

    def _gateway_session(self, facts: LogFacts) -> Row[Any] | None:
        """Return the newest session that the gateway keeps under the client's name for the conversation."""
        name = client_session_of(facts)
        if name is None:
            return None
        query = select(session).where(
            session.c.tenant == self._store.tenant,
            session.c.client_session == name,
            session.c.kind != "side",
            session.c.branch.is_not(None),
        )
        with self._store.database.read() as connection:
            rows = connection.execute(query.order_by(session.c.active.desc())).all()
        return next((row for row in rows if key_of(row) is None), None)

    def _is_known(self, trace: Trace) -> bool:
        return not self._store.identity.count_unknown(trace)

    def _of_gateway(self, connection: Connection, at: Branch, conversation: str | None = None) -> Imported | None:
        """Return the session of a conversation that was stored by another way than an import and leads to a place.

        With a conversation, only a session of that one.
        """
        here = segments_to(connection, at.id, at.depth)
        for one in sessions_along(connection, self._store.tenant, here):
            if key_of(one) is not None or one.kind == "side" or one.branch is None:
                continue
            if conversation is not None and one.conversation != conversation:
                continue
            there = stretch_of(connection, one)
            if leads_through(there, at.id, at.depth):
                return Imported("known", one.id)
            if there and leads_through(here, one.branch, there[-1].high):
                return Imported("grown", one.id)
        return None

    def _learn_folder(self, ident: str, facts: LogFacts) -> None:
        """Note the folder of a conversation of the gateway, which its requests need not tell."""
        if facts.folder is None:
            return
        whole = select(session.c.conversation).where(session.c.id == ident).scalar_subquery()
        learned = update(session).where(session.c.conversation == whole, session.c.folder.is_(None))
        folder = clean_title(facts.folder)
        self._store.database.write(lambda connection: connection.execute(learned.values(folder=folder)).rowcount)

    def _update(self, at: Branch, found: Imported, facts: LogFacts, usage: LogUsage, end: float) -> None:
        """Bring an imported session up to date; one of the gateway only learns where it ends."""

        def work(connection: Connection) -> None:
            row = connection.execute(select(session).where(session.c.id == found.session)).one()
            values: dict[str, Any] = {}
            if found.outcome == "grown" and (row.to_depth is not None or row.branch != at.id):
                values |= {"branch": at.id, "to_depth": None if row.ended is None else at.depth}
            if end > row.active:
                values["active"] = end
            if key_of(row) is not None:
                values |= self._stated_columns(row, facts, usage, end)
            elif row.folder is None:
                values["folder"] = clean_title(facts.folder)
            changed = {name: value for name, value in values.items() if getattr(row, name) != value}
            if changed:
                connection.execute(update(session).where(session.c.id == row.id).values(changed))

        self._store.database.write(work)

    def _stated_columns(self, row: Row[Any], facts: LogFacts, usage: LogUsage, end: float) -> dict[str, Any]:
        values: dict[str, Any] = {"model": clean_title(facts.model) or row.model, "ended": max(end, row.ended or 0.0)}
        values["folder"] = clean_title(facts.folder) or row.folder
        if usage.is_stated:
            values |= {name: getattr(usage, name) for name in (*TOTALS, "cost")}
        about = json.loads(row.origin or "{}")
        if facts.title is not None and (row.title is None or about.get("titled")):
            values["title"] = clean_title(self._store.cleaned_text(facts.title))
            about["titled"] = True
        if facts.git_branch is not None:
            about["git_branch"] = facts.git_branch
        if about != json.loads(row.origin or "{}"):
            values["origin"] = json.dumps(about)
        return values


def log_key(facts: LogFacts, trace: Trace) -> str:
    """Return the key by which an imported conversation is known."""
    return f"{facts.client}:{facts.key}" if facts.key else f"words:{trace.ids[0].hex()}"


# -- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What shows without reading it that a file has changed."""

    size: int
    mtime: int
    inode: str


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A log file, as far as it is imported."""

    file: str
    client: str
    stamp: FileStamp
    """The file when it was last read to its end."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The place up to which a database was read, as values of JSON."""


class LogFiles:
    """The log files that one tenant has imported."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._database = core.database
        self._put = self._database.sql(
            "INSERT INTO log_file (tenant, file, client, size, mtime, inode, state, ts)"
            " VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (tenant, file) DO UPDATE SET client = excluded.client,"
            " size = excluded.size, mtime = excluded.mtime, inode = excluded.inode,"
            " state = excluded.state, ts = excluded.ts"
        )

    def all_stamps(self) -> dict[str, FileStamp]:
        """Return all files with their stamps."""
        query = select(log_file.c.file, log_file.c.size, log_file.c.mtime, log_file.c.inode)
        with self._database.read() as connection:
            rows = connection.execute(query.where(log_file.c.tenant == self._core.tenant)).all()
        return {row.file: FileStamp(row.size, row.mtime, row.inode) for row in rows}

    def get(self, file: str) -> KnownLog | None:
        """Return a file; None if nothing of it is imported."""
        query = select(log_file).where(log_file.c.tenant == self._core.tenant, log_file.c.file == file)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        stamp = FileStamp(row.size, row.mtime, row.inode)
        return KnownLog(row.file, row.client, stamp, json.loads(row.state))

    def put(self, known: KnownLog) -> None:
        """Note that a file is imported."""
        stamp = known.stamp
        values = (
            *(self._core.tenant, known.file, known.client, stamp.size, stamp.mtime, stamp.inode),
            *(json.dumps(dict(known.state)), time.time()),
        )
        self._database.write(lambda connection: self._database.backend.run(connection, self._put, values))

    def drop(self, files: list[str]) -> None:
        """Forget that some files were imported."""
        for some in in_batches(files):
            gone = delete(log_file).where(log_file.c.tenant == self._core.tenant, log_file.c.file.in_(some))
            self._database.write(lambda connection, gone=gone: connection.execute(gone).rowcount)  # type: ignore[misc]
