"""The index keeps up with what is stored, and forgets what is forgotten."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.search import text
from tests.store.engines import ScriptedEngine, summarizing, summary
from tests.store.search.saying import Said, Sayer
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import pytest
    from sqlalchemy import Connection

_DRAIN = """
import sys
from everlong.store import Store
with Store.open(sys.argv[1]) as store:
    print(sum(iter(lambda: store.searcher.index_pending(16), 0)))
"""


def _passages_in(store: Store) -> int:
    index = store.searcher.index
    with store.database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {index.table}").scalar_one())  # noqa: S608 - a constant


def test_several_processes_index_each_message_once(url: str, database: Database) -> None:
    sayer = Sayer(Store(database, uuid.uuid4().hex))
    sayer.drain()
    sayer.say(*(f"lamp {number}" for number in range(200)))
    runs = [subprocess.Popen([sys.executable, "-c", _DRAIN, url], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    done = [int(run.communicate(timeout=PATIENCE)[0]) for run in runs]
    assert sum(done) == 200
    assert len(sayer.texts("lamp", limit=1_000)) == 200
    assert not sayer.store.searcher.index.has_pending()


def test_an_index_of_another_version_is_made_anew(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sayer = Sayer(file_store)
    sayer.say("lamp one", "lamp two")
    sayer.drain()
    for module in ("text", "index"):
        monkeypatch.setattr(f"everlong.store.search.{module}.INDEX_VERSION", text.INDEX_VERSION + 1)
    with Store.open(file_store.database.backend.where) as again:
        later = Sayer(again)
        assert again.searcher.index_pending() == 2
        assert set(later.texts("lamp")) == {"lamp one", "lamp two"}
        assert set(later.texts("lamp")) == {"lamp one", "lamp two"}


def test_what_is_forgotten_is_found_no_more(said: Said) -> None:
    said.say("my password is hunter2 数据", "a lamp for the password 库")
    (hit,) = said.store.search("hunter2").hits
    assert hit.node is not None
    said.store.forget([hit.node])
    for query in ("hunter2", "数据", "数", "password hunter2"):
        assert "my password is hunter2 数据" not in said.texts(query)
    assert said.texts("unter", mode="substring") == []
    assert said.texts("hunter2", mode="regex") == []
    assert said.texts("password") == ["a lamp for the password 库"]
    said.drain()
    assert said.texts("hunter2") == []


def test_what_a_compaction_edited_or_told_again_is_forgotten_though_it_was_never_indexed(sayer: Sayer) -> None:
    at = sayer.say("one apple", "two pears", "three plums", "four figs", "five")
    sayer.drain()
    store = sayer.store
    before = _passages_in(store)

    def edited(messages: list[Message]) -> list[Message]:
        return [messages[0], {**messages[1], "content": "a cleared banana"}, *messages[2:]]

    store.compact(at, ScriptedEngine(edited))
    store.compact(at, ScriptedEngine(summarizing(2, 4, "the zebra story")))
    store.compact(at, ScriptedEngine(lambda messages: [*messages[:-1], summary("more of it"), messages[-1]]))
    sayer.drain()
    first = store.entries(at)[0].id
    assert first is not None
    assert store.forget([first]).views == 3
    assert sayer.texts("zebra banana") == []
    assert sayer.texts("plums") == ["three plums"]
    assert _passages_in(store) == before - 1


def test_what_another_stores_while_the_index_is_made_anew_is_listed_once(schema_url: str) -> None:
    with Store.open(schema_url) as store, Store.open(schema_url) as other:
        store.record([{"role": "user", "content": "before"}])

        class Between:
            """A connection during whose work another one stores a message."""

            def __init__(self, connection: Connection) -> None:
                self.connection = connection

            def __getattr__(self, name: str) -> Any:
                return getattr(self.connection, name)

            def exec_driver_sql(self, sql: str, *values: Any) -> Any:
                done = self.connection.exec_driver_sql(sql, *values)
                if sql == "DELETE FROM pending":
                    other.record([{"role": "user", "content": "the pelican came in between"}])
                return done

        store.searcher.index.ensure()
        store.database.write(lambda connection: store.searcher.index.rebuild(Between(connection)))  # type: ignore[arg-type]
        while store.searcher.index_pending():
            pass
        assert [hit.snippet.text for hit in store.search("pelican").hits] == ["the pelican came in between"]
