"""The evidence of compactions: kept with them, and gone with the words that it repeats."""

from __future__ import annotations

import json

from sqlalchemy import func, select, update

from everlong.context import CompletionSummarizer, ContextCompressor
from everlong.model import Message
from everlong.store import Branch, Occasion, Store
from everlong.store.compaction import read_evidence
from everlong.store.schema import evidence
from everlong.store.upkeep.maintenance import vacuum
from tests.context.builders import assistant, user

SECRET = "sk-ant-api03-" + "Qx7Lm2Rt9Vb4Wz1K" * 3
ANSWER = "## Goal\n- Plan the ferries of the harbour\n\n## Critical Context\n- The tide table is data/tides.csv"


class Model:
    """A model that writes the same summary whatever it is asked."""

    def __init__(self, answer: str = ANSWER) -> None:
        self.answer = answer
        self.prompts: list[list[Message]] = []

    def __call__(self, messages: list[Message], max_tokens: int) -> str:  # noqa: ARG002 - it writes what it writes
        self.prompts.append(messages)
        return self.answer


def ferries(extra: str = "", turns: int = 24) -> list[Message]:
    said: list[Message] = [user(f"Plan the ferries of the harbour. {extra}"), assistant("Noted.")]
    for number in range(turns):
        said.append(user(f"Question {number}: where does ferry {number} dock, and when? " + "The tide is low. " * 20))
        said.append(assistant(f"Ferry {number} docks at pier {number % 7}. " + "It is on time. " * 20))
    return said


def compacted(store: Store, model: Model, said: list[Message] | None = None) -> tuple[str, Branch, int]:
    session = store.sessions.start(title="Ferries", model="anthropic:claude-sonnet-4-5")
    at = store.record(said or ferries(), conversation=session.id)
    store.sessions.attach(session.id, at)
    engine = ContextCompressor(16_000, summarizer=CompletionSummarizer(model, name="scribe"))
    done = store.compact(at, engine, Occasion("manual", session.id), roll_over=session.id, force=True)
    assert done.outcome == "compacted"
    assert done.compaction_id is not None
    return session.id, at, done.compaction_id


def test_a_compaction_keeps_what_its_summarizer_was_asked_and_answered(store: Store) -> None:
    model = Model()
    _, _, ident = compacted(store, model)
    found = read_evidence(store, [ident])[ident]
    assert found.asked == len(model.prompts) == len(found.exchanges)
    first = found.exchanges[0]
    assert first.writer == "scribe"
    assert first.answer == ANSWER
    assert "You write handoff summaries" in first.prompt
    assert first.prompt_characters > len(ANSWER)


def test_a_secret_is_in_no_evidence(store: Store) -> None:
    model = Model(f"{ANSWER}\n- The key is {SECRET}")
    _, _, ident = compacted(store, model, ferries(f"My key is {SECRET}."))
    assert SECRET not in json.dumps(read_evidence(store, [ident])[ident].to_dict())


def count_rows(store: Store) -> int:
    with store.database.read() as connection:
        mine = select(func.count()).select_from(evidence).where(evidence.c.tenant == store.tenant)
        return int(connection.execute(mine).scalar_one())


def test_forgetting_a_conversation_forgets_its_evidence(store: Store) -> None:
    ident, _, _ = compacted(store, Model())
    assert count_rows(store) == 1
    store.conversations.forget(ident)
    assert count_rows(store) == 0
    assert store.verify().problems == []


def test_vacuum_removes_the_evidence_of_messages_that_are_gone(store: Store) -> None:
    at = store.record(ferries())
    done = store.compact(at, ContextCompressor(16_000), force=True)
    assert done.outcome == "compacted"
    assert count_rows(store) == 1
    vacuum(store, min_age=-1.0)
    assert count_rows(store) == 0


def test_verify_names_evidence_without_a_compaction_and_damaged_evidence(store: Store) -> None:
    _, _, ident = compacted(store, Model())
    assert store.verify().problems == []

    mine = update(evidence).where(evidence.c.tenant == store.tenant)
    store.database.write(lambda connection: connection.execute(mine.values(codec=7)))
    assert any(f"the evidence of compaction {ident} cannot be read" in one for one in store.verify().problems)

    store.database.write(lambda connection: connection.execute(mine.values(compaction=ident + 4_711)))
    assert any(f"the evidence of compaction {ident + 4_711} is kept" in one for one in store.verify().problems)
