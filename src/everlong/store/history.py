"""The compaction history: for each one when and why, who did it, what it cost and how good it is.

Reads the engine's report where it has one, and only counts where it has none. Knows the table and no session logic.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Row, select

from everlong.context.engine import ContextEngine
from everlong.context.report import CompactionReport
from everlong.model import Message
from everlong.store.schema import compaction, view

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


WEAK_BELOW = 0.5
"""A compaction of lower quality leaves a degraded view."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """Why a compaction happens, in which session, for which model; ``profile`` is the window that the view is for."""

    reason: str = "manual"
    session: str | None = None
    model: str | None = None
    profile: str = ""


MANUAL = Occasion()


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction of the history; figures that the engine did not tell are None."""

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


def state_after(engine: ContextEngine) -> Literal["good", "degraded"]:
    """The state of the view that an engine just made: degraded by a fallback or by low quality."""
    if getattr(engine, "last_fault", None) is not None:
        return "degraded"
    report = getattr(engine, "last_report", None)
    if not isinstance(report, CompactionReport):
        return "good"
    is_weak = report.quality is not None and report.quality.score < WEAK_BELOW
    return "degraded" if report.fallback_reason is not None or is_weak else "good"


def size_of(engine: ContextEngine, messages: Sequence[Message], when: Literal["before", "after"]) -> dict[str, Any]:
    """How much is sent, with what is pinned and, where the engine knows them, with the schemas of tools."""
    estimate = getattr(engine, "estimate_tokens", None)
    sizes = {f"messages_{when}": len(messages)}
    return sizes if estimate is None else {**sizes, f"tokens_{when}": int(estimate(messages))}


def compaction_values(engine: ContextEngine, seconds: float, occasion: Occasion) -> dict[str, Any]:
    """The columns of a compaction that just happened."""
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
    """The compactions of a session, of a branch, or of all, oldest first."""
    query = select(compaction).where(compaction.c.tenant == core.tenant).order_by(compaction.c.ts, compaction.c.id)
    if session is not None:
        query = query.where(compaction.c.session == session)
    if branch is not None:
        query = query.where(compaction.c.branch == branch)
    with core.database.read() as connection:
        return [compaction_of(row) for row in connection.execute(query)]


def repeated_views(core: StoreCore) -> dict[int, int]:
    """For each view that a fork took over, the view of another branch that it repeats."""
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
