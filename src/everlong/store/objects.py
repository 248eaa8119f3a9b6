"""Large contents in an object store: moved there after they are stored, deleted there when they are forgotten.

A message is committed in the database first, so a bucket that cannot be reached holds up nobody. `move_large` then
writes the object, and only after that the row points at it. A table of its own knows every object from before it is
written until after it is deleted: whatever is interrupted, the next `sweep_objects` finishes. A key holds the content's
digest and a number by chance: no deletion can hit the object of a content that was stored again meanwhile.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Executable,
    Float,
    LargeBinary,
    MetaData,
    String,
    Table,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from everlong.errors import StoreDamaged, StoreUnavailable
from everlong.store.content import OBJECT
from everlong.store.database import in_batches
from everlong.store.object_place import Reference, drop_kept, fetch_anew, hash_of, place_at, read_reference
from everlong.store.schema import content

if TYPE_CHECKING:
    from everlong.store.database import Database

OVER_BYTES = 256_000
"""Contents of more packed bytes than this are moved, if no setting names another size."""

STALE_SECONDS = 3_600.0
"""Age of an object that was being written after which its writer counts as dead."""

_AT_ONCE = 100

_metadata = MetaData()
stored_object = Table(  # made when the first content is moved: most stores never have one
    "stored_object",
    _metadata,
    Column("key", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),  # the content that it holds
    Column("reference", LargeBinary, nullable=False),  # as the content's row holds it
    Column("size", BigInteger, nullable=False),
    Column("state", String, nullable=False),  # moving, kept or doomed
    Column("ts", Float(53), nullable=False),
)


class Moved(NamedTuple):
    """The number of contents that changed their place, and their bytes."""

    contents: int
    bytes: int


def has_objects(connection: Connection) -> bool:
    """Return whether contents of this database were ever moved."""
    return bool(connection.dialect.has_table(connection, stored_object.name))


# -- out of the database -----------------------------------------------------------------------------------------------


def move_large(
    database: Database, url: str, over: int = OVER_BYTES, progress: Callable[[int, int], None] | None = None
) -> Moved:
    """Move the contents of all tenants that are larger than so many bytes; others read and write meanwhile.

    Raises:
        StoreUnavailable: The place cannot be reached; what was not moved stays in the database.
    """
    place_at(url)  # before anything is changed
    database.write(_metadata.create_all)
    large = select(content.c.seq).where(
        content.c.state == "live", content.c.codec != OBJECT, func.length(content.c.bytes) > over
    )
    with database.read() as connection:
        numbers = connection.execute(large.order_by(content.c.seq)).scalars().all()
    sizes: list[int] = []
    for number in numbers:
        sizes.append(_move(database, url, number))
        if progress is not None:
            progress(len(sizes), len(numbers))
    return Moved(sum(size > 0 for size in sizes), sum(sizes))


def _move(database: Database, url: str, number: int) -> int:
    """Move one content; return its bytes, or 0 if it is gone meanwhile."""
    with database.read() as connection:
        row = connection.execute(select(content).where(content.c.seq == number)).first()
    if row is None or row.state != "live" or row.codec == OBJECT or row.bytes is None:
        return 0
    data, name = bytes(row.bytes), bytes(row.digest).hex()
    told = Reference(url, f"{name[:2]}/{name}-{secrets.token_hex(4)}", row.codec, len(data), hash_of(data))
    values = {
        "key": told.key,
        "tenant": row.tenant,
        "digest": row.digest,
        "reference": told.packed(),
        "size": len(data),
        "state": "moving",
        "ts": time.time(),
    }
    _run(database, stored_object.insert().values(values))
    try:
        place_at(url).put(told.key, data)
    except StoreUnavailable:
        database.write(partial(_doom, key=told.key))
        raise
    if database.write(lambda connection: _point_at(connection, bytes(row.digest), told)):
        return len(data)
    sweep_objects(database)
    return 0


def _point_at(connection: Connection, digest: bytes, told: Reference) -> bool:
    """Let a content's row point at its object, which is written; return False if the content is gone meanwhile."""
    mine = stored_object.c.key == told.key
    kept = update(stored_object).where(mine, stored_object.c.state == "moving").values(state="kept")
    if connection.execute(kept).rowcount != 1:  # somebody took us for dead
        return False
    here = content.c.digest == digest, content.c.state == "live", content.c.codec != OBJECT
    moved = update(content).where(*here).values(bytes=told.packed(), codec=OBJECT)
    if connection.execute(moved).rowcount == 1:
        return True
    _doom(connection, told.key)
    return False


def _run(database: Database, statement: Executable) -> None:
    database.write(partial(Connection.execute, statement=statement))


def _doom(connection: Connection, key: str) -> None:
    connection.execute(update(stored_object).where(stored_object.c.key == key).values(state="doomed"))


# -- deletion ----------------------------------------------------------------------------------------------------------


def sweep_objects(database: Database) -> int:
    """Delete the objects whose contents are forgotten, deleted or back in the database; return how many.

    Raises:
        StoreUnavailable: The place cannot be reached; the next sweep deletes what is left.
    """
    with database.read() as connection:
        if not has_objects(connection):
            return 0
        is_doomed = connection.execute(select(stored_object.c.key).where(_doomed()).limit(1)).first()
    if is_doomed is None:
        return 0
    _run(database, update(stored_object).where(_doomed()).values(state="doomed"))
    with database.read() as connection:
        query = select(stored_object.c.key, stored_object.c.reference).where(stored_object.c.state == "doomed")
        rows = connection.execute(query).all()
    done = 0
    for some in in_batches(rows, _AT_ONCE):
        gone: list[str] = []
        try:
            for row in some:
                told = read_reference(bytes(row.reference))
                drop_kept(told.name)
                place_at(told.at).delete(told.key)
                gone.append(row.key)
        except StoreUnavailable as error:
            left = len(rows) - done - len(gone)
            raise StoreUnavailable(
                f"{left} objects that the database no longer needs are not deleted yet: {error}; "
                "`everlong sessions maintain` deletes them once the place can be reached"
            ) from error
        finally:
            if gone:
                _run(database, delete(stored_object).where(stored_object.c.key.in_(gone)))
        done += len(gone)
    return done


def _doomed() -> ColumnElement[bool]:
    mine = content.c.digest == stored_object.c.digest
    points_here = exists().where(mine, content.c.codec == OBJECT, content.c.bytes == stored_object.c.reference)
    is_live = exists().where(mine, content.c.state == "live")
    is_stale = stored_object.c.ts < time.time() - STALE_SECONDS
    return or_(
        stored_object.c.state == "doomed",
        and_(stored_object.c.state == "kept", ~points_here),
        and_(stored_object.c.state == "moving", or_(is_stale, ~is_live)),
    )


# -- back into the database --------------------------------------------------------------------------------------------


def bring_back(database: Database, progress: Callable[[int, int], None] | None = None) -> Moved:
    """Move all contents back into the database and delete their objects.

    Raises:
        StoreDamaged: An object is missing or was changed; the others can still be moved once that is settled.
    """
    query = select(content.c.seq, content.c.bytes).where(content.c.codec == OBJECT).order_by(content.c.seq)
    with database.read() as connection:
        rows = connection.execute(query).all()
    total = 0
    for count, row in enumerate(rows, 1):
        told = read_reference(bytes(row.bytes))
        held = fetch_anew(told)
        here = content.c.seq == row.seq, content.c.codec == OBJECT, content.c.bytes == bytes(row.bytes)
        _run(database, update(content).where(*here).values(bytes=held, codec=told.codec))
        total += len(held)
        if progress is not None:
            progress(count, len(rows))
    sweep_objects(database)
    return Moved(len(rows), total)


def fill_copy(copy: sqlite3.Connection) -> None:
    """Put the bytes of all objects into a copy of a SQLite file, so that it needs no other place.

    Raises:
        StoreDamaged: An object is missing or was changed.
    """
    there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if copy.execute(there, (stored_object.name,)).fetchone() is None:
        return
    numbers = [number for (number,) in copy.execute("SELECT seq FROM content WHERE codec = ?", (OBJECT,))]
    for number in numbers:
        (data,) = copy.execute("SELECT bytes FROM content WHERE seq = ?", (number,)).fetchone()
        told = read_reference(data)
        copy.execute("UPDATE content SET bytes = ?, codec = ? WHERE seq = ?", (fetch_anew(told), told.codec, number))
        copy.commit()
    copy.execute(f"DROP TABLE {stored_object.name}")
    copy.commit()


# -- figures and checks ------------------------------------------------------------------------------------------------


def count_objects(connection: Connection, tenant: str) -> Moved:
    """Return how many objects a tenant has, and their bytes."""
    if not has_objects(connection):
        return Moved(0, 0)
    sums = select(func.count(), func.coalesce(func.sum(stored_object.c.size), 0)).where(
        stored_object.c.tenant == tenant, stored_object.c.state == "kept"
    )
    count, size = connection.execute(sums).one()
    return Moved(int(count), int(size))


def check_objects(connection: Connection, tenant: str) -> Iterator[str]:
    """Yield the objects of a tenant that should be deleted and may still be there."""
    if not has_objects(connection):
        return
    left = select(stored_object.c.reference).where(stored_object.c.tenant == tenant, _doomed())
    for data in connection.execute(left).scalars():
        try:
            name = read_reference(bytes(data)).name
        except StoreDamaged as error:
            name = str(error)
        yield f"the object {name} is no longer needed and not deleted yet; run `everlong sessions maintain`"
