"""Whole outputs are kept with the message that shows a part of them: found by id, read in pages, gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, func, select, update

from everlong.errors import ConfigError, NotStored
from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.schema import content, output
from everlong.store.store import redacted_message
from everlong.store.upkeep.maintenance import stats, vacuum
from tests.store.test_forget import stored_text

WHOLE = "".join(f"{number}: pelican-4711 rows past\n" for number in range(1_000))


def talk(call: str = "c1") -> list[Message]:
    function = {"name": "run_command", "arguments": '{"command": "make log"}'}
    return [
        {"role": "user", "content": "Show me the log."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "content": "0: …\n[… left out …]\n999: …"},
    ]


def count(store: Store) -> int:
    with store.database.read() as connection:
        return connection.execute(select(func.count()).where(output.c.tenant == store.tenant)).scalar_one()


def test_an_output_is_kept_once_and_read_in_pages_that_end_at_line_ends(store: Store) -> None:
    at = store.record(talk())
    ident = store.outputs.ident(WHOLE)
    store.outputs.keep(at.head, WHOLE)
    store.outputs.keep(at.head, WHOLE)
    assert count(store) == 1
    assert store.outputs.of(at.head) == [ident]
    first = store.outputs.read(ident, 1, 1_000)
    assert (first.page, first.chars) == (1, len(WHOLE))
    assert len(first.text) <= 1_000
    assert first.text.endswith("\n")
    assert "".join(store.outputs.read(ident, page, 1_000).text for page in range(1, first.pages + 1)) == WHOLE
    assert store.outputs.read(ident, first.pages + 1, 1_000).text == ""
    with pytest.raises(ConfigError, match="from 1 on"):
        store.outputs.read(ident, 0, 1_000)


def test_another_tenant_cannot_read_it_and_has_another_id_for_the_same_words(store: Store, database: Database) -> None:
    store.outputs.keep(store.record(talk()).head, WHOLE)
    other = Store(database, f"{store.tenant}-other")
    assert other.outputs.ident(WHOLE) != store.outputs.ident(WHOLE)
    with pytest.raises(NotStored):
        other.outputs.read(store.outputs.ident(WHOLE))
    with pytest.raises(NotStored):
        other.outputs.keep(store.record(talk()).head, WHOLE)


def test_it_goes_when_its_message_is_forgotten_and_does_not_come_back(store: Store) -> None:
    at = store.record(talk())
    ident = store.outputs.ident(WHOLE)
    store.outputs.keep(at.head, WHOLE)
    store.forget([at.head])
    with pytest.raises(NotStored):
        store.outputs.read(ident)
    assert "pelican" not in stored_text(store)
    store.outputs.keep(at.head, WHOLE)
    assert count(store) == 0
    assert "pelican" not in stored_text(store)
    assert store.verify().problems == []


def test_a_vacuum_keeps_it_as_long_as_its_message_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path) as store:
        at = store.record(talk())
        made = store.sessions.start(at, from_depth=0)
        store.outputs.keep(at.head, WHOLE)
        assert stats(store)["outputs"] == 1
        vacuum(store, min_age=-1.0)
        assert store.outputs.read(store.outputs.ident(WHOLE)).chars == len(WHOLE)
        store.sessions.delete(made.id)
        vacuum(store, min_age=-1.0)
        assert stats(store)["outputs"] == stats(store)["contents"] == 0
        assert store.verify().problems == []
    assert b"pelican" not in path.read_bytes()


def test_secrets_are_not_kept_where_the_store_keeps_none(database: Database, store: Store) -> None:
    careful = Store(database, store.tenant, redact=redacted_message)
    secret = "token: ghp_abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105 - made up
    at = careful.record(talk())
    careful.outputs.keep(at.head, secret)
    read = careful.outputs.read(careful.outputs.ident(secret))
    assert "ghp_" not in read.text
    assert "[redacted:" in read.text
    assert careful.outputs.ident(read.text) == careful.outputs.ident(secret)


@pytest.mark.parametrize("text", ["", "a\0b", "half \ud83d", "漢字 😀\r\n", "x" * 2_000_000])
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    at = store.record(talk())
    store.outputs.keep(at.head, text)
    assert store.outputs.read(store.outputs.ident(text), 1, 3_000_000).text == text
    assert store.verify().problems == []


def test_damage_is_found(store: Store) -> None:
    at = store.record(talk())
    store.outputs.keep(at.head, WHOLE)
    mine = output.c.tenant == store.tenant
    digest = select(output.c.digest).where(mine).scalar_subquery()
    store.database.write(lambda connection: connection.execute(delete(content).where(content.c.digest == digest)))
    assert store.verify().problems == [f"the whole output of message {at.head.hex()} is not there"]
    store.outputs.keep(at.head, WHOLE)
    store.database.write(lambda connection: connection.execute(update(output).where(mine).values(node=bytes(16))))
    assert store.verify().problems == [f"message {'00' * 16}, with which an output is kept, is not there"]
