"""Imports of conversations: each is recorded and becomes a session, once, however often it is imported.

A conversation is recognised by the id in its file, or by its first words, and by its place in the tree: one that has
grown extends its session, one that went another way becomes a conversation of its own. An export of a store keeps its
id, its root and its broken replies. Each conversation is one step, so an interrupted import can be repeated, and
several may run at once. `everlong.wire` reads the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import IntegrityError

from everlong.errors import StoreError
from everlong.model import Message, checked_messages, leading_system_count, seconds_of, text_of, title_from
from everlong.store.content import Blob
from everlong.store.database import TryAgain
from everlong.store.paths import leads_through, segments_to, sessions_along, stretch_of
from everlong.store.schema import branch, session
from everlong.store.sessions import TOTALS, clean_title, new_session_id, prompt_blob, write_prompt
from everlong.store.transcripts import ERROR, KIND, STATUS
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn, TurnEnd

if TYPE_CHECKING:
    from everlong.store.store import Store
    from everlong.wire import TranscriptConversation

REASON = "imported"
"""The end reason of an imported session, unless the file gives another."""

FOUND_IN = "found_in"
"""The key, in the origin of a session, of the folder that its file was found in; it speaks for that folder only."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/.*)?", re.IGNORECASE)
_SESSION_ID = re.compile(r"\d{8}_\d{6}_[0-9a-f]{6}")
_TIME_FIELDS = ("timestamp", "created_at", "time", "ts")
_LATEST = 1e11
_SYSTEM = frozenset({"system", "developer"})


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
    """The importer of conversations into one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self, conversation: TranscriptConversation, origin: ImportOrigin, sizes: Sequence[int] | None = None
    ) -> Imported:
        """Record a conversation and give it a session, unless it has one; ``sizes`` are the tokens of its messages."""
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
        tokens = None if sizes is None else [size for place, size in enumerate(sizes) if place not in apart]
        lead = leading_system_count(said)
        trace = self._store.chain.trace(said[lead:])
        if not trace.ids:
            return Imported("empty", None)
        key = f"session:{conversation.id}" if conversation.id else f"words:{trace.ids[0].hex()}"
        name, tools = _text(conversation.id), conversation.tools or None
        at = self._store.record(said, tools=tools, times=when, tokens=tokens, ext_id=name, conversation=root)
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
        for one in sessions_along(connection, self._store.tenant, here):
            there = [] if one.from_depth or key_of(one) != key else stretch_of(connection, one)
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
