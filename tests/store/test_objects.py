"""Large contents in an object store: messages read as before, and what is forgotten is gone there too."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from everlong.errors import StoreUnavailable
from everlong.model import Message
from everlong.store import Store
from everlong.store.content import OBJECT
from everlong.store.database import Database
from everlong.store.object_place import ObjectPlace, drop_kept, read_reference, use_place
from everlong.store.objects import (
    STALE_SECONDS,
    bring_back,
    move_large,
    stored_object,
    sweep_objects,
)
from everlong.store.schema import content
from everlong.store.upkeep.maintenance import backup, stats
from tests.examples import few
from tests.store.s3_stand_in import BUCKET, StandIn, serving

pytest.importorskip("obstore")

OVER = 2_000


def words(count: int, seed: int = 1) -> str:
    """Words that do not compress to less than the limit."""
    chance = random.Random(seed)
    return " ".join(f"{chance.getrandbits(40):010x}" for _ in range(count))


def talk(seed: int = 1) -> list[Message]:
    return [
        {"role": "user", "content": f"Read the log of run {seed}"},
        {"role": "assistant", "content": f"Here it is: pelican-{seed} {words(2_000, seed)}"},
        {"role": "user", "content": "Thanks"},
    ]


@pytest.fixture(params=few(["sqlite", "postgresql"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A database of its own: contents of all tenants are moved."""
    url = tmp_path / "own.db" if request.param == "sqlite" else request.getfixturevalue("schema_url")
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A bucket with the S3 API, reached within short limits."""
    with serving() as stand_in:
        monkeypatch.setenv("AWS_ENDPOINT_URL", stand_in.address)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made up")
        monkeypatch.setenv("AWS_REGION", "nowhere-1")
        yield stand_in


@pytest.fixture
def place(bucket: StandIn) -> str:
    """The address of a prefix of its own in the bucket."""
    del bucket
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    use_place(ObjectPlace(url, attempts=2))
    return url


@contextmanager
def failing(bucket: StandIn, place: str, fault: str) -> Iterator[None]:
    """Let every request fail in a way; what hangs is given up soon."""
    use_place(ObjectPlace(place, seconds=1.0, attempts=2))
    bucket.always = fault
    yield
    bucket.always = ""
    use_place(ObjectPlace(place, attempts=2))


def references(database: Database, tenant: str) -> list[bytes]:
    query = select(content.c.bytes).where(content.c.tenant == tenant, content.c.codec == OBJECT)
    with database.read() as connection:
        return [bytes(data) for data in connection.execute(query).scalars()]


def forget_memory(store: Store) -> None:
    """Have the next read go to the place."""
    for data in references(store.database, store.tenant):
        drop_kept(read_reference(data).name)


def node_of(store: Store, at: Any, place: int) -> bytes:
    found = store.entries(at)[place].id
    assert found is not None
    return found


def test_a_large_message_moves_and_reads_as_before(store: Store, bucket: StandIn, place: str) -> None:
    at = store.record(talk())
    moved = move_large(store.database, place, OVER)
    assert moved.contents == len(bucket.objects) == 1
    assert moved.bytes == sum(map(len, bucket.objects.values()))
    forget_memory(store)
    assert store.context(at) == talk()
    assert store.verify().problems == []
    assert stats(store)["objects"] == 1


# -- forgetting, deleting ----------------------------------------------------------------------------------------------


def test_a_forgotten_message_is_deleted_in_the_bucket(store: Store, bucket: StandIn, place: str) -> None:
    at = store.record(talk())
    other = store.record(talk(2))
    move_large(store.database, place, OVER)
    store.forget([node_of(store, at, 1)])
    assert len(bucket.objects) == 1
    assert "pelican" not in str(store.context(at))
    assert store.context(other) == talk(2)
    assert store.verify().problems == []


def test_a_bucket_that_is_away_while_words_are_forgotten_loses_them_later(
    store: Store, bucket: StandIn, place: str
) -> None:
    at = store.record(talk())
    move_large(store.database, place, OVER)
    bucket.always = "500"
    with pytest.raises(StoreUnavailable, match="cannot be read"):  # it takes the words to know them again
        store.forget([node_of(store, at, 1)])
    bucket.always = ""
    assert store.context(at) == talk()
    bucket.always = "500"
    with pytest.raises(StoreUnavailable, match=r"1 objects .* not deleted yet: s3://.*everlong sessions maintain"):
        store.forget([node_of(store, at, 1)])
    assert "pelican" not in str(store.context(at))
    assert any("not deleted yet" in problem for problem in store.verify().problems)
    bucket.always = ""
    assert sweep_objects(store.database) == 1
    assert bucket.objects == {}
    assert store.verify().problems == []


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["500", "hang", "403"])
def test_a_bucket_that_takes_nothing_leaves_the_message_in_the_database(
    store: Store, bucket: StandIn, place: str, fault: str
) -> None:
    at = store.record(talk())
    with (
        failing(bucket, place, fault),
        pytest.raises(StoreUnavailable, match=rf"s3://{BUCKET}/.* cannot be written"),
    ):
        move_large(store.database, place, OVER)
    assert store.context(at) == talk()
    assert move_large(store.database, place, OVER).contents == 1
    sweep_objects(store.database)
    assert len(bucket.objects) == 1
    assert store.verify().problems == []


@pytest.mark.parametrize(
    ("change", "told"), [(lambda data: data[:-1], "bytes and should have"), (bytes.swapcase, "changed")]
)
def test_a_changed_object_is_named(
    store: Store, bucket: StandIn, place: str, change: Callable[[bytes], bytes], told: str
) -> None:
    store.record(talk())
    move_large(store.database, place, OVER)
    bucket.objects = {key: change(data) for key, data in bucket.objects.items()}
    assert any(told in problem and f"s3://{BUCKET}/" in problem for problem in store.verify().problems)


# -- interruptions -----------------------------------------------------------------------------------------------------


def test_words_forgotten_while_they_are_moved_do_not_stay_in_the_bucket(
    store: Store, bucket: StandIn, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = store.record(talk())
    put = ObjectPlace.put

    def forget_meanwhile(self: ObjectPlace, key: str, data: bytes) -> None:
        put(self, key, data)
        store.forget([node_of(store, at, 1)])

    monkeypatch.setattr(ObjectPlace, "put", forget_meanwhile)
    assert move_large(store.database, place, OVER).contents == 0
    assert bucket.objects == {}
    assert store.verify().problems == []


def test_a_move_that_was_killed_leaves_nothing_behind(
    store: Store, bucket: StandIn, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = store.record(talk())
    put = ObjectPlace.put

    def killed(self: ObjectPlace, key: str, data: bytes) -> None:
        put(self, key, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectPlace, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            move_large(store.database, place, OVER)
    assert sweep_objects(store.database) == 0  # it might be alive
    assert move_large(store.database, place, OVER).contents == 1
    assert len(bucket.objects) == 2

    def age(connection: Connection) -> None:
        mine = stored_object.c.tenant == store.tenant, stored_object.c.state == "moving"
        connection.execute(update(stored_object).where(*mine).values(ts=stored_object.c.ts - 2 * STALE_SECONDS))

    store.database.write(age)
    assert sweep_objects(store.database) == 1
    assert len(bucket.objects) == 1
    forget_memory(store)
    assert store.context(at) == talk()


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_backup_holds_the_words_itself(file_store: Store, bucket: StandIn, place: str, tmp_path: Path) -> None:
    at = file_store.record(talk())
    move_large(file_store.database, place, OVER)
    backup(file_store, tmp_path / "copy.db")
    assert len(bucket.objects) == 1
    bucket.always = "500"
    with Store.open(tmp_path / "copy.db") as copy:
        assert copy.context(at) == talk()
        assert copy.verify().problems == []
        assert stats(copy)["objects"] == 0


def test_everything_comes_back_into_the_database(file_store: Store, bucket: StandIn, place: str) -> None:
    talks = [talk(seed) for seed in range(3)]
    ends = [file_store.record(one) for one in talks]
    move_large(file_store.database, place, OVER)
    assert len(bucket.objects) == 3
    assert bring_back(file_store.database).contents == 3
    assert bucket.objects == {}
    bucket.always = "500"
    assert [file_store.context(at) for at in ends] == talks
    assert file_store.verify().problems == []
