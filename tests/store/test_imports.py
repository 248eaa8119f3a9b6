"""Conversations that are taken over: redacted like all that is stored, and listed once, however many import them."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest

from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.store import redacted_message
from everlong.wire import TranscriptConversation
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
