"""Forgetting by words alone: titles and system prompts that hold them, which are no messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, or_, select, update

from everlong.store.content import value_of
from everlong.store.database import in_batches
from everlong.store.objects import sweep_objects
from everlong.store.schema import branch, content, session as sessions, turn, view
from everlong.store.session_log import forget_in_logs
from everlong.store.tombstones import stub_of_prompt

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


def forget_titles(core: StoreCore, words: str) -> int:
    """Delete titles that hold some words, in whatever case; return how many conversations had one."""

    def work(connection: Connection) -> int:
        titled = select(sessions.c.id, sessions.c.conversation, sessions.c.title).where(
            sessions.c.tenant == core.tenant, sessions.c.title.is_not(None)
        )
        found = [row for row in connection.execute(titled) if words.casefold() in row.title.casefold()]
        for part in in_batches([row.id for row in found]):
            connection.execute(update(sessions).where(sessions.c.id.in_(part)).values(title=None))
        return len({row.conversation for row in found})

    return core.database.write(work)


def forget_prompts(core: StoreCore, words: str) -> int:
    """Forget system prompts, with their tools, that hold some words; return how many did."""
    columns = (branch.c.preamble, view.c.preamble, turn.c.preamble, sessions.c.preamble, sessions.c.system_prompt)
    sought = words.casefold()

    def work(connection: Connection) -> tuple[int, set[str]]:
        used: set[bytes] = set()
        for column in columns:
            query = select(column).where(column.table.c.tenant == core.tenant, column.is_not(None)).distinct()
            used |= {bytes(digest) for digest in connection.execute(query).scalars()}
        gone: list[bytes] = []
        for part in in_batches(sorted(used)):
            live = select(content).where(content.c.digest.in_(part), content.c.state == "live")
            for row in connection.execute(live).all():
                value = value_of(row.bytes, row.codec)
                if any(sought in text.casefold() for text in all_texts(value)):
                    values = {"bytes": None, "codec": 0, "state": "forgotten", "stub": stub_of_prompt(value)}
                    connection.execute(update(content).where(content.c.seq == row.seq).values(values))
                    gone.append(bytes(row.digest))
        told: set[str] = set()
        for part in in_batches(gone):
            had = or_(sessions.c.system_prompt.in_(part), sessions.c.preamble.in_(part))
            told |= set(connection.execute(select(sessions.c.id).where(had)).scalars())
        return len(gone), told

    count, told = core.database.write(work)
    if count:
        forget_in_logs(core, set(), told)
        sweep_objects(core.database)
    return count


def all_texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield str(name)
            yield from all_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from all_texts(one)
