"""Imports from the logs of other clients: runs of conversations become sessions, once, however often they are read.

A conversation that went through the gateway is in the store already. It is known by the name that its client gives it
both in its requests and in its log, else by its words; then its log adds to it what the gateway did not see, and no
second conversation appears.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, select, update

from everlong.model import Trace, checked_messages, leading_system_count, text_of
from everlong.store.imports import FOUND_IN, REASON, Imported, Importer, ImportOrigin, fill_times, key_of
from everlong.store.paths import leads_through, segments_to, sessions_along, stretch_of
from everlong.store.schema import session
from everlong.store.sessions import TOTALS, clean_title, new_session_id, next_title, prompt_blob
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.store.store import Store
    from everlong.wire.logs import LogFacts, LogRun, LogUsage


COMPRESSION = "compression"
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
        return self._add(run, origin)[0]

    def _add(self, run: LogRun, origin: ImportOrigin) -> tuple[Imported, Branch | None]:
        """Store a conversation; return the outcome, and its end if it has any words."""
        if origin.is_apart:
            run.facts = replace(run.facts, folder=origin.found_in)
        store, facts = self._store, run.facts
        said = [store.cleaned(message) for message in checked_messages(run.messages)]
        times = fill_times(run.times, origin.written if facts.started is None else facts.started)
        lead = leading_system_count(said)
        trace = store.chain.trace(said[lead:], store.chain.root(origin.root))
        if not trace.ids:
            return Imported("empty", None), None
        named = None if origin.is_apart else self._gateway_session(facts)
        if named is not None:
            self._learn_folder(named.id, facts)
        if named is not None and times[-1] <= named.active + _LATER and not self._is_known(trace):
            # The gateway has it in the words of the requests, which differ a little from those of the log.
            return Imported("known", named.conversation), store.branch(named.branch)
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
        return done, at

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

    def add_lineage(self, parts: Sequence[LogRun], origin: ImportOrigin, starts: Sequence[int]) -> list[Imported]:
        """Store a conversation that its client has kept as several sessions, each the child of the one before.

        Args:
            parts: The sessions in order.
            origin: Where they are from.
            starts: For each part the place of its first message that those before do not have.
        """
        whole, first = _joined(parts, starts)
        done, at = self._add(whole, origin)
        if at is None or done.session is None:
            return [done]
        ends = _depths(self._store.chain.trace(map(self._store.cleaned, whole.messages[first:])), parts, starts, first)
        outcomes = [done]

        def work(connection: Connection) -> None:
            base = connection.execute(select(session).where(session.c.id == done.session)).one()
            if key_of(base) is None:
                return  # the conversation went through the gateway, which has parts of its own
            below = at.depth - ends[-1]  # where its words were stored after others
            before, low = base, 0
            for number, (part, end) in enumerate(zip(parts, ends, strict=True)):
                depth = end + below
                if number == 0:
                    values = {"to_depth": depth, "branch": at.id, **_ended(part, number, parts)}
                    connection.execute(update(session).where(session.c.id == base.id).values(values))
                    low = depth
                    continue
                before = self._put_part(connection, base, before, part, at.id, (low, depth), origin, outcomes=outcomes)
                low = depth
                ended = _ended(part, number, parts)
                connection.execute(update(session).where(session.c.id == before.id).values(ended))

        self._store.database.write(work)
        return outcomes

    def _put_part(  # noqa: PLR0913 - one row has many sides
        self,
        connection: Connection,
        base: Row[Any],
        before: Row[Any],
        part: LogRun,
        branch: int,
        stretch: tuple[int, int],
        origin: ImportOrigin,
        *,
        outcomes: list[Imported],
    ) -> Row[Any]:
        """Insert or update the session of one part of a lineage; return its row."""
        key = log_key(part.facts, None)
        same = select(session).where(session.c.conversation == base.conversation, session.c.tenant == base.tenant)
        found = next((row for row in connection.execute(same) if key_of(row) == key), None)
        place = {"branch": branch, "from_depth": stretch[0], "to_depth": stretch[1], "parent": before.id}
        times = [time for time in part.times if time is not None] or [base.started]
        if found is None:
            columns = self._columns(part.facts, origin, key, times, part.usage)
            columns |= {"kind": base.kind, "works_for": base.works_for, "opened": None}
            if columns["title"] is None and base.title is not None:
                columns["title"] = next_title(connection, base.conversation, base.title)
            ident = new_session_id(columns["started"])
            while connection.execute(select(session.c.id).where(session.c.id == ident)).first():
                ident = new_session_id(columns["started"])
            row = {**columns, **place, "id": ident, "tenant": base.tenant, "conversation": base.conversation}
            connection.execute(session.insert().values(**row))
            outcomes.append(Imported("new", ident))
        else:
            ident = found.id
            usage = {name: getattr(part.usage, name) for name in (*TOTALS, "cost")}
            connection.execute(update(session).where(session.c.id == ident).values(**place, **usage))
            is_grown = found.to_depth != stretch[1]
            outcomes.append(Imported("grown" if is_grown else "known", ident))
        return connection.execute(select(session).where(session.c.id == ident)).one()

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


def _joined(parts: Sequence[LogRun], starts: Sequence[int]) -> tuple[LogRun, int]:
    """Return a lineage as one run, and the number of system messages that it begins with."""
    whole = replace(parts[0], messages=[], times=[])
    for number, (part, start) in enumerate(zip(parts, starts, strict=True)):
        for message, time in zip(part.messages[start:], part.times[start:], strict=True):
            if number and message.get("role") == "system":
                continue
            whole.messages.append(message)
            whole.times.append(time)
    return whole, leading_system_count(whole.messages)


def _depths(trace: Trace, parts: Sequence[LogRun], starts: Sequence[int], lead: int) -> list[int]:
    """Return the depth at which each part of a joined lineage ends."""
    ends, count = [], -lead
    for number, (part, start) in enumerate(zip(parts, starts, strict=True)):
        count += sum(not number or one.get("role") != "system" for one in part.messages[start:])
        ends.append(trace.ends[count - 1] if count > 0 else 0)
    return ends


def _ended(part: LogRun, number: int, parts: Sequence[LogRun]) -> dict[str, Any]:
    """Return how a part ended: with a compaction, if another follows it."""
    times = [time for time in part.times if time is not None]
    reason = clean_title(part.facts.end_reason) or (REASON if number == len(parts) - 1 else COMPRESSION)
    when = part.facts.ended or (max(times) if times else None)
    return {"end_reason": reason} if when is None else {"end_reason": reason, "ended": when}


def log_key(facts: LogFacts, trace: Trace | None) -> str:
    """Return the key by which an imported conversation is known."""
    if facts.key:
        return f"{facts.client}:{facts.key}"
    return f"words:{trace.ids[0].hex()}" if trace is not None else ""
