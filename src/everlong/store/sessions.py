"""Sessions: named stretches of a branch, in lineages that a compaction continues.

A session begins at a depth of its branch and, while it is open, ends where the branch ends. A compaction ends it and
opens a child at the same place, with everything carried over, in one transaction. Resuming any session of a lineage
lands at its newest end. This module knows sessions and their titles; messages it reads through the tree.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from sqlalchemy import Connection, Row, select, update

from everlong.errors import NotStored, StoreError
from everlong.model.unseen import UNSEEN
from everlong.store.content import Blob, blob, encoded
from everlong.store.database import TryAgain
from everlong.store.paths import Entry
from everlong.store.schema import branch, compaction, session
from everlong.store.tombstones import PLACEHOLDER
from everlong.store.tree import Branch
from everlong.store.upkeep.references import remove

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

TOTALS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_calls",
)


@dataclass(frozen=True, slots=True)
class Session:
    """A named stretch of a conversation; open while ``ended`` is None.

    >>> with Store.open("sessions.db") as store:
    ...     session: Session = store.sessions.start(title="The harbour")
    ...     session.title, session.ended
    ('The harbour', None)
    """

    id: str
    parent: str | None
    conversation: str
    """The first session of its lineage."""
    branch: int | None
    from_depth: int
    to_depth: int | None
    kind: Literal["main", "side", "agent"]
    """``main`` for people, ``side`` for a client's titles and probes, ``agent`` for work for another conversation."""
    title: str | None
    source: str
    platform: str | None
    user: str | None
    model: str | None
    system_prompt: bytes | None
    """The digest of the system prompt; `Sessions.system_prompt` returns its text."""
    origin: dict[str, Any] | None
    client: str | None
    folder: str | None
    client_session: str | None
    """The client's name for it."""
    works_for: str | None
    """The conversation that started it, or that it was forked from."""
    opened: int | None
    """The depth of its first request, if it is recognised by its words; None if its host knows it by name."""
    started: float
    active: float
    """The time at which something was last said in it."""
    ended: float | None
    end_reason: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_calls: int
    cost: float

    @classmethod
    def of(cls, row: Row[Any]) -> Session:
        """Return the session of a row."""
        values = dict(row._mapping)  # noqa: SLF001 - the documented way to a row's names
        for name in ("tenant", "preamble"):
            values.pop(name)
        values["origin"] = json.loads(values["origin"]) if values["origin"] else None
        values["system_prompt"] = bytes(values["system_prompt"]) if values["system_prompt"] is not None else None
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the session as JSON-ready data."""
        prompt = self.system_prompt
        return {**asdict(self), "system_prompt": prompt.hex() if prompt is not None else None}


def usage_totals(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return what a call's usage adds to the totals; input that a cache served is counted only there."""

    def number(name: str) -> int | None:
        value = usage.get(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    read, written = number("cache_read_tokens") or 0, number("cache_write_tokens") or 0
    given, prompt = number("input_tokens"), number("prompt_tokens") or 0
    said = number("output_tokens")
    return {
        "input_tokens": max(0, prompt - read - written) if given is None else given,
        "output_tokens": (number("completion_tokens") or 0) if said is None else said,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": number("reasoning_tokens") or 0,
    }


TITLE_LENGTH = 200

_NUMBERED = re.compile(r"(.*\S)\s+#(\d+)", re.DOTALL)


def new_session_id(when: float) -> str:
    """Return a new id ``YYYYMMDD_HHMMSS_xxxxxx``: local time and six random hex digits."""
    return f"{datetime.fromtimestamp(when).astimezone():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"


def session_source(platform: str | None) -> str:
    """Return the source of a session: its platform, else ``EVERLONG_SESSION_SOURCE``, else ``cli``."""
    return platform or os.environ.get("EVERLONG_SESSION_SOURCE", "").strip() or "cli"


def clean_title(title: str | None) -> str | None:
    """Return a title on one line without invisible characters; None if nothing is left."""
    if title is None:
        return None
    return " ".join(UNSEEN.sub(" ", title).split())[:TITLE_LENGTH].strip() or None


def title_base(title: str) -> str:
    """Return a title without its number in the lineage."""
    found = _NUMBERED.fullmatch(title)
    return found[1] if found else title


def next_title(connection: Connection, conversation: str, title: str) -> str:
    """Return the title of the session that a conversation goes on in: ``Title``, ``Title #2``, ``Title #3``."""
    base = title_base(title)
    taken = {1}
    for other in connection.execute(select(session.c.title).where(session.c.conversation == conversation)).scalars():
        found = _NUMBERED.fullmatch(other or "")
        if found and found[1] == base:
            taken.add(int(found[2]))
    return f"{base} #{max(taken) + 1}"


def conversations_in(connection: Connection, tenant: str, folders: Sequence[str]) -> list[str]:
    """Return the ids of all conversations that work in one of some folders now, of every kind."""
    inside = select(session.c.conversation).where(session.c.tenant == tenant, session.c.folder.in_(list(folders)))
    query = (
        select(session.c.conversation, session.c.folder)
        .where(session.c.tenant == tenant, session.c.conversation.in_(inside))
        .order_by(session.c.started, session.c.id)
    )
    newest = {str(name): folder for name, folder in connection.execute(query)}  # its last part says where it is now
    return [name for name, folder in newest.items() if folder in folders]


_CARRIED = (
    *("conversation", "kind", "source", "platform", "user", "model", "system_prompt", "origin"),
    *("client", "folder", "client_session", "works_for", "opened", "preamble"),
)
_ID_ATTEMPTS = 20
_COLUMNS = (
    *("id", "tenant", "parent", "conversation", "branch", "from_depth", "to_depth", "kind", "title", "source"),
    *("platform", "user", "model", "system_prompt", "origin", "client", "folder", "client_session", "works_for"),
    *("opened", "preamble", "started", "active"),
)
"""The columns of a new session, besides totals of 0."""


class SessionFacts(TypedDict, total=False):
    """The facts about a new session that a caller may give."""

    ident: str | None
    title: str | None
    platform: str | None
    user: str | None
    model: str | None
    system_prompt: str | None
    origin: Mapping[str, Any] | None
    client: str | None
    folder: str | None
    works_for: str | None
    started: float
    from_depth: int


def prompt_blob(core: StoreCore, text: str | None) -> Blob | None:
    """Return a session's system prompt as it may be stored; None if there is none."""
    if text is None:
        return None
    return blob(core.tenant, encoded(core.cleaned_text(text)))


def write_prompt(core: StoreCore, connection: Connection, prompt: Blob | None) -> None:
    """Store a system prompt, unless it is stored already."""
    if prompt is not None:
        core.recorder.add_contents(connection, core.tenant, [(prompt, ())])


class Sessions:
    """The sessions of one tenant."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._database = core.database
        # In plain SQL, because a gateway begins one with every other request.
        columns = (*_COLUMNS, *TOTALS, "cost")
        names, marks = ", ".join(f'"{name}"' for name in columns), ",".join("?" * len(columns))
        self._insert_sql = core.database.sql(
            f"INSERT INTO session ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own
        )

    # -- beginning and ending ------------------------------------------------------------------------------------------

    def start(self, at: Branch | None = None, **about: Unpack[SessionFacts]) -> Session:
        """Begin a session at a place in the tree, or before the first message; its source follows from the platform.

        The facts are those of `SessionFacts`: among others ``ident`` (an id that `new_session_id` gave before),
        ``origin`` (data that the platform wants back), the conversation that it ``works_for`` or was forked from, and
        ``from_depth`` if it begins before the place.
        """
        began = about.get("started", time.time())
        origin = about.get("origin")
        prompt = prompt_blob(self._core, about.get("system_prompt"))
        values: dict[str, Any] = {
            "parent": None,
            "branch": at.id if at is not None else None,
            "from_depth": about.get("from_depth", at.depth if at is not None else 0),
            "title": clean_title(about.get("title")),
            "source": session_source(about.get("platform")),
            "platform": about.get("platform"),
            "user": about.get("user"),
            "model": about.get("model"),
            "system_prompt": prompt.digest if prompt is not None else None,
            "origin": json.dumps(dict(origin)) if origin is not None else None,
            "client": about.get("client"),
            "folder": about.get("folder"),
            "works_for": about.get("works_for"),
        }

        def work(ident: str, connection: Connection) -> None:
            write_prompt(self._core, connection, prompt)
            self._insert(connection, ident, began, values)

        return self.get(self.with_new_id(began, work, about.get("ident")))

    def open_in(
        self, connection: Connection, at: Branch, *, ident: str | None = None, opened: int | None, **about: Any
    ) -> str:
        """Open the session of a conversation that is recognised by its words, in a transaction that is under way."""
        ident = ident or new_session_id(time.time())
        title = clean_title(about.pop("title", None))
        values = {**about, "branch": at.id, "from_depth": 0, "title": title, "opened": opened}
        values["source"] = session_source(about.get("platform"))
        self._insert(connection, ident, time.time(), values)
        return ident

    def continue_in(
        self, connection: Connection, ident: str, at: Branch, from_depth: int, *, child: str | None = None
    ) -> str:
        """Open the next part of a conversation whose last part has ended, in a transaction that is under way."""
        child = child or new_session_id(time.time())
        self._insert_child(connection, self._row(connection, ident), child, at.id, from_depth)
        return child

    def end_in(self, connection: Connection, ident: str, reason: str, depth: int) -> None:
        """End a session at a depth, in a transaction that is under way."""
        values = {"ended": time.time(), "end_reason": reason, "to_depth": depth}
        connection.execute(update(session).where(session.c.id == ident).values(values))

    def roll_over(self, ident: str, at: Branch | None = None, *, compaction_id: int | None = None) -> Session:
        """End a session and open its child at the same place, in one transaction; the child takes over everything."""

        def work(child: str, connection: Connection) -> None:
            self.go_on(connection, ident, child, at, compaction_id)

        return self.get(self.with_new_id(time.time(), work))

    def go_on(
        self,
        connection: Connection,
        ident: str,
        child: str,
        at: Branch | None = None,
        compaction_id: int | None = None,
    ) -> None:
        """End a session and open its child in a transaction that is under way."""
        old = self._row(connection, ident, lock=True)
        if old.ended is not None:
            raise StoreError(f"session {ident} has ended already ({old.end_reason}); resume its newest one instead")
        number = at.id if at is not None else old.branch
        depth = at.depth if at is not None else self._head_depth(connection, number)
        self.end_in(connection, ident, "compression", depth)
        rewound_to = None if old.to_depth is None else depth  # one that was rewound stays so
        self._insert_child(connection, old, child, number, depth, rewound_to)
        if compaction_id is not None:
            connection.execute(
                update(compaction).where(compaction.c.id == compaction_id).values(session=ident, child=child)
            )

    def end(self, ident: str, reason: str) -> Session:
        """End a session; one that has ended keeps its first end."""

        def values(connection: Connection, row: Row[Any]) -> dict[str, Any]:
            depth = self._head_depth(connection, row.branch) if row.to_depth is None else row.to_depth
            ended = {"ended": time.time(), "end_reason": reason, "to_depth": depth}
            return ended if row.ended is None else {}

        return self._change(ident, values)

    def reopen(self, ident: str) -> Session:
        """Reopen a session that has ended, where it ended; raise an error if it goes on in a child."""

        def values(connection: Connection, row: Row[Any]) -> dict[str, Any]:
            if row.end_reason == "compression":
                raise StoreError(f"session {ident} goes on in another one; resume its newest one instead")
            is_behind = row.to_depth is not None and row.to_depth < self._head_depth(connection, row.branch)
            place = row.to_depth if is_behind else None  # what stands behind it belongs to others, or was taken back
            return {"ended": None, "end_reason": None, "to_depth": place}

        return self._change(ident, values)

    def use_model(self, ident: str, model: str) -> Session:
        """Note that a session goes on with another model."""
        return self._change(ident, lambda _connection, _row: {"model": model})

    def move(self, ident: str, folder: str, system_prompt: str) -> Session:
        """Note that a session goes on in another folder, with the system prompt that holds there."""
        prompt = prompt_blob(self._core, system_prompt or None)

        def values(connection: Connection, _: Row[Any]) -> dict[str, Any]:
            write_prompt(self._core, connection, prompt)
            return {"folder": folder, "system_prompt": None if prompt is None else prompt.digest}

        return self._change(ident, values)

    def rewind(self, ident: str, depth: int) -> Session:
        """Move the place of an open session to a depth of its branch, 0 for before the first message.

        What was said after it stays on the branch; as soon as something else is said, the session goes on in a fork.
        """

        def values(connection: Connection, row: Row[Any]) -> dict[str, Any]:
            return {"to_depth": None if depth == self._head_depth(connection, row.branch) else depth}

        return self._change(ident, values)

    def attach(self, ident: str, at: Branch) -> Session:
        """Attach a session to a place in the tree; one without a branch covers its messages from the start."""

        def values(connection: Connection, row: Row[Any]) -> dict[str, Any]:
            forked = connection.execute(select(branch.c.fork_depth).where(branch.c.id == at.id)).scalar() or 0
            low = row.from_depth if row.branch is None else min(row.from_depth, forked)  # it was rewound to there
            is_end = at.depth == self._head_depth(connection, at.id)  # else it says once more what was taken back
            return {"branch": at.id, "to_depth": None if is_end else at.depth, "from_depth": low}

        return self._change(ident, values)

    def _change(self, ident: str, values: Callable[[Connection, Row[Any]], dict[str, Any]]) -> Session:
        """Change columns of a session, which nobody else can change meanwhile."""

        def work(connection: Connection) -> None:
            changed = values(connection, self._row(connection, ident, lock=True))
            if changed:
                connection.execute(update(session).where(session.c.id == ident).values(changed))

        self._database.write(work)
        return self.get(ident)

    def start_once(self, at: Branch, **about: Unpack[SessionFacts]) -> str:
        """Return the id of the first session on a branch; begin one there if there is none."""
        known = select(session.c.id).where(session.c.branch == at.id, session.c.tenant == self._core.tenant)
        with self._database.read() as connection:
            found = connection.execute(known.order_by(session.c.started).limit(1)).scalar()
        about["from_depth"] = 0
        return found or self.start(at, **about).id

    # -- looking up ----------------------------------------------------------------------------------------------------

    def get(self, ident: str) -> Session:
        """Return a session by its id."""
        with self._database.read() as connection:
            return Session.of(self._row(connection, ident))

    def newest(self, *, limit: int | None = None) -> list[Session]:
        """Return sessions, the newest first."""
        query = select(session).where(session.c.tenant == self._core.tenant)
        query = query.order_by(session.c.started.desc(), session.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            return [Session.of(row) for row in connection.execute(query)]

    def resume(self, ident: str) -> Session:
        """Return the newest session of a lineage that has messages; the session itself if none has."""
        with self._database.read() as connection:
            own = self._row(connection, ident)
            full = select(session).join(branch, branch.c.id == session.c.branch).where(branch.c.head_depth > 0)
            line = full.where(session.c.conversation == own.conversation).order_by(session.c.started, session.c.id)
            rows = connection.execute(line).all()
        parents = {row.parent for row in rows}
        ends = [row for row in rows if row.id not in parents]
        return Session.of(ends[-1] if ends else own)

    def entries(self, ident: str) -> list[Entry]:
        """Return the stored messages of a session's own stretch, in order."""
        found = self.get(ident)
        if found.branch is None:
            return []
        at = self._core.branch(found.branch)
        low = found.from_depth if found.from_depth > 0 else -1
        return self._core.entries(at, low, at.depth if found.to_depth is None else found.to_depth)

    # -- changing ------------------------------------------------------------------------------------------------------

    def delete(self, ident: str) -> None:
        """Remove a session; its messages go with the next `vacuum` unless another session needs them."""
        self._database.write(partial(self.delete_in, ident=ident))

    def delete_in(self, connection: Connection, ident: str) -> None:
        """Remove a session, in a transaction that is under way."""
        row = self._row(connection, ident, lock=True)
        connection.execute(update(session).where(session.c.parent == ident).values(parent=row.parent))
        remove(connection, session, session.c.id == ident)

    def system_prompt(self, ident: str) -> str | None:
        """Return the system prompt that a session began with; None if there is none, or it was forgotten."""
        digest = self.get(ident).system_prompt
        if digest is None:
            return None
        with self._database.read() as connection:
            prompt = str(self._core.reader.values(connection, [digest])[digest])
        return None if prompt == PLACEHOLDER else prompt

    # -- inside a transaction ------------------------------------------------------------------------------------------

    def _row(self, connection: Connection, ident: str, *, lock: bool = False) -> Row[Any]:
        query = select(session).where(session.c.id == ident, session.c.tenant == self._core.tenant)
        row = connection.execute(self._database.backend.locked(query) if lock else query).first()
        if row is None:
            raise NotStored(f"there is no session {ident!r}; `everlong sessions list` shows all")
        return row

    def _insert(self, connection: Connection, ident: str, started: float, values: dict[str, Any]) -> None:
        row = {"id": ident, "tenant": self._core.tenant, "started": started, "active": started, "kind": "main"}
        row |= {"conversation": ident, **values}
        totals = (0,) * len(TOTALS)
        held = (*(row.get(name) for name in _COLUMNS), *totals, 0.0)
        self._database.backend.run_later(connection, self._insert_sql, held, changes_all=True)

    def _insert_child(
        self,
        connection: Connection,
        old: Row[Any],
        child: str,
        number: int | None,
        from_depth: int,
        to_depth: int | None = None,
    ) -> None:
        """Insert the session in which a conversation goes on, with everything carried over from its last part."""
        title = None if old.title is None else next_title(connection, old.conversation, old.title)
        place = {"parent": old.id, "branch": number, "from_depth": from_depth, "to_depth": to_depth, "title": title}
        self._insert(connection, child, time.time(), {**{name: getattr(old, name) for name in _CARRIED}, **place})

    def _head_depth(self, connection: Connection, number: int | None) -> int:
        return connection.execute(select(branch.c.head_depth).where(branch.c.id == number)).scalar() or 0

    def with_new_id(self, when: float, work: Callable[[str, Connection], None], wanted: str | None = None) -> str:
        """Run work with new ids until one is free; return it. A wanted id is tried first."""
        for attempt in range(_ID_ATTEMPTS):
            ident = wanted if wanted is not None and attempt == 0 else new_session_id(when)
            try:
                self._database.write(partial(work, ident))
            except TryAgain:
                continue
            return ident
        raise StoreError("no free session id was found; try again")
