"""The evidence of compactions: prompts, answers and figures, one compressed row for each compaction.

It repeats words of the conversation, so it goes wherever those go: with a forgotten message, a deleted session, or a
branch that is cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, select

from everlong.errors import StoreDamaged
from everlong.store.content import blob, encoded, value_of
from everlong.store.database import in_batches
from everlong.store.schema import compaction, evidence, view

if TYPE_CHECKING:
    from everlong.context.exchanges import CompactionEvidence
    from everlong.store.core import StoreCore

LARGEST = 65_536
"""Packed bytes of one compaction's evidence; the oldest exchanges are left out until the rest fits."""


def evidence_of(engine: object) -> CompactionEvidence | None:
    """Return the evidence that an engine has of its last compaction; None for an engine that keeps none."""
    from everlong.context.exchanges import CompactionEvidence  # noqa: PLC0415 - not loaded by those who only read

    found = getattr(engine, "last_evidence", None)
    return found if isinstance(found, CompactionEvidence) else None


def write_evidence(
    connection: Connection, tenant: str, ident: int, found: CompactionEvidence | None, now: float
) -> None:
    """Store the evidence of a compaction, if there is any, in the transaction that stores the compaction."""
    if found is None:
        return
    held = blob(tenant, encoded(found.to_dict()))
    while len(held.bytes) > LARGEST and found.exchanges:
        found = replace(found, exchanges=found.exchanges[1:])
        held = blob(tenant, encoded(found.to_dict()))
    values = {"compaction": ident, "tenant": tenant, "bytes": held.bytes, "codec": held.codec, "ts": now}
    connection.execute(evidence.insert().values(values))


def read_evidence(core: StoreCore, idents: Sequence[int]) -> dict[int, CompactionEvidence]:
    """Return the evidence of compactions, by their ids; those that have none are left out."""
    from everlong.context.exchanges import CompactionEvidence  # noqa: PLC0415 - not loaded by those who only write

    found: dict[int, CompactionEvidence] = {}
    with core.database.read() as connection:
        for some in in_batches(list(idents)):
            mine = select(evidence).where(evidence.c.tenant == core.tenant, evidence.c.compaction.in_(some))
            for row in connection.execute(mine):
                found[row.compaction] = CompactionEvidence.from_dict(value_of(row.bytes, row.codec))
    return found


def drop_evidence(connection: Connection, views: Iterable[int]) -> None:
    """Delete the evidence of the compactions that made some views."""
    for some in in_batches(list(views)):
        made = select(compaction.c.id).where(compaction.c.view_id.in_(some))
        connection.execute(delete(evidence).where(evidence.c.compaction.in_(made)))


def check_evidence(connection: Connection, tenant: str) -> Iterator[str]:
    """Yield what is wrong with the evidence of a tenant: unreadable, or kept although its words are gone."""
    made = select(compaction.c.id).where(compaction.c.id == evidence.c.compaction)
    shown = made.join(view, view.c.id == compaction.c.view_id).where(view.c.state != "void")
    lost = select(evidence.c.compaction).where(evidence.c.tenant == tenant, ~shown.exists())
    for ident in connection.execute(lost).scalars():
        yield f"the evidence of compaction {ident} is kept, and the messages behind it are gone or forgotten"
    rows = select(evidence).where(evidence.c.tenant == tenant).execution_options(yield_per=200)
    for row in connection.execute(rows):
        try:
            value_of(row.bytes, row.codec)
        except StoreDamaged as error:
            yield f"the evidence of compaction {row.compaction} cannot be read: {error}"
