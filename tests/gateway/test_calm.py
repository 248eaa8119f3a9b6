"""The gateway counts whole requests in the API's own tokens, whatever clients do to their markers."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from bench.gateway.endless import APIS, play

from everlong.gateway import compaction
from everlong.testing.server import Answer, Ask, Call
from tests.examples import few, length
from tests.gateway.running import Running, modelled
from tests.waiting import PATIENCE, until

WINDOW = 40_000
MODEL = "claude-sonnet-5"
UNPRICED = "harbour-1"
"""A model whose conversations are compacted at the threshold, because nothing tells that waiting is cheaper."""
SETTINGS: dict[str, Any] = {"models": {MODEL: {"context_length": WINDOW}}}
HEADERS = [("x-api-key", "k"), ("anthropic-version", "2023-06-01")]
TOOL = {
    "name": "look",
    "description": "Looks at a place, and says what is there. " * 100,
    "input_schema": {"type": "object", "properties": {"type": {"type": "string"}}},
}
RESULT = "The tide came in at noon and the boats went out again before the wind turned north. " * 60


def body(turns: int) -> dict[str, Any]:
    """A client that has its markers on its last two messages, like Claude Code."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Watch the harbour."}]}]
    for number in range(turns):
        call = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {"type": str(number)}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{number}: {RESULT}"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    for message in [one for one in messages if one["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    system = [{"type": "text", "text": "You watch. " * 2_000, "cache_control": {"type": "ephemeral"}}]
    return {"model": MODEL, "max_tokens": 1_000, "system": system, "tools": [TOOL], "messages": messages}


def looks(ask: Ask) -> Answer:
    """A model that looks once more each time."""
    seen = int(ask.results[-1][0].removeprefix("t")) + 1 if ask.results else 0
    return Answer("", [Call("look", {"type": str(seen)}, f"t{seen}")])


def send(running: Running, turns: int, model: str = MODEL) -> None:
    with running.raw() as raw:
        assert raw.ask(json.dumps({**body(turns), "model": model}).encode(), headers=HEADERS).status == 200


@pytest.mark.spec("4.5")
def test_a_client_that_moves_its_markers_is_compacted_seldom(tmp_path: Path) -> None:
    with modelled(looks, tmp_path, SETTINGS, window=WINDOW) as (model, running):
        for turns in range(60):
            send(running, turns)
        assert model.rejections == []
        done = running.store().compactions()
        asked = [record.prompt_tokens for record in model.requests]
        assert 1 <= len(done) <= 6
        assert max(asked) < 0.98 * WINDOW
        for one in done:
            assert one.tokens_before is not None
            assert one.tokens_before >= 0.6 * WINDOW  # not at what its bytes would look like


@pytest.mark.spec("4.5")
def test_a_conversation_is_compacted_as_far_as_it_came_while_its_summary_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_UNKNOWN_SECONDS", 0.0)  # or it begins early, because no time passes here
    settings = {"models": {UNPRICED: {"context_length": 4 * WINDOW}}}
    writing, may_go_on = threading.Event(), threading.Event()

    def slow_writer(ask: Ask) -> Answer:
        if "Summarize the conversation above." in ask.text:
            writing.set()
            may_go_on.wait(PATIENCE)
            return Answer("## Goal\n- Watch the harbour.\n\n## Progress\n### Done\n- Looked at many places.\n")
        return looks(ask)

    with modelled(slow_writer, tmp_path, settings, window=4 * WINDOW, summarizer=None) as (model, running):
        turns = 0
        while not writing.is_set():
            assert turns < 100
            send(running, turns, UNPRICED)
            turns += 1
        for more in range(2):  # they go on under the old view
            send(running, turns + more, UNPRICED)
        sent, store = len(body(turns + 1)["messages"]), running.store()
        until(lambda: len(store.entries(store.branch(1))) > sent)  # with the reply
        may_go_on.set()
        until(lambda: store.compactions() and not running.gateway._compactor._ahead)
        (done,) = store.compactions()
        assert done.summarizer == "own model"
        assert done.messages_before >= sent
        before = model.requests[-1].prompt_tokens
        send(running, turns + 2, UNPRICED)
        assert model.requests[-1].prompt_tokens < before / 1.5


@pytest.mark.spec("4.5")
def test_the_first_request_after_a_compaction_ahead_is_calm_too_with_the_step_that_came_meanwhile(
    tmp_path: Path,
) -> None:
    window = 4 * WINDOW
    compactor: Any = None

    def waits(ask: Ask) -> Answer:
        if compactor._due:
            until(lambda: not compactor._ahead)  # it is answered under the old view, and the next under the new one
        return looks(ask)

    settings = {"models": {MODEL: {"context_length": window}}}
    with modelled(waits, tmp_path, settings, window=window, summarizer=None) as (model, running):
        compactor = running.gateway._compactor
        for turns in range(1, 400, 4):  # a step is 4 results
            send(running, turns)
            if running.store().compactions():
                send(running, turns + 4)
                send(running, turns + 8)
                break
        smallest = min(one.prompt_tokens for one in model.requests[-4:])
        assert 0.45 <= smallest / (0.5 * window) <= 0.60


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("api", few(APIS))
def test_a_client_that_only_appends_never_hits_the_wall(api: str) -> None:
    window = length(16_000, 12_000)
    played = play(length(90, 60), api, window)
    assert played.errors == played.rejections == played.problems == []
    assert played.largest_prompt < window < played.history_tokens
    assert sum(played.compactions.values()) >= 3
    assert played.read_share >= 0.85  # a short session has more of its beginnings in it than a long one
    assert (played.known(literal=True), played.known(literal=False) >= 7) == (10, True)
