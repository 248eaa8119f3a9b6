"""The check of a store: every hash is derived again, every reference followed, each problem told in a sentence.

The database's own check comes first, with the check for a lost end of the file. Reads only, and goes through the tables
in the order of their keys, so it takes little memory however large the store is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Row, Select, Table, and_, exists, func, or_, select
from sqlalchemy.exc import DatabaseError, DBAPIError

from everlong.errors import StoreDamaged
from everlong.model import HashChain
from everlong.model.identity import Side
from everlong.store.content import decoded, digest_of, unpacked
from everlong.store.schema import (
    branch,
    content,
    node,
    session,
    vector,
    view,
    view_item,
)
from everlong.store.summaries import check_frontiers, check_summaries
from everlong.store.tombstones import read_stub
from everlong.store.upkeep.references import REFERENCES
from everlong.store.views import ViewItem, problems_of

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

MOST_PROBLEMS = 1_000
"""The most problems that are listed; a store with more needs its backup, not a longer list."""


class Verified(NamedTuple):
    """The result of a check: how much was read, and what is wrong."""

    messages: int
    contents: int
    branches: int
    views: int
    problems: list[str]
    remarks: list[str]
    """Notes that are worth knowing and are no problems."""


def verify(core: StoreCore, progress: Callable[[int, int], None] | None = None) -> Verified:
    """Check everything of a tenant; ``progress`` is called with the number of messages done and of all."""
    problems, remarks = core.database.backend.losses()

    def note(found: Iterator[str]) -> None:
        try:
            for one in islice(found, MOST_PROBLEMS - len(problems)):
                problems.append(one)
        except Exception as error:
            if isinstance(error, DBAPIError) and not isinstance(core.database.backend.translated(error), StoreDamaged):
                raise
            problems.append(f"a table cannot be read to its end: {error}")

    with core.database.read() as connection:
        tenant = core.tenant
        sizes = [_count_rows(connection, table, tenant) for table in (node, content, branch, view)]
        note(core.database.backend.problems(connection))
        note(_check_contents(connection, tenant))
        note(_check_nodes(connection, tenant, sizes[0], progress))
        note(_check_branches(connection, tenant))
        note(_check_views(connection, tenant))
        note(check_summaries(connection, tenant))
        note(check_frontiers(connection, core.reader, tenant))
        note(_check_references(connection, tenant))
        note(_check_conversations(connection, tenant))
        note(_check_vectors(connection, tenant))
    return Verified(sizes[0], sizes[1], sizes[2], sizes[3], problems, remarks)


def _count_rows(connection: Connection, table: Table, tenant: str) -> int:
    try:
        counted = select(func.count()).select_from(table).where(table.c.tenant == tenant)
        return connection.execute(counted).scalar_one()
    except DatabaseError:  # told where it is read through
        return 0


def _check_contents(connection: Connection, tenant: str) -> Iterator[str]:
    for row in _stream(connection, select(content).where(content.c.tenant == tenant)):
        name = f"content {bytes(row.digest).hex()}"
        if row.state == "forgotten":
            if row.bytes is not None:
                yield f"{name} is forgotten and still has its words"
            elif row.stub is None:
                yield f"{name} is forgotten and has no trace of its shape"
        elif row.state != "live" or row.bytes is None:
            yield f"{name} has no bytes (its state is {row.state!r})"
        else:
            try:
                if digest_of(tenant, unpacked(row.bytes, row.codec)) != bytes(row.digest):
                    yield f"{name} does not hash to its name"
            except StoreDamaged as error:
                yield f"{name}: {error}"


def _check_nodes(
    connection: Connection, tenant: str, total: int, progress: Callable[[int, int], None] | None
) -> Iterator[str]:
    chain = HashChain(tenant)
    above = node.alias()
    joined = (
        select(
            node,
            content.c.bytes,
            content.c.codec,
            content.c.state,
            content.c.stub,
            content.c.seq.label("held"),
            above.c.depth.label("parent_depth"),
            branch.c.root,
        )
        .select_from(node)
        .outerjoin(branch, branch.c.id == node.c.branch)
        .outerjoin(content, content.c.digest == node.c.digest)
        .outerjoin(above, above.c.id == node.c.parent)
        .where(node.c.tenant == tenant)
    )
    for done, row in enumerate(_stream(connection, joined), 1):
        yield from _check_node(chain, row)
        if progress is not None and (done % 1_000 == 0 or done == total):
            progress(done, total)


def _check_node(chain: HashChain, row: Row[Any]) -> Iterator[str]:
    name = f"message {bytes(row.id).hex()}"
    if row.held is None:
        yield f"{name} has no content"
        return
    if row.parent is not None and row.parent_depth is None:
        yield f"{name} follows {bytes(row.parent).hex()}, which is not there"
        return
    root = chain.root().id
    first = root if row.root is None else bytes(row.root)
    try:
        blocks = _blocks(chain, row)
        found = _follow(chain, bytes(row.parent) if row.parent is not None else first, blocks)
    except (StoreDamaged, ValueError, KeyError, TypeError) as error:
        yield f"{name} cannot be read: {error}"
        return
    depth = (row.parent_depth or 0) + len(blocks)
    if found != bytes(row.id):
        yield f"{name} does not follow from its content and {'the beginning' if row.parent is None else 'its parent'}"
    elif depth != row.depth:
        yield f"{name} is at depth {row.depth} and should be at {depth}"
    # Stateless requests find the first message by its words alone.
    if row.parent is None and row.mark is not None and _follow(chain, root, blocks) != bytes(row.mark):
        yield f"{name} has a mark that does not follow from its words"


def _follow(chain: HashChain, ident: bytes, blocks: Sequence[tuple[Side, bytes]]) -> bytes:
    for side, block in blocks:
        ident = chain.step(ident, side, block)
    return ident


def _blocks(chain: HashChain, row: Row[Any]) -> list[tuple[Side, bytes]]:
    if row.state == "forgotten":
        return [("a" if proof[0] == "a" else "u", bytes.fromhex(proof[1:])) for proof in read_stub(row.stub)[1]]
    message = decoded(unpacked(row.bytes, row.codec))
    side: Side = "a" if message.get("role") == "assistant" else "u"
    return [(side, block) for block in chain.trace([message]).blocks]


def _check_branches(connection: Connection, tenant: str) -> Iterator[str]:
    head, parent = node.alias(), branch.alias()
    deepest = select(func.max(node.c.depth)).where(node.c.branch == branch.c.id).scalar_subquery()
    query = (
        select(
            branch,
            head.c.depth.label("found_depth"),
            parent.c.head_depth.label("parent_head"),
            parent.c.root.label("parent_root"),
            deepest.label("deepest"),
        )
        .select_from(branch)
        .outerjoin(head, head.c.id == branch.c.head)
        .outerjoin(parent, parent.c.id == branch.c.parent)
        .where(branch.c.tenant == tenant)
    )
    for row in connection.execute(query):
        name = f"branch {row.id}"
        if row.head_depth != (row.found_depth or 0):
            yield f"{name} ends at a message that is not there"
        elif row.deepest is not None and row.deepest != row.head_depth:
            yield f"{name} has messages down to depth {row.deepest} and says that it ends at {row.head_depth}"
        if row.parent is not None and row.parent_head is None:
            yield f"{name} forks from branch {row.parent}, which is not there"
        elif row.parent is not None and row.parent_head < row.fork_depth:
            yield f"{name} forks at depth {row.fork_depth}, where branch {row.parent} has already ended"
        elif row.parent is not None and row.root != row.parent_root:
            yield f"{name} has another root than branch {row.parent}, from which it forks"
    yield from _check_parents(connection, tenant)


def _check_parents(connection: Connection, tenant: str) -> Iterator[str]:
    """Yield messages whose parent is on a branch from which theirs does not come."""
    above = node.alias()
    own = branch.c.parent.is_not(None)
    wrong = (
        select(node.c.id, node.c.branch)
        .join(branch, branch.c.id == node.c.branch, isouter=True)
        .join(above, above.c.id == node.c.parent, isouter=True)
        .where(
            node.c.tenant == tenant,
            or_(
                branch.c.id.is_(None),
                and_(node.c.parent.is_(None), branch.c.fork_depth != 0),
                and_(above.c.branch != node.c.branch, or_(~own, above.c.branch != branch.c.parent)),
                and_(above.c.branch != node.c.branch, above.c.depth != branch.c.fork_depth),
            ),
        )
    )
    for row in connection.execute(wrong):
        yield f"message {bytes(row.id).hex()} is on branch {row.branch}, which does not lead to it"


def _check_views(connection: Connection, tenant: str) -> Iterator[str]:
    for row in connection.execute(select(view).where(view.c.tenant == tenant)).all():
        name = f"view {row.id}"
        if row.state not in {"good", "degraded", "void"}:
            yield f"{name} has the unknown state {row.state!r}"
        if row.cover_depth > row.saw_depth:
            yield f"{name} covers depth {row.cover_depth}, though it was made with depth {row.saw_depth} in sight"
        items = connection.execute(select(view_item).where(view_item.c.view == row.id).order_by(view_item.c.ord)).all()
        shaped = [
            ViewItem(item.kind, item.from_depth, item.to_depth, {} if item.digest is not None else None)
            for item in items
        ]
        if row.state != "void":  # whose items have lost their words
            yield from (f"{name}: {problem}" for problem in problems_of(shaped, row.cover_depth))


def _check_references(connection: Connection, tenant: str) -> Iterator[str]:
    """Check that everything that names a content, message, view, branch or session names one that exists."""
    for one in REFERENCES:
        if one.owner is None:
            continue
        target = one.target.table.alias().c[one.target.name] if one.column.table is one.target.table else one.target
        is_lost = one.column.is_not(None), ~exists().where(target == one.column).correlate(one.column.table)
        query = select(one.owner).where(*is_lost)
        if one.column.table is view_item:  # whose tenant is that of its view
            query = query.join(view, view.c.id == view_item.c.view).where(view.c.tenant == tenant)
        else:
            query = query.where(one.column.table.c.tenant == tenant)
        if one.is_placed is not None:
            query = query.where(one.is_placed)
        for (name,) in connection.execute(query):
            shown = bytes(name).hex() if isinstance(name, bytes | memoryview) else name
            yield f"{one.sentence.format(shown)} not there"


def _check_conversations(connection: Connection, tenant: str) -> Iterator[str]:
    """Check that the parts of a conversation are one chain: each continues another one, only the first none."""
    parent = session.alias()
    query = (
        select(session.c.id, session.c.conversation, session.c.parent, parent.c.conversation.label("of_parent"))
        .select_from(session)
        .outerjoin(parent, parent.c.id == session.c.parent)
        .where(session.c.tenant == tenant)
        .order_by(session.c.started, session.c.id)
    )
    rows = connection.execute(query).all()
    known = {row.id for row in rows}
    beginnings: dict[str, str] = {}
    going_on: dict[str, str] = {}
    for row in rows:
        name = f"session {row.id}"
        if row.parent is None:
            if row.id != row.conversation and (row.conversation in known or row.conversation in beginnings):
                yield f"{name} is a part of conversation {row.conversation} and goes on from no part of it"
            beginnings[row.conversation] = row.id
            continue
        if row.id == row.conversation:
            yield f"{name} is the first part of its conversation and goes on from session {row.parent}"
        elif row.of_parent is not None and row.of_parent != row.conversation:
            yield f"{name} goes on from session {row.parent}, which is a part of another conversation"
        if row.parent in going_on:
            yield f"sessions {going_on[row.parent]} and {row.id} both go on from session {row.parent}"
        going_on[row.parent] = row.id
    for row in rows:
        if row.conversation not in known and row.conversation not in beginnings:
            yield f"session {row.id} is a part of conversation {row.conversation}, which has no beginning"


def _check_vectors(connection: Connection, tenant: str) -> Iterator[str]:
    """Check that each vector belongs to words that are still there."""
    live = select(node.c.seq).join(content, content.c.digest == node.c.digest).where(content.c.state == "live")
    lost = select(vector.c.seq).where(vector.c.tenant == tenant).except_(live)
    for number in connection.execute(lost).scalars():
        yield f"there is a vector of message number {number}, which is not there or forgotten"


def _stream(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    yield from connection.execute(query.execution_options(yield_per=500))
