"""Each measure of ``bench.retention``, pinned by conversations small enough to count by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench.retention.data import Conversation
from bench.retention.rules import BARS, load_chats, measure
from bench.retention.trials import Work, try_all

from everlong.model import Message
from tests.context.builders import user


def assistant(text: str, *calls: tuple[str, dict[str, Any]]) -> Message:
    made = [
        {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


def tool(text: str, place: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"c{place}", "content": text}


def long_conversation() -> list[Message]:
    made: list[Message] = [{"role": "system", "content": "Be brief."}, user("Find the broken berth in port_list.")]
    for step in range(20):
        made.append(assistant(f"step {step}", ("bash", {"command": f"show berth_{100 + step}"})))
        made.append(tool(f"berth_{100 + step} holds cargo number {7000 + step} " + "and more plain words " * 20))
    made.append(assistant("The broken ones are berth_101 with cargo number 7001, and berth_117."))
    return made


@pytest.mark.parametrize("chain", ["", "history", "context"])
def test_a_conversation_goes_through_every_cut_share_and_method(chain: str) -> None:
    conversation = Conversation("made", "coding", long_conversation())
    trials = try_all(Work(conversation, frozenset(), (0.4,), ("extractive", "keep-last"), chain, with_misses=True))
    assert len(trials) == 2 * (1 if chain else 4)
    for trial in trials:
        assert trial.reached
        assert trial.tokens <= 0.4 * trial.tokens_before
        assert trial.recall.of == trial.facts
        assert len([miss for miss in trial.misses if not miss.unbound]) == trial.recall.of - trial.recall.kept


def test_a_chat_that_was_written_without_a_look_at_the_program_keeps_what_its_user_said() -> None:
    found = measure(load_chats()[-1:])
    kept = {
        kind: [point.is_kept for point in found.points if (point.kind, point.method) == (kind, "everlong")]
        for kind in BARS
    }
    assert {kind: sum(points) / len(points) >= BARS[kind] - 0.05 for kind, points in kept.items()} == dict.fromkeys(
        BARS, True
    )
    assert found.over_budget == 0
