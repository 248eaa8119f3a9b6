"""The compactions of a conversation: the list, and one of them with all that is known about it.

What was kept, cleared, shortened or summarized is a fact of the stored view; nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, select

from everlong.agent.accounting import AccountPrices, Effects, Estimate, Tokens
from everlong.context.literals import is_acknowledgement, is_summary, rules_block, summary_body
from everlong.context.oversized import is_stub
from everlong.errors import NotStored
from everlong.model import CLEARED_RESULT, Message, text_of
from everlong.store.covered import is_undone, standing_views
from everlong.store.database import in_batches
from everlong.store.evidence import read_evidence
from everlong.store.schema import branch, view
from everlong.store.turn_figures import TurnFigures, turns_under_view
from everlong.store.turns import Turn
from everlong.store.views import ViewItem, items_of

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context.exchanges import SummaryExchange
    from everlong.store import Compaction, Store
    from everlong.store.shown_path import ShownPath

__all__ = [
    "ChangedRange",
    "CompactionPage",
    "CompactionRow",
    "Payback",
    "SummaryLine",
    "compaction_rows",
    "read_compaction",
    "read_paybacks",
    "summary_lines",
    "summary_text",
]

Became = Literal["kept", "cleared", "shortened", "stub", "summary", "told anew", "left out"]

_MOST_TURNS = 500
"""Turns after a compaction that are looked at for what it saved."""
_MOST_PAYBACKS, _SHORT_LOOK = 12, 100
"""The newest compactions of a list of which is told whether they paid, and the turns that are looked at for each."""
_MOST_RANGES = 400
_LONGEST = 6_000
_KEY_SECTION = "Critical Context"


@dataclass(frozen=True, slots=True)
class CompactionRow:
    """One compaction of a history."""

    number: int
    """Its number in the history of the conversation, from 1."""
    done: Compaction
    turn: int | None
    """The last turn that it covers."""
    is_in_force: bool
    is_undone: bool
    """True if it was taken back, so that no later request was sent under it."""


class SummaryLine(NamedTuple):
    """One line of a summary; ``number`` names it in addresses."""

    number: int
    kind: Literal["heading", "item", "text"]
    text: str
    section: str
    is_key: bool
    """True for a line of the original, word for word."""


class ChangedRange(NamedTuple):
    """A stretch of the conversation, and what is sent in its place."""

    became: Became
    first_turn: int | None
    last_turn: int | None
    messages: int
    text: str
    """The words in its place; empty for messages that are kept or left out."""


@dataclass(frozen=True, slots=True)
class Payback:
    """The cost and the savings of a compaction so far; amounts are None where no price is known."""

    turns: int
    """Turns that were sent under it."""
    unsent_tokens: int
    rewritten_tokens: int
    spent: Decimal | None
    """US dollars for the summary and for what had to be sent anew."""
    saved: Decimal | None
    paid_back_after: int | None
    """The number of turns after which it had saved what it cost; None if it has not yet."""
    is_partial: bool
    """True if it has been in force for more turns than were looked at."""


@dataclass(frozen=True, slots=True)
class CompactionPage:
    """One compaction."""

    row: CompactionRow
    count: int
    """The compactions of the conversation."""
    ranges: tuple[ChangedRange, ...]
    hidden_ranges: int
    lines: tuple[SummaryLine, ...]
    rules: tuple[str, ...]
    """The user's standing rules, which stand after the summary."""
    report: dict[str, Any]
    problems: tuple[str, ...]
    invented: tuple[str, ...]
    payback: Payback | None
    exchanges: tuple[SummaryExchange, ...]
    """What models were asked for the summary, and answered; oldest first."""
    asked: int
    """The number of all questions, also those that are not kept."""
    has_evidence: bool
    """False for a compaction from before evidence was kept, of an engine that keeps none, or that was forgotten."""
    can_undo: bool
    is_void: bool
    """True if its words were forgotten since."""


def compaction_rows(store: Store, ident: str) -> list[CompactionRow]:
    """Return the compactions of a conversation, oldest first."""
    found = store.conversations.compactions(ident)
    path = store.conversations.path(ident)
    views = _views(store, [one.view_id for one in found if one.view_id is not None])
    in_force, standing = _in_force(store, path), standing_views(store, path)
    with store.database.read() as connection:
        covers = [(one.branch, views[one.view_id].cover_depth) if one.view_id in views else None for one in found]
        turns = [None if cover is None else path.turn_at(connection, *cover) for cover in covers]
    return [
        CompactionRow(number, one, turn, one.view_id in in_force, is_undone(one, standing))
        for number, (one, turn) in enumerate(zip(found, turns, strict=True), 1)
    ]


def read_compaction(store: Store, settings: Settings, ident: str, number: int) -> CompactionPage:
    """Return one compaction of a conversation by its number, from 1."""
    rows = compaction_rows(store, ident)
    if not 1 <= number <= len(rows):
        raise NotStored(f"conversation {ident!r} has no compaction {number}; it has {len(rows)}")
    row = rows[number - 1]
    done = row.done
    path = store.conversations.path(ident)
    items, state = _items(store, done.view_id)
    with store.database.read() as connection:
        ranges = list(_ranges(connection, items, path, done.branch))
    quality = _quality(done)
    evidence = read_evidence(store, [done.id]).get(done.id)
    return CompactionPage(
        row=row,
        count=len(rows),
        ranges=tuple(ranges[:_MOST_RANGES]),
        hidden_ranges=max(0, len(ranges) - _MOST_RANGES),
        lines=tuple(summary_lines(summary_text(items))),
        rules=tuple(_rules(items)),
        report=done.report or {},
        problems=_texts(quality.get("problems")),
        invented=_texts(quality.get("invented")),
        payback=None if done.view_id is None else _payback(store, AccountPrices(settings), done, path, _MOST_TURNS),
        exchanges=() if evidence is None else evidence.exchanges,
        asked=0 if evidence is None else evidence.asked,
        has_evidence=evidence is not None,
        can_undo=row.is_in_force,
        is_void=state == "void",
    )


def summary_lines(text: str) -> Iterator[SummaryLine]:
    """Yield the lines of a summary that say something, numbered from 1."""
    section, number = "", 0
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            continue
        number += 1
        if line.startswith("#"):
            section = line.lstrip("#").strip()
            yield SummaryLine(number, "heading", section, section, is_key=False)
            continue
        is_item = line.startswith(("- ", "* ", "• "))
        words = line[2:].strip() if is_item else line
        is_key = section == _KEY_SECTION and raw[:1].isspace()
        yield SummaryLine(number, "item" if is_item else "text", words, section, is_key)


# -- the parts of a page -----------------------------------------------------------------------------------------------


def _views(store: Store, idents: Sequence[int]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    columns = (view.c.id, view.c.cover_depth, view.c.state, view.c.origin)
    with store.database.read() as connection:
        for some in in_batches(list(idents)):
            rows = connection.execute(select(*columns).where(view.c.id.in_(some), view.c.tenant == store.tenant))
            found |= {row.id: row for row in rows}
    return found


def _in_force(store: Store, path: ShownPath) -> frozenset[int]:
    """Return the view in force at the end of a conversation, and the one that it repeats."""
    if not path.runs:
        return frozenset()
    with store.database.read() as connection:
        query = select(branch.c.view_id).where(branch.c.id == path.runs[-1].branch, branch.c.tenant == store.tenant)
        current = connection.execute(query).scalar()
        if current is None:
            return frozenset()
        origin = connection.execute(select(view.c.origin).where(view.c.id == current)).scalar()
    return frozenset({current} if origin is None else {current, origin})


def _items(store: Store, view_id: int | None) -> tuple[list[ViewItem], str]:
    if view_id is None:
        return [], ""
    with store.database.read() as connection:
        state = connection.execute(
            select(view.c.state).where(view.c.id == view_id, view.c.tenant == store.tenant)
        ).scalar()
        return ([], "") if state is None else (items_of(connection, store.reader, view_id), str(state))


def _ranges(connection: Connection, items: Sequence[ViewItem], path: ShownPath, number: int) -> Iterator[ChangedRange]:
    """Yield the stretches of the conversation that a view covers, and what stands in the place of each."""
    for item in items:
        first, last = path.turns_within(connection, number, item.from_depth, item.to_depth)
        count = 0 if first is None or last is None else last - first + 1
        text = "" if item.message is None else text_of(item.message)[:_LONGEST]
        yield ChangedRange(_became(item), first, last, count, text)


def _became(item: ViewItem) -> Became:
    if item.kind == "keep":
        return "kept"
    if item.message is None:
        return "left out"
    if item.kind == "edit":
        if is_stub(item.message):
            return "stub"
        return "cleared" if text_of(item.message) == CLEARED_RESULT else "shortened"
    return "summary" if is_summary(item.message) else "told anew"


def _literals(items: Sequence[ViewItem]) -> Iterator[Message]:
    for item in items:
        if item.kind == "new" and item.message is not None and not is_acknowledgement(item.message):
            yield item.message


def summary_text(items: Sequence[ViewItem]) -> str:
    """Return the words of the summaries among the items of a view."""
    told = [summary_body(message) for message in _literals(items) if is_summary(message)]
    if not told:  # an engine of somebody else, whose summaries look as they like
        told = [text_of(message) for message in _literals(items)]
    return "\n\n".join(told)


def _rules(items: Sequence[ViewItem]) -> Iterator[str]:
    for message in _literals(items):
        for line in rules_block(message).splitlines()[1:]:
            yield line.removeprefix("- ").strip()


def _quality(done: Compaction) -> dict[str, Any]:
    told = (done.report or {}).get("quality")
    return told if isinstance(told, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else ()


def read_paybacks(store: Store, settings: Settings, ident: str) -> dict[int, Payback]:
    """Return whether the newest compactions of a conversation paid, by their numbers; a short look at each."""
    path, prices = store.conversations.path(ident), AccountPrices(settings)
    numbered = list(enumerate(store.conversations.compactions(ident), 1))[-_MOST_PAYBACKS:]
    return {
        number: _payback(store, prices, done, path, _SHORT_LOOK)
        for number, done in numbered
        if done.view_id is not None
    }


def _payback(store: Store, prices: AccountPrices, done: Compaction, path: ShownPath, most: int) -> Payback:
    """Return what the first turns since a compaction have paid for it and saved by it."""
    assert done.view_id is not None  # noqa: S101 - asked before
    turns = turns_under_view(store, path, done.view_id, done.branch, most + 1)
    effects = Effects([done], {})
    spent, saved = Decimal(str(done.cost or 0.0)), Decimal(0)
    unsent = rewritten = counted = 0
    after: int | None = None
    has_prices = True
    for one in turns[: most + 1]:
        tokens = Tokens.of(one.usage)
        rates = prices.of(one.model, tokens.prompt, one.at)
        anew, spared = effects.take_turn(_as_turn(one), tokens, rates) if one.usage else (Estimate(), Estimate())
        if one.view_id != done.view_id:
            continue
        counted += 1
        has_prices &= rates is not None
        spent, saved = spent + anew.cost, saved + spared.cost
        unsent, rewritten = unsent + spared.tokens, rewritten + anew.tokens
        if after is None and saved > 0 and saved >= spent:
            after = counted
    return Payback(
        turns=counted,
        unsent_tokens=unsent,
        rewritten_tokens=rewritten,
        spent=spent if has_prices else None,
        saved=saved if has_prices else None,
        paid_back_after=after if has_prices else None,
        is_partial=counted >= most,
    )


def _as_turn(one: TurnFigures) -> Turn:
    ended = None if one.seconds is None else one.at + one.seconds
    return Turn(one.id, one.session, one.branch, b"", 0, one.view_id, one.model, one.at, usage=one.usage, ended=ended)
