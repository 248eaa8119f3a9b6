"""The compaction of a branch: lease, read, engine, view, compare-and-swap.

The lease keeps two processes from paying for the same summary. A view comes into force by compare-and-swap on the
branch's epoch alone; the loser reads again. The engine is any `ContextEngine`: a list goes in, a list comes out, and
the view follows from the two.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, bindparam, select

from everlong.context.engine import ContextEngine
from everlong.context.oversized import Spilling, SpillLimits
from everlong.context.report import CompactionReport
from everlong.errors import NotStored, StoreError
from everlong.model import Message, is_reasoning, parts_of, without_thinking
from everlong.store import leases
from everlong.store.database import TryAgain
from everlong.store.paths import Segment, segments_to
from everlong.store.schema import branch, compaction, turn, view
from everlong.store.sessions import Sessions
from everlong.store.tree import Branch, inherited_view
from everlong.store.views import (
    TAG,
    NewView,
    SystemMessages,
    ViewPiece,
    derive,
    id_in,
    pieces_of,
    put_in_force,
    system_from,
    system_of,
    tagged,
    untagged,
    with_edited_ids,
    write_view,
)

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

WEAK_BELOW = 0.5
"""The quality below which a compaction leaves a degraded view."""
LEASE_SECONDS = 300.0
_BY_HAND = "edit"
"""The engine of a summary that a person edited."""

_VIEW = select(view).where(view.c.id == bindparam("ident"))

Outcome = Literal["compacted", "unchanged", "busy", "lost"]


@dataclass(frozen=True, slots=True)
class Occasion:
    """The occasion of a compaction: reason, session and model; ``profile`` is the window that the view is made for.

    >>> Occasion("threshold", model="gpt-4o").reason
    'threshold'
    """

    reason: str = "manual"
    session: str | None = None
    model: str | None = None
    profile: str = ""


MANUAL = Occasion()
OVERSIZED = Occasion("oversized")
"""The occasion of a message that no window holds."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction of the history; figures that the engine did not tell are None.

    >>> with Store.open("history.db") as store:
    ...     branch = store.record(messages)
    ...     _ = store.compact(branch, ContextCompressor(16_000), Occasion("threshold"))
    ...     newest: Compaction = store.compactions()[-1]
    ...     newest.reason, newest.summarizer
    ('threshold', 'built-in rules')
    """

    id: int
    session: str | None
    child: str | None
    branch: int
    view_id: int | None
    at: float
    reason: str
    engine: str
    model: str | None
    summarizer: str | None
    tokens_before: int | None
    tokens_after: int | None
    messages_before: int
    messages_after: int
    seconds: float
    cost: float | None
    fallback: str | None
    quality: float | None
    report: dict[str, Any] | None

    @property
    def findings(self) -> str:
        """The quality as a person reads it; empty if the engine told none."""
        told = (self.report or {}).get("quality")
        return str(told.get("in_words") or "") if isinstance(told, dict) else ""


class Compacted(NamedTuple):
    """The result of a compaction: the messages to send now, and the new view and history entry, if any.

    ``outcome`` is ``compacted``; ``unchanged`` where the engine found nothing to do; ``busy`` where another process is
    compacting; ``lost`` where another view came into force meanwhile.

    >>> with Store.open("long.db") as store:
    ...     branch = store.record(messages)
    ...     done: Compacted = store.compact(branch, ContextCompressor(16_000))
    ...     done.outcome, len(done.messages) < len(messages)
    ('compacted', True)
    """

    outcome: Outcome
    messages: list[Message]
    view_id: int | None = None
    compaction_id: int | None = None
    is_degraded: bool = False
    """True if a fallback wrote the summary, or it is weak: good enough to go on, worth another try."""
    child: str | None = None
    """The session that goes on from here, if one was to be rolled over."""
    warning: str | None = None
    """The reason why no child session was opened, although one was asked for; the compaction holds all the same."""


class SeenContext(NamedTuple):
    """A branch as it was at one moment: its pieces, its system messages, and the epoch to compare with."""

    pieces: list[ViewPiece]
    system: SystemMessages
    view_id: int | None
    epoch: int
    messages: list[Message]
    sent: list[ViewPiece]
    """The pieces as they are sent: without thinking that belongs to another view."""


def see(core: StoreCore, at: Branch) -> SeenContext:
    """Read the context of a place: the view in force, if it may be used there, and the raw messages."""
    with core.database.read() as connection:
        row = connection.execute(
            select(branch.c.view_id, branch.c.epoch).where(branch.c.id == at.id, branch.c.tenant == core.tenant)
        ).first()
        if row is None:
            raise NotStored(f"there is no branch {at.id} in {core.database.backend.where}")
        shown = view_for(connection, row.view_id, at.depth)
        path = segments_to(connection, at.id, at.depth)
        pieces = pieces_of(connection, core.reader, path, shown, at.depth)
        system = system_of(connection, core.reader, at.id, shown)
        sent = without_stale_thinking(connection, path, pieces, shown)
        messages = [piece.message for piece in sent if piece.message is not None]
    view_id = shown.id if shown is not None else None
    return SeenContext(pieces, system, view_id, row.epoch, [*system.messages(), *messages], sent)


def view_for(connection: Connection, view_id: int | None, depth: int) -> Row[Any] | None:
    """Return the newest view of a chain that may be used at a depth."""
    usable = inherited_view(connection, view_id, depth)
    return None if usable is None else connection.execute(_VIEW, {"ident": usable}).one()


def view_at(connection: Connection, at: Branch) -> Row[Any] | None:
    """Return the view in force at a place."""
    view_id = connection.execute(select(branch.c.view_id).where(branch.c.id == at.id)).scalar()
    return view_for(connection, view_id, at.depth)


def compact(
    core: StoreCore,
    at: Branch,
    engine: ContextEngine,
    occasion: Occasion = MANUAL,
    *,
    lease_seconds: float | None = LEASE_SECONDS,
    roll_over: str | None = None,
    spent: Callable[[], float | None] = lambda: None,
    **options: Any,
) -> Compacted:
    """Have an engine compact a branch, and put the resulting view in force.

    Args:
        core: The store.
        at: The place up to which the branch is compacted.
        engine: The engine.
        occasion: The reason for the history.
        lease_seconds: The duration of the lease by which a compaction keeps others of the same branch away. With None
            there is no lease: the first one to finish holds.
        roll_over: The session that ends here and goes on in a child, in the same transaction.
        spent: Returns what the engine's work has cost.
        options: Options for the engine (``focus_topic``, ``current_tokens``, ``force``, …), as far as it takes them.
    """
    from everlong.context.compressor import ContextCompressor  # noqa: PLC0415 - not loaded by those who only read

    held = None if lease_seconds is None else leases.take(core.database, f"compact:{at.id}", lease_seconds)
    if held is None and lease_seconds is not None:
        return Compacted("busy", see(core, at).messages)
    try:
        seen = see(core, at)
        if callable(getattr(engine, "attach", None)):  # it works with a graph, and knows edited messages by their ids
            seen = seen._replace(pieces=_with_ids(core, at, seen.pieces))
        # Our own engines never change what they are given, so they need no copies.
        given = _tagged_system(seen.system) + tagged(seen.pieces, copies=not isinstance(engine, ContextCompressor))
        started = time.perf_counter()
        options["originals"] = partial(_originals, core, at, seen)
        output = engine.compress(given, **_accepted_options(engine, options))
        seconds = time.perf_counter() - started
        plain = [untagged(message) for message in output]
        before = [*seen.system.messages(), *(piece.message for piece in seen.pieces if piece.message is not None)]
        if plain == before:
            return Compacted("unchanged", seen.messages)
        system, count = system_from(seen.system, plain)
        derived = derive(seen.pieces, output[count:])
        only_covered = bool(getattr(engine, "summarizes_covered_only", False))
        made = NewView(
            derived,
            system,
            derived.cover_depth if only_covered else at.depth,
            occasion.profile,
            state_after(engine),
        )
        facts = {**compaction_values(engine, seconds, occasion), "cost": spent()}
        facts |= {"messages_before": len(seen.messages), "messages_after": len(plain)}
        if callable(estimate := getattr(engine, "estimate_tokens", None)):
            facts |= {"tokens_before": int(estimate(seen.messages)), "tokens_after": int(estimate(plain))}
        if options.get("current_tokens"):
            facts["tokens_before"] = options["current_tokens"]

        def work(connection: Connection) -> tuple[int, int]:
            now = time.time()
            ident = write_view(core, connection, at.id, made, seen.view_id, now)
            if not put_in_force(connection, at.id, ident, seen.epoch):
                raise TryAgain("another view came into force")
            row = {**facts, "tenant": core.tenant, "branch": at.id, "view_id": ident, "ts": now}
            key = connection.execute(compaction.insert().values(row)).inserted_primary_key
            return ident, int(key[0]) if key is not None else 0

        try:
            written = _write_view(core, at, work, roll_over)
        except TryAgain:
            return Compacted("lost", see(core, at).messages)
        return Compacted("compacted", see(core, at).messages, *written[:2], made.state == "degraded", *written[2:])
    finally:
        if held is not None:
            leases.release(core.database, held)


def spill(core: StoreCore, at: Branch, limits: SpillLimits, occasion: Occasion) -> Compacted:
    """Put stubs in the place of messages that no window holds, as a view in force; the store keeps the whole.

    The session goes on, because no word of the conversation was summarized. If another view comes into force meanwhile,
    it is tried once more under that one.
    """
    engine = Spilling(limits, id_in)
    done = compact(core, at, engine, occasion, lease_seconds=None)
    return done if done.outcome != "lost" else compact(core, at, engine, occasion, lease_seconds=None)


def _write_view(
    core: StoreCore, at: Branch, work: Callable[[Connection], tuple[int, int]], roll_over: str | None
) -> tuple[int, int, str | None, str | None]:
    """Write a view; return it, its entry in the history, the child session, and what kept that from being opened."""
    if roll_over is None:
        return *core.database.write(work), None, None
    made, sessions = (0, 0), Sessions(core)

    def both(child: str, connection: Connection) -> None:
        nonlocal made
        made = work(connection)
        sessions.go_on(connection, roll_over, child, at, compaction_id=made[1])

    try:
        child = sessions.with_new_id(time.time(), both)
    except StoreError as error:  # a session that cannot go on must not cost the turn its compaction
        return *core.database.write(work), None, f"session {roll_over} was not continued: {error}"
    return *made, child, None


def tagged_context(core: StoreCore, at: Branch) -> list[Message]:
    """Return the messages to send, each with its id, as an engine is given them."""
    seen = see(core, at)
    return _tagged_system(seen.system) + tagged(_with_ids(core, at, seen.pieces), copies=False)


def _with_ids(core: StoreCore, at: Branch, pieces: list[ViewPiece]) -> list[ViewPiece]:
    with core.database.read() as connection:
        return with_edited_ids(connection, segments_to(connection, at.id, at.depth), pieces)


def undo(core: StoreCore, at: Branch) -> bool:
    """Take the view in force away, so that the one before it holds; return False if none is in force."""

    def work(connection: Connection) -> bool:
        row = connection.execute(
            core.database.backend.locked(select(branch.c.view_id, branch.c.epoch).where(branch.c.id == at.id))
        ).first()
        if row is None:
            raise NotStored(f"there is no branch {at.id} in {core.database.backend.where}")
        if row.view_id is None:
            return False
        prev = connection.execute(select(view.c.prev).where(view.c.id == row.view_id)).scalar()
        return put_in_force(connection, at.id, inherited_view(connection, prev, at.depth), row.epoch)

    return core.database.write(work)


def _tagged_system(system: SystemMessages) -> list[Message]:
    return [{**message, TAG: f"system{place}"} for place, message in enumerate(system.messages())]


def _originals(core: StoreCore, at: Branch, seen: SeenContext) -> list[Message]:
    """Return the messages that the view in force covers, as they were said; none without a view.

    None either if a person wrote the summary in force: it is carried on, and not made anew.
    """
    with core.database.read() as connection:
        shown = view_for(connection, seen.view_id, at.depth)
        by = select(compaction.c.engine).where(compaction.c.view_id == seen.view_id, compaction.c.tenant == core.tenant)
        if shown is None or connection.execute(by).scalar() == _BY_HAND:
            return []
        path = segments_to(connection, at.id, at.depth)
        return [entry.message for entry in core.reader.entries(connection, path, 0, shown.cover_depth)]


def _accepted_options(engine: ContextEngine, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the engine's ``compress`` takes; an engine may know fewer than we do."""
    known = inspect.signature(engine.compress).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()):
        return options
    return {name: value for name, value in options.items() if name in known}


# -- the history -------------------------------------------------------------------------------------------------------


def state_after(engine: ContextEngine) -> Literal["good", "degraded"]:
    """Return the state of the view that an engine just made: degraded by a fallback or by low quality."""
    if getattr(engine, "last_fault", None) is not None:
        return "degraded"
    report = getattr(engine, "last_report", None)
    if not isinstance(report, CompactionReport):
        return "good"
    is_weak = report.quality is not None and report.quality.score < WEAK_BELOW
    return "degraded" if report.fallback_reason is not None or is_weak else "good"


def compaction_values(engine: ContextEngine, seconds: float, occasion: Occasion) -> dict[str, Any]:
    """Return the columns of a compaction that just happened."""
    report = getattr(engine, "last_report", None)
    values: dict[str, Any] = {
        "session": occasion.session,
        "reason": occasion.reason,
        "engine": engine.name,
        "model": occasion.model,
        "seconds": seconds,
        "tokens_after": engine.last_prompt_tokens or None,
    }
    if isinstance(report, CompactionReport):
        values |= {
            "summarizer": report.summarizer,
            "tokens_before": report.tokens_before,
            "tokens_after": report.tokens_after,
            "fallback": report.fallback_reason,
            "quality": report.quality.score if report.quality else None,
            "report": json.dumps(report.to_dict(), default=str),
        }
    fault = getattr(engine, "last_fault", None)
    if isinstance(fault, str):  # of an engine that had to be helped
        values["fallback"] = f"{engine.name} {fault}"
    return values


def history(core: StoreCore, *, session: str | None = None, branch: int | None = None) -> list[Compaction]:
    """Return the compactions of a session, of a branch, or of all, oldest first."""
    query = select(compaction).where(compaction.c.tenant == core.tenant).order_by(compaction.c.ts, compaction.c.id)
    if session is not None:
        query = query.where(compaction.c.session == session)
    if branch is not None:
        query = query.where(compaction.c.branch == branch)
    with core.database.read() as connection:
        return [compaction_of(row) for row in connection.execute(query)]


def repeated_views(core: StoreCore) -> dict[int, int]:
    """Return for each view that was carried over to a fork the view of another branch that it repeats."""
    query = select(view.c.id, view.c.origin).where(view.c.tenant == core.tenant, view.c.origin.is_not(None))
    with core.database.read() as connection:
        return {row.id: row.origin for row in connection.execute(query)}


def compaction_of(row: Row[Any]) -> Compaction:
    """Return a row of the history as a value."""
    values = dict(row._mapping)  # noqa: SLF001 - the documented way to a row's names
    values["at"] = values.pop("ts")
    values.pop("tenant")
    values["report"] = json.loads(values["report"]) if values["report"] else None
    return Compaction(**values)


# -- thinking ----------------------------------------------------------------------------------------------------------


def without_stale_thinking(
    connection: Connection, path: Sequence[Segment], pieces: Sequence[ViewPiece], shown: Row[Any] | None
) -> list[ViewPiece]:
    """Return the pieces without the thinking that a model did under another view than the one in force."""
    if not any(_carries_thinking(piece) for piece in pieces):
        return list(pieces)
    rows = connection.execute(
        select(turn.c.echo_node, turn.c.view_id).where(
            turn.c.branch.in_([part.branch for part in path]), turn.c.echo_node.is_not(None)
        )
    ).all()
    made_under = {bytes(row.echo_node).hex(): row.view_id for row in rows}
    view_id, since = (None, None) if shown is None else (shown.id, shown.ts)

    def is_stale(piece: ViewPiece) -> bool:
        if piece.tag in made_under:
            return bool(made_under[piece.tag] != view_id)
        return since is not None and piece.ts <= since

    return [
        piece._replace(message=without_thinking(piece.message))
        if piece.message is not None and _carries_thinking(piece) and is_stale(piece)
        else piece
        for piece in pieces
    ]


def _carries_thinking(piece: ViewPiece) -> bool:
    message = piece.message
    if not piece.is_raw or message is None or message.get("role") != "assistant":
        return False
    return isinstance(message.get("content"), list) and any(map(is_reasoning, parts_of(message)))
