"""Imports of conversations: each is recorded and becomes a session, once, however often it is imported.

A conversation is recognised by the id in its file, or by its first words, and by its place in the tree: one that has
grown extends its session, one that went another way becomes a conversation of its own. An export of a store keeps its
id, its root and its broken replies. Each conversation is one step, so an interrupted import can be repeated, and
several may run at once. `everlong.wire` reads the files, and the logs of other clients.

A conversation that went through the gateway is in the store already. It is known by the name that its client gives it
both in its requests and in its log, else by its words; then its log adds to it what the gateway did not see, and no
second conversation appears.

`LogFiles` knows how far log files are imported, so that a later run reads only what has changed. Its rows have no words
of a conversation. They are written after the messages that they speak for, which can be imported twice without harm; so
whoever dies in between reads a little more the next time, and two who import at once do not disturb each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import IntegrityError

from everlong.errors import StoreError
from everlong.model import Message, Trace, checked_messages, leading_system_count, seconds_of, text_of, title_from
from everlong.store.content import Blob
from everlong.store.database import TryAgain
from everlong.store.paths import leads_through, segments_to, sessions_along, stretch_of
from everlong.store.schema import branch, log_file, session
from everlong.store.sessions import TOTALS, clean_title, new_session_id, prompt_blob, write_prompt
from everlong.store.transcripts import ERROR, KIND, STATUS
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn, TurnEnd

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.store import Store
    from everlong.wire import TranscriptConversation
    from everlong.wire.logs import LogFacts, LogRun, LogUsage

REASON = "imported"
"""The end reason of an imported session, unless the file gives another."""

FOUND_IN = "found_in"
"""The key, in the origin of a session, of the folder that its file was found in; it speaks for that folder only."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/.*)?", re.IGNORECASE)
_SESSION_ID = re.compile(r"\d{8}_\d{6}_[0-9a-f]{6}")
_TIME_FIELDS = ("timestamp", "created_at", "time", "ts")
_LATEST = 1e11
_SYSTEM = frozenset({"system", "developer"})
_LATER = 120.0
"""Seconds by which a log may end after the gateway's last turn of the same conversation and tell nothing new."""


class Imported(NamedTuple):
    """The outcome for one conversation: a new session, one that has grown, one that was known, or nothing to store."""

    outcome: Literal["new", "grown", "known", "empty"]
    session: str | None


@dataclass(frozen=True, slots=True)
class ImportOrigin:
    """The file that conversations are from, the time it was written, and the name that a person gave to the source."""

    file: str
    written: float
    source: str | None = None
    found_in: str | None = None
    """The folder of a file that is no client's own; "-" for a stream."""
    is_apart: bool = False
    """True if nobody has named the file: it speaks of its own folder only, and adds to no conversation of others."""

    @property
    def root(self) -> str:
        """The root of its conversations; empty for that which all share."""
        return f"{FOUND_IN} {self.found_in}" if self.is_apart else ""


class Importer:
    """The importer of conversations into one store.

    Args:
        store: the store.
        price: returns the US dollars for what a log used, of a model at a time; for logs that state no cost.
    """

    def __init__(self, store: Store, price: Callable[[str | None, LogUsage, float], float] | None = None) -> None:
        self._store = store
        self._price = price
        self._parents: dict[str, str | None] = {}

    def add(self, conversation: TranscriptConversation, origin: ImportOrigin) -> Imported:
        """Record a conversation and give it a session, unless it has one."""
        body = conversation.body or {}
        is_own = body.get("kind") == KIND and _SESSION_ID.fullmatch(conversation.id or "") is not None
        root = ""
        if is_own:
            before = self._find_session(str(conversation.id))
            if before is not None and key_of(before) != f"session:{conversation.id}":
                return Imported("known", conversation.id)  # it is here itself, and not because it was imported
            is_named = body.get("own_root") is True if before is None else self._has_root(before)
            root = str(conversation.id) if is_named else ""
            conversation = replace(conversation, messages=checked_messages(body["messages"]))
        root = f"{origin.root} {root}".strip()
        times = times_of(conversation, origin.written)
        said, broken = _split_off_broken(conversation.messages, times) if is_own else (list(conversation.messages), [])
        apart = {one.place for one in broken}
        when = [time for place, time in enumerate(times) if place not in apart]
        lead = leading_system_count(said)
        trace = self._store.chain.trace(said[lead:])
        if not trace.ids:
            return Imported("empty", None)
        key = f"session:{conversation.id}" if conversation.id else f"words:{trace.ids[0].hex()}"
        name, tools = _text(conversation.id), conversation.tools or None
        at = self._store.record(said, tools=tools, times=when, ext_id=name, conversation=root)
        facts = _facts(self._store, conversation, origin, key, times, is_own=is_own)
        first = next((n for n, one in enumerate(said[lead:]) if one.get("role") == "assistant"), len(trace.ends))
        facts["opened"] = None if root else (trace.ends[first - 1] if first else 0)
        prompt = "\n\n".join(filter(None, map(text_of, said[:lead])))
        wanted = str(conversation.id) if is_own else None
        done = self._give_session(at, key, facts, prompt_blob(self._store, prompt or None), wanted)
        if done.session is not None and done.outcome in {"new", "grown"}:
            places = [(one, trace.ends[one.after - lead]) for one in broken if one.after >= lead]
            self._add_broken(at, done.session, places, facts["active"])
        return done

    def _add_broken(self, at: Branch, ident: str, broken: Sequence[tuple[_Broken, int]], active: float) -> None:
        """Put replies that broke off beside the conversation, unless they are there."""
        known = {(turn.node, turn.status) for turn in self._store.turns.of_session(ident) if turn.status != "done"}
        added = 0
        for one, depth in broken:
            place = self._store.branch(at.id, depth)
            if (place.head, one.status) in known:
                continue
            past = FinishedTurn(one.message, session=ident, status=one.status, error=one.error, began=one.time)
            self._store.turns.add_finished(place, past)
            added += 1
        if added:  # what they used was counted where they were asked
            values = {"api_calls": session.c.api_calls - added, "active": active}
            statement = update(session).where(session.c.id == ident).values(values)
            self._store.database.write(lambda connection: connection.execute(statement).rowcount)

    def _find_session(self, ident: str) -> Row[Any] | None:
        """Return the session that has an id, or a part of the conversation that has it."""
        mine = select(session).where(session.c.tenant == self._store.tenant)
        with self._store.database.read() as connection:
            row = connection.execute(mine.where(session.c.id == ident)).first()
            return row or connection.execute(mine.where(session.c.conversation == ident).limit(1)).first()

    def _has_root(self, row: Row[Any]) -> bool:
        """Return whether an imported conversation has a root of its own."""
        with self._store.database.read() as connection:
            return connection.execute(select(branch.c.root).where(branch.c.id == row.branch)).scalar() is not None

    def _give_session(
        self,
        at: Branch,
        key: str,
        facts: dict[str, Any],
        prompt: Blob | None,
        wanted: str | None,
        *,
        find: Callable[[Connection], Imported | None] | None = None,
    ) -> Imported:
        """Give a conversation a session, unless ``find`` or an earlier import has one for it."""

        def work(connection: Connection) -> Imported:
            found = self._of_same_conversation(connection, at, key) if find is None else find(connection)
            if found is None:
                return Imported("new", self._insert(connection, at, facts, prompt, wanted))
            if found.outcome == "grown" and find is None:
                grown = {"branch": at.id, "to_depth": at.depth, "ended": facts["ended"], "active": facts["active"]}
                connection.execute(update(session).where(session.c.id == found.session).values(grown))
            return found

        def write(_: int) -> Imported:
            try:
                return self._store.database.write(work)
            except StoreError as error:
                if not isinstance(error.__cause__, IntegrityError):
                    raise
                raise TryAgain("another process took the same id at the same moment") from error

        return self._store.database.retry(write)

    def _of_same_conversation(self, connection: Connection, at: Branch, key: str) -> Imported | None:
        """Return the session that an earlier import gave to the conversation, and whether that one was shorter."""
        here = segments_to(connection, at.id, at.depth)
        # Who else imports the same conversation waits here, and then finds the session.
        first = select(branch.c.id).where(branch.c.id == here[0].branch)
        connection.execute(self._store.database.backend.locked(first))
        return self._find_along(connection, at, lambda one: not one.from_depth and key_of(one) == key)

    def _find_along(self, connection: Connection, at: Branch, is_wanted: Callable[[Row[Any]], bool]) -> Imported | None:
        """Return a wanted session that leads to a place, or whose end leads there."""
        here = segments_to(connection, at.id, at.depth)
        for one in filter(is_wanted, sessions_along(connection, self._store.tenant, here)):
            there = stretch_of(connection, one)
            if leads_through(there, at.id, at.depth):
                return Imported("known", one.id)
            if there and leads_through(here, one.branch, there[-1].high):
                return Imported("grown", one.id)
        return None

    def _insert(
        self, connection: Connection, at: Branch, facts: dict[str, Any], prompt: Blob | None, wanted: str | None
    ) -> str:
        tenant = self._store.tenant
        write_prompt(self._store, connection, prompt)
        values = {**facts, "system_prompt": None if prompt is None else prompt.digest}
        ident = wanted
        while ident is None or connection.execute(select(session.c.id).where(session.c.id == ident)).first():
            ident = new_session_id(values["started"])
        row = {**dict.fromkeys(TOTALS, 0), "cost": 0.0, "parent": None, **values, "conversation": ident}
        place = {"branch": at.id, "from_depth": 0, "to_depth": at.depth}
        connection.execute(session.insert().values(id=ident, tenant=tenant, **place, **row))
        return ident

    # -- logs ----------------------------------------------------------------------------------------------------------

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
        at = store.record(said, times=times, ext_id=name, conversation=origin.root)
        key = log_key(facts, trace)
        usage = run.usage
        if self._price is not None and usage.api_calls and not usage.cost:
            usage = usage._replace(cost=self._price(facts.model, usage, max(times)))
        columns = self._columns(facts, origin, key, times, usage)
        first = next((n for n, one in enumerate(said[lead:]) if one.get("role") == "assistant"), len(trace.ends))
        columns["opened"] = trace.ends[first - 1] if first else 0
        opening_title = store.title_for(said[lead : lead + first])
        columns["title"] = columns["title"] or opening_title
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
            self._update(at, done, facts, usage, max(times), opening_title)
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
            "model": clean_title(facts.model),
            "origin": json.dumps(about),
            "started": min(times) if facts.started is None else min(facts.started, *times),
            "ended": max(times),
            "end_reason": REASON,
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

        def is_wanted(one: Row[Any]) -> bool:
            if key_of(one) is not None or one.kind == "side" or one.branch is None:
                return False
            return conversation is None or one.conversation == conversation

        return self._find_along(connection, at, is_wanted)

    def _learn_folder(self, ident: str, facts: LogFacts) -> None:
        """Note the folder of a conversation of the gateway, which its requests need not tell."""
        if facts.folder is None:
            return
        whole = select(session.c.conversation).where(session.c.id == ident).scalar_subquery()
        learned = update(session).where(session.c.conversation == whole, session.c.folder.is_(None))
        folder = clean_title(facts.folder)
        self._store.database.write(lambda connection: connection.execute(learned.values(folder=folder)).rowcount)

    def _update(
        self, at: Branch, found: Imported, facts: LogFacts, usage: LogUsage, end: float, opening_title: str | None
    ) -> None:
        """Bring an imported session up to date; one of the gateway only learns where it ends."""

        def work(connection: Connection) -> None:
            row = connection.execute(select(session).where(session.c.id == found.session)).one()
            values: dict[str, Any] = {}
            if found.outcome == "grown" and (row.to_depth is not None or row.branch != at.id):
                values |= {"branch": at.id, "to_depth": None if row.ended is None else at.depth}
            if end > row.active:
                values["active"] = end
            if key_of(row) is not None:
                values |= self._stated_columns(row, facts, usage, end, opening_title)
            elif row.folder is None:
                values["folder"] = clean_title(facts.folder)
            changed = {name: value for name, value in values.items() if getattr(row, name) != value}
            if changed:
                connection.execute(update(session).where(session.c.id == row.id).values(changed))

        self._store.database.write(work)

    def _stated_columns(
        self, row: Row[Any], facts: LogFacts, usage: LogUsage, end: float, opening_title: str | None
    ) -> dict[str, Any]:
        values: dict[str, Any] = {"model": clean_title(facts.model) or row.model, "ended": max(end, row.ended or 0.0)}
        values["folder"] = clean_title(facts.folder) or row.folder
        if usage.is_stated:
            values |= {name: getattr(usage, name) for name in (*TOTALS, "cost")}
        about = json.loads(row.origin or "{}")
        if facts.title is not None and (row.title in {None, opening_title} or about.get("titled")):
            values["title"] = clean_title(self._store.cleaned_text(facts.title))
            about["titled"] = True
        if facts.git_branch is not None:
            about["git_branch"] = facts.git_branch
        if about != json.loads(row.origin or "{}"):
            values["origin"] = json.dumps(about)
        return values


def client_session_of(facts: LogFacts) -> str | None:
    """Return the name of a conversation as its client's requests have it."""
    if facts.client == "claude-code":
        return None if facts.session is None else f"{facts.session}/{facts.agent or ''}"
    return facts.session


def _named(name: str | None, origin: ImportOrigin) -> str | None:
    """Return a client's name for a conversation; those in files that nobody named are apart from those of clients."""
    return f"{FOUND_IN}:{name}" if name is not None and origin.is_apart else name


def log_key(facts: LogFacts, trace: Trace) -> str:
    """Return the key by which an imported conversation is known."""
    return f"{facts.client}:{facts.key}" if facts.key else f"words:{trace.ids[0].hex()}"


def key_of(row: Row[Any]) -> str | None:
    """Return the key by which an imported session is known; None for any other."""
    key = json.loads(row.origin or "{}").get("import")
    return key if isinstance(key, str) else None


class _Broken(NamedTuple):
    """A reply of an export that broke off: its place in the file, and the whole message that it follows."""

    place: int
    after: int
    message: Message
    status: TurnEnd
    error: str | None
    time: float


def _split_off_broken(messages: Sequence[Message], times: Sequence[float]) -> tuple[list[Message], list[_Broken]]:
    """Return the whole messages of an export, and those that broke off."""
    said: list[Message] = []
    broken: list[_Broken] = []
    for place, (message, time) in enumerate(zip(messages, times, strict=True)):
        plain = {name: value for name, value in message.items() if name not in {STATUS, ERROR}}
        status, error = message.get(STATUS), message.get(ERROR)
        if status in ("cancelled", "failed") and any(one.get("role") not in _SYSTEM for one in said):
            why = error if isinstance(error, str) else None
            broken.append(_Broken(place, len(said) - 1, plain, status, why, time))
        else:
            said.append(plain if STATUS in message else message)
    return said, broken


def _facts(
    store: Store,
    conversation: TranscriptConversation,
    origin: ImportOrigin,
    key: str,
    times: Sequence[float],
    *,
    is_own: bool,
) -> dict[str, Any]:
    """Return the columns of a new session, from what the file says about it."""
    body = conversation.body or {}
    title = body.get("title")
    if not isinstance(title, str) and not _is_bare_number(conversation.id):
        title = conversation.id
    if title is None:
        opening = takewhile(lambda one: one.get("role") != "assistant", conversation.messages)
        title = title_from(list(map(store.cleaned, opening)))
    kept: dict[str, Any] = body if is_own else {}
    platform = origin.source or _text(kept.get("platform"))
    before = kept.get("origin")
    about = {**(before if isinstance(before, dict) else {}), "import": key, "file": origin.file}
    about[FOUND_IN] = origin.found_in
    if conversation.id and not is_own:
        about["id"] = conversation.id
    started, ended = _number(kept.get("started")), _number(kept.get("ended"))
    active = _number(kept.get("active"))
    folder = _text(kept.get("folder"))
    kind = kept.get("type") if kept.get("type") in ("side", "agent") else "main"
    return {
        "kind": kind,
        "client": _text(kept.get("client")),
        "client_session": None if origin.is_apart else _text(kept.get("client_session")),
        "folder": origin.found_in if origin.is_apart else folder,
        "works_for": None if origin.is_apart else _text(kept.get("works_for")),
        "active": max(times) if active is None else active,
        "title": clean_title(store.cleaned_text(title) if isinstance(title, str) else None),
        "platform": platform,
        "source": origin.source or _text(kept.get("source")) or platform or "import",
        "user": _text(kept.get("user")),
        "model": _text(conversation.model),
        "origin": json.dumps(about),
        "started": min(times) if started is None else started,
        "ended": max(times) if ended is None else ended,
        "end_reason": _text(kept.get("end_reason")) or REASON,
    }


def _is_bare_number(ident: str | None) -> bool:
    """Return whether an id is a bare number, which no person would look for."""
    return ident is None or bool(ident.isdigit() or _UUID.fullmatch(ident) or _SESSION_ID.fullmatch(ident))


def _text(value: object) -> str | None:
    return clean_title(value) if isinstance(value, str) else None  # what a database or a terminal could not take goes


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _LATEST else None  # type: ignore[operator, arg-type]


def times_of(conversation: TranscriptConversation, written: float) -> list[float]:
    """Return the time of each message: from the file, else from the message before it, else of the file itself."""
    told: Sequence[float | None] | None = conversation.times
    listed = (conversation.body or {}).get("times")
    if told is None and isinstance(listed, list) and len(listed) == len(conversation.messages):
        told = [_number(value) for value in listed]
    if told is None:
        told = [_time_in(message) for message in conversation.messages]
    return fill_times(told, written)


def fill_times(told: Sequence[float | None], first: float) -> list[float]:
    """Return times without gaps: an unknown one is that of the message before, or else the first."""
    last = next((time for time in told if time is not None), first)
    times: list[float] = []
    for time in told:
        last = last if time is None else time
        times.append(last)
    return times


def _time_in(message: Message) -> float | None:
    return next(filter(None, (seconds_of(message.get(name)) for name in _TIME_FIELDS)), None)


# -- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The size, time and inode of a file, which change when somebody writes it."""

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
            "INSERT INTO log_file (tenant, file, client, size, mtime, inode, state)"
            " VALUES (?,?,?,?,?,?,?) ON CONFLICT (tenant, file) DO UPDATE SET client = excluded.client,"
            " size = excluded.size, mtime = excluded.mtime, inode = excluded.inode,"
            " state = excluded.state"
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
            json.dumps(dict(known.state)),
        )
        self._database.write(lambda connection: self._database.backend.run(connection, self._put, values))
