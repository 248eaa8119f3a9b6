"""A client that compacts its conversation itself goes on in one that is known to come from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everlong.model import text_of
from everlong.testing import Answer, Ask, ModelServer
from tests.gateway.running import TENANT, Running, run_gateway

SUMMARY = """<analysis>
The user spoke of the harbour, and I have thought about that for a while.
</analysis>
<summary>
1. Primary request: tidy up the harbour office and write down who owns which berth.
2. Files: notes/berths.txt was read in full, notes/tides.txt only up to line forty.
3. Pending: the owner of berth nine has not answered the letter of last Tuesday.
4. Next step: write the list of berths and their owners into out/berths.txt.
</summary>"""
GOING_ON = "This session is being continued from a previous conversation:\n" + SUMMARY.partition("<summary>")[2]
SESSION = "4b1d"


def writes(ask: Ask) -> Answer:
    return Answer(SUMMARY if "Summarize" in ask.last_user else "Noted.")


def send(running: Running, messages: list[Any], session: str = SESSION, tenant: str = "local") -> None:
    body = {"model": "claude-sonnet-5", "max_tokens": 500, "messages": messages}
    body["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    headers = [("x-api-key", "k"), ("anthropic-version", "2023-06-01")]
    headers += [("x-claude-code-session-id", session), (TENANT, tenant)]
    with running.raw() as raw:
        assert raw.ask(json.dumps(body).encode(), headers=headers).status == 200


@pytest.fixture
def compacted(tmp_path: Any) -> Any:
    """A gateway whose client has just asked for a summary."""
    history = [{"role": "user", "content": "Tidy up."}, {"role": "assistant", "content": "Noted."}]
    with ModelServer(writes) as model, run_gateway(model.url, str(tmp_path / "gateway.db")) as running:
        send(running, history[:1])
        send(running, [*history, {"role": "user", "content": "Summarize our conversation."}])
        yield running


def test_what_begins_with_the_summary_is_the_next_part_of_what_was_summarized(compacted: Running) -> None:
    going_on = [{"role": "user", "content": f"{GOING_ON}\nPlease go on."}]
    send(compacted, going_on)
    send(compacted, [*going_on, {"role": "assistant", "content": "Noted."}, {"role": "user", "content": "And then?"}])
    store = compacted.store()
    (one,) = store.conversations.newest()
    assert len(one.parts) == 2
    assert (one.title, one.kind, one.client) == ("Tidy up.", "main", "claude-code")
    words = [text_of(line.entry.message) for line in store.conversations.lines(one.id)]
    assert words[0] == "Tidy up."
    assert words[-2:] == ["And then?", "Noted."]
    assert store.verify().problems == []


@pytest.mark.parametrize(
    ("words", "session", "tenant"),
    [
        ("Which fish is in season? " * 20, SESSION, "local"),
        (GOING_ON, "another", "local"),
        (GOING_ON, SESSION, "somebody"),
        ("1. Primary request: tidy up the harbour office and write down who owns which berth. " * 3, SESSION, "local"),
    ],
    ids=["other words", "another session", "another tenant", "one line of it"],
)
def test_nothing_else_does(compacted: Running, words: str, session: str, tenant: str) -> None:
    send(compacted, [{"role": "user", "content": words}], session, tenant)
    store = compacted.store(tenant)
    assert [len(one.parts) for one in store.conversations.newest()] == [1] * (1 if tenant == "somebody" else 2)
