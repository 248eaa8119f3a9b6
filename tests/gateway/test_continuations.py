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


def test_a_summary_asked_for_before_the_last_answer_makes_no_second_row(tmp_path: Any) -> None:
    """Claude Code's ``/compact`` leaves out the answer that its conversation ends with."""
    history = [{"role": "user", "content": "Tidy up."}, {"role": "assistant", "content": "Noted."}]
    history.append({"role": "user", "content": "And the quay?"})
    with ModelServer(writes) as model, run_gateway(model.url, str(tmp_path / "gateway.db")) as running:
        send(running, history[:1])
        send(running, history)
        asking = {"role": "user", "content": [{"type": "text", "text": "And the quay?"}]}
        asking["content"] = [*asking["content"], {"type": "text", "text": "Summarize our conversation."}]
        send(running, [*history[:2], asking])
        assert len(running.store().conversations.newest()) == 2  # a fork, as far as anybody knows
        send(running, [{"role": "user", "content": f"{GOING_ON}\nPlease go on."}])
        store = running.store()
        (one,) = store.conversations.newest()
        assert (one.title, one.works_for, len(one.parts)) == ("Tidy up.", None, 3)
        words = [text_of(line.entry.message) for line in store.conversations.lines(one.id)]
        assert words[:6] == ["Tidy up.", "Noted.", "And the quay?", "Noted.", "Summarize our conversation.", SUMMARY]
        assert store.verify().problems == []


@pytest.mark.parametrize(
    "headers",
    [[("x-session-affinity", SESSION), ("user-agent", "opencode/1.18")], [("user-agent", "pi (linux; x64)")]],
    ids=["named", "unnamed"],
)
def test_a_summary_asked_for_on_the_side_is_a_link_too(headers: list[tuple[str, str]], tmp_path: Any) -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    aside = {"system": "You are a context summarization assistant. Your task is to read a conversation."}

    def ask(running: Running, messages: list[Any], **more: Any) -> None:
        body = {"model": "claude-sonnet-5", "max_tokens": 500, "messages": messages, **more}
        with running.raw() as raw:
            given = [("x-api-key", "k"), ("anthropic-version", "2023-06-01"), *headers]
            assert raw.ask(json.dumps(body).encode(), headers=given).status == 200

    def answers(ask: Ask) -> Answer:
        return Answer(SUMMARY if ask.system else f"Noted: {ask.last_user}")

    with ModelServer(answers) as model, run_gateway(model.url, str(tmp_path / "gateway.db")) as running:
        for other in ("Tidy up.", "Sweep the quay."):
            ask(running, [{"role": "user", "content": other}], tools=tools)
        ask(running, [{"role": "user", "content": "<conversation>\nTidy up.\n</conversation>"}], **aside)
        kept = [{"role": "assistant", "content": "Noted: Tidy up."}, {"role": "user", "content": "Go on."}]
        ask(running, [{"role": "user", "content": GOING_ON}, *kept], tools=tools)
        found = {one.title: len(one.parts) for one in running.store().conversations.newest()}
        assert found == {"Tidy up.": 2, "Sweep the quay.": 1}
        assert running.store().verify().problems == []


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
