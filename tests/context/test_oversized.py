"""Messages that no window holds: what becomes a stub, what the stub says, and what is left alone."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from everlong.context.oversized import SpillLimits, is_stub, spill_oversized
from everlong.model import Message
from everlong.tokens import MessageCounter

LOG = "".join(f"12:{n % 60:02d} worker {n} took {n * 7 % 991} milliseconds\n" for n in range(50_000))
ID = "3f2a9c1b2d4e"


def limits(most: int = 3_000, **more: Any) -> SpillLimits:
    return SpillLimits(most, MessageCounter(), **{"reader": "read_turn", **more})


def asked(*results: str, name: str = "read_file", arguments: str = '{"path": "x.log"}') -> list[Message]:
    """A request, calls, and their results."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number in range(len(results))
    ]
    return [
        {"role": "system", "content": "You read logs."},
        {"role": "user", "content": "What is in the log?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": f"call_{place}", "content": said} for place, said in enumerate(results)),
    ]


def spilled(messages: list[Message], given: SpillLimits | None = None) -> list[Message]:
    return spill_oversized(messages, given or limits(), lambda message: ID if message["role"] != "system" else None)


def test_a_stub_says_what_it_was_how_large_and_how_to_read_it() -> None:
    shown = spilled(asked(LOG))[-1]
    heading, *lines = shown["content"].split("\n")
    first, last = map(int, re.findall(r"first (\d+) and last (\d+) lines", heading)[0])
    assert heading == (
        f'[Tool output of read_file("x.log"): {len(LOG):,} characters, 50,000 lines; shown: first {first} and last '
        f'{last} lines. The whole is message {ID}; read_turn(id="{ID}", page=1) gives it page by page.]'
    )
    whole = LOG.splitlines()
    assert lines == [*whole[:first], "…", *whole[-last:], ""]
    assert shown["tool_call_id"] == "call_0"
    assert is_stub(shown)


def test_the_input_is_not_changed_and_the_same_input_gives_the_same_bytes() -> None:
    messages = asked(LOG, LOG[:900])
    before = copy.deepcopy(messages)
    assert spilled(messages) == spilled(messages)
    assert messages == before


def test_of_several_results_only_the_giants_are_spilled_and_together_they_fit() -> None:
    shown = spilled(asked(LOG, "small enough", LOG[::-1], LOG[:1_000_000]))
    assert [is_stub(message) for message in shown[-4:]] == [True, False, True, True]
    assert MessageCounter().total(shown) <= 3_000


@pytest.mark.parametrize(
    "text",
    ["x" * 2_000_000, "码头上的风从西边吹来，浪高两米。" * 120_000, "Explain this:\n" + '{"a": [1, 2]},' * 140_000],
    ids=["one line", "CJK", "one short line and a giant one"],
)
def test_a_text_without_lines_shows_its_first_and_last_characters(text: str) -> None:
    shown = spilled([{"role": "user", "content": text}])[0]["content"]
    heading, rest = shown.split("\n", 1)
    first, last = (int(number.replace(",", "")) for number in re.findall(r"(?:first|last) ([\d,]+)", heading))
    assert rest == f"{text[:first]}\n…\n{text[-last:]}"
    assert heading.startswith(f"[Message of the user: {len(text):,} characters")
    assert MessageCounter().count_text(shown) <= 3_000


def test_what_the_user_has_just_sent_fills_half_of_the_room_and_a_result_only_so_much() -> None:
    given = limits(10_000, newest_only=True)
    count = MessageCounter().count
    (question,) = spilled([{"role": "user", "content": LOG}], given)
    assert is_stub(question)
    assert 4_000 < count(question) <= 5_000
    assert count(spilled(asked(LOG), given)[-1]) < 2_200
    older: list[Message] = [{"role": "user", "content": LOG}, {"role": "assistant", "content": "Seen."}]
    assert count(spilled([*older, {"role": "user", "content": "And?"}], limits(10_000))[0]) < 2_200


def test_pictures_stay_and_thoughts_are_left_alone() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
    messages: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": LOG}, picture]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": LOG}]},
    ]
    asked_for, answered = spilled(messages)
    assert [part["type"] for part in asked_for["content"]] == ["text", "image_url"]
    assert answered is messages[1]


def test_a_question_beside_a_file_stays_whole() -> None:
    question = {"type": "text", "text": "Which worker was the slowest?", "cache_control": {"type": "ephemeral"}}
    parts = [{"type": "text", "text": "x.log:"}, {"type": "text", "text": LOG}, question]
    (message,) = spilled([{"role": "user", "content": parts}])
    first, stub, last = message["content"]
    assert is_stub(message)
    assert (first, last) == (parts[0], question)
    assert stub["text"].startswith(f"[Message of the user: {len(LOG):,} characters, 50,000 lines; shown: first ")


def test_a_result_that_the_agent_had_capped_names_its_whole_output() -> None:
    mark = (
        '[… 88,000 of 100,000 characters are left out here, lines 9 to 99; read_output(id="0123456789ab", page=2) goes'
    )
    capped = f"{LOG[:6_000]}\n{mark} on …]\n{LOG[-6_000:]}"
    shown = spilled(asked(capped), limits(1_000))[-1]["content"]
    assert "100,000 characters; shown: first" in shown
    assert 'The whole is output 0123456789ab; read_output(id="0123456789ab", page=1) gives it page by page.]' in shown
