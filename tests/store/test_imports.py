"""Conversations that are taken over: redacted like all that is stored, and listed once, however many import them."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import func, select

from everlong.model import Message
from everlong.store import Store, schema
from everlong.store.database import Database
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.store import redacted_message
from everlong.store.transcripts import write_transcript
from everlong.wire import TranscriptConversation, read_transcript
from tests.context.builders import assistant, user
from tests.store.engines import ScriptedEngine, summarizing
from tests.waiting import PATIENCE

FILE = ImportOrigin("/tmp/talks.jsonl", 1_000.0)  # noqa: S108 - a name, no file
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"  # made up


def talk(number: int, length: int = 4) -> TranscriptConversation:
    roles = ("user", "assistant")
    messages: list[Message] = [{"role": roles[n % 2], "content": f"word {n} of talk {number}"} for n in range(length)]
    return TranscriptConversation(messages, {"id": f"talk-{number}", "messages": messages})


def test_a_store_that_redacts_takes_no_secret_over_with_a_system_prompt(database: Database) -> None:
    store = Store(database, uuid.uuid4().hex, redact=redacted_message)
    prompt: Message = {"role": "system", "content": f"Use {KEY}"}
    done = Importer(store).add(TranscriptConversation([prompt, *talk(1).messages]), FILE)
    assert done.session is not None
    assert store.sessions.system_prompt(done.session) == "Use [redacted:api_key]"


@pytest.mark.parametrize("in_batches", [False, True])
def test_two_imports_at_once_list_each_conversation_once(store: Store, url: str, in_batches: bool) -> None:
    talks = [talk(number) for number in range(12)]
    outcomes: Counter[str] = Counter()
    ready = threading.Barrier(3)

    def work(order: list[TranscriptConversation]) -> None:
        with Store.open(url, store.tenant) as own:
            importer = Importer(own)
            ready.wait()
            if in_batches:
                with own.batch():
                    found = [importer.add(one, FILE).outcome for one in order]
            else:
                found = [importer.add(one, FILE).outcome for one in order]
            outcomes.update(found)

    orders = (talks, talks, talks[::-1])
    threads = [threading.Thread(target=work, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert outcomes == {"new": 12, "known": 24}
    assert len(store.sessions.newest()) == 12
    assert store.verify().problems == []


# -- our own exports -----------------------------------------------------------------------------------------------


def counts(store: Store) -> list[int]:
    """Return how many sessions, nodes, branches and contents a tenant has."""
    with store.database.read() as connection:
        tables = (schema.session, schema.node, schema.branch, schema.content)
        queries = [select(func.count()).select_from(table).where(table.c.tenant == store.tenant) for table in tables]
        return [connection.execute(query).scalar_one() for query in queries]


def exported(store: Store, ident: str) -> TranscriptConversation:
    """Return what an export says, as an import reads it."""
    pieces: list[str] = []
    write_transcript(store, [store.conversations.get(ident)], "jsonl", pieces.append)
    (found,) = read_transcript("".join(pieces)).conversations
    return found


@pytest.fixture
def ferry(store: Store) -> str:
    """A conversation in two parts with a reply that broke off; another one begins with the same words."""
    for name in ("other", "ferry"):
        at = store.record([user("hi"), assistant("hello")], conversation=name)
    made = store.sessions.start(at, from_depth=0, title="Ferry", system_prompt="Be brief.", folder="/srv/ferry")
    engine = ScriptedEngine(summarizing(0, 2))
    done = store.compact(at, engine, roll_over=made.id)
    at = store.append(at, [user("when?")])
    turn = store.turns.begin(at, model="m", session=done.child)
    store.turns.finish(turn.id, assistant("At ha"), status="cancelled", error="stopped by the user")
    store.append(at, [assistant("At nine.")])
    return made.id


def test_an_export_that_comes_back_to_its_store_adds_nothing(store: Store, ferry: str) -> None:
    before = counts(store)
    for part in store.conversations.get(ferry).parts:
        assert Importer(store).add(exported(store, part), FILE) == ("known", ferry)
    assert counts(store) == before


def test_an_export_becomes_one_conversation_with_the_same_id_and_all_words_in_an_empty_store(
    store: Store, ferry: str, tmp_path: Path
) -> None:
    found = exported(store, ferry)
    with Store.open(tmp_path / "other.db") as other:
        assert Importer(other).add(found, FILE) == ("new", ferry)
        assert Importer(other).add(found, FILE) == ("known", ferry)
        here, there = store.conversations.get(ferry), other.conversations.get(ferry)
        for name in ("id", "title", "folder", "started", "active", "messages", "source"):
            assert getattr(here, name) == getattr(there, name)
        assert (len(there.parts), there.api_calls) == (1, 0)

        def told(one: Store) -> list[object]:
            return [(line.turn, line.status, line.error, line.entry.message) for line in one.conversations.lines(ferry)]

        assert told(store) == told(other)
        assert (3, "cancelled", "stopped by the user", assistant("At ha")) in told(store)
        assert other.conversations.system_prompt(ferry) == "Be brief."
        assert other.verify().problems == []
