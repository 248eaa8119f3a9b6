"""The page of a compaction on who wrote its summary."""

from __future__ import annotations

from everlong.context import CompletionSummarizer, ContextCompressor, Summarizer
from everlong.model import Message
from everlong.store import Occasion, Store
from tests.context.builders import assistant, user
from tests.inspector.conftest import Site

SECRET = "sk-ant-api03-" + "Hq4Pz8Nc2Yd6Rf1M" * 3
ANSWER = f"## Goal\n- Plan the <b>ferries</b>\n\n## Critical Context\n- The key is {SECRET}\n- Pier 3 is closed"


def write(messages: list[Message], max_tokens: int) -> str:  # noqa: ARG001 - it writes what it writes
    return ANSWER


def make(store: Store, summarizer: Summarizer | None, turns: int = 24) -> str:
    session = store.sessions.start(title="Ferries", model="anthropic:claude-sonnet-4-5")
    said: list[Message] = [
        {"role": "system", "content": "You plan ferries."},
        user(f"Plan the ferries. The key is {SECRET}."),
        assistant("Noted."),
    ]
    for number in range(turns):
        said.append(user(f"Where does ferry {number} dock? " + f"Buoy {number} is at depth {number * 37}. " * 12))
        said.append(assistant(f"Ferry {number} docks at pier {number % 7}. " + "It is on time. " * 20))
    at = store.record(said, conversation=session.id)
    store.sessions.attach(session.id, at)
    engine = ContextCompressor(16_000, summarizer=summarizer)
    done = store.compact(at, engine, Occasion("manual", session.id), roll_over=session.id, force=True)
    assert done.outcome == "compacted"
    return session.id


def test_the_page_has_the_prompt_and_the_answer_folded_and_without_secrets(site: Site) -> None:
    ident = make(site.store, CompletionSummarizer(write, name="scribe"))
    got = site.get(f"/inspector/c/{ident}/compactions/1")
    assert "scribe" in got.words
    assert "You write handoff summaries of conversations" in got.words
    assert "Pier 3 is closed" in got.words
    assert "Plan the <b>ferries</b>" in got.words, "it is shown as text"
    assert "<b>ferries</b>" not in got.text
    assert SECRET not in got.text
    assert '<details class="exchange"' in got.text
