"""Conversations in memory: a grown body is known again by its beginning, and by nothing less."""

from __future__ import annotations

import json
import random

from everlong.gateway.lines import Line, Lines, Place
from everlong.gateway.raw import Read, read_body
from everlong.store import Branch


def body_of(*texts: str) -> bytes:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    return json.dumps({"model": "m", "padding": "x" * 300, "messages": messages}).encode()


def kept(lines: Lines, body: bytes, number: int = 1) -> Line:
    read = read_body(body, "messages")
    ends = [entry.end for entry in read.entries]
    places = {count: Branch(number, bytes([count]) * 16, count) for count in range(1, len(ends) + 1)}
    head = Read(read.before, {}, read.start, 0, [])
    line = Line(head, 0, [], ends, list(range(1, len(ends) + 1)), places[len(ends)], None)
    lines.keep(body, line, places)
    return line


def found(lines: Lines, body: bytes) -> Place:
    place = lines.find(body)
    assert place is not None
    return place


def test_a_grown_body_is_known_at_its_longest_known_beginning() -> None:
    lines = Lines()
    line = kept(lines, body_of("one", "two", "three"))
    place = found(lines, body_of("one", "two", "three", "four", "five"))
    assert (place.line, place.number, place.branch.depth) == (line, 3, 3)
    assert found(lines, body_of("one", "two", "three")).number == 3


def test_a_changed_end_is_known_before_the_change_and_a_changed_beginning_is_not() -> None:
    lines = Lines()
    line = kept(lines, body_of(*"abcdefgh"))
    assert found(lines, body_of(*"abcdefgX", "more")).number == 7
    assert found(lines, body_of(*"abcdX")).number in {3, 4}
    assert lines.find(body_of("X", *"bcdefgh")) is None
    lines.forget(line)
    assert lines.find(body_of(*"abcdefgh")) is None
    assert len(lines) == 0


def test_of_conversations_with_one_beginning_each_is_known_by_its_own() -> None:
    lines = Lines()
    every = {number: kept(lines, body_of("the same", f"then {number}", "and so on"), number) for number in range(200)}
    for number, line in every.items():
        place = found(lines, body_of("the same", f"then {number}", "and so on", "more"))
        assert (place.line is line, place.branch.id, place.number) == (True, number, 3)


def test_those_not_used_for_long_go_first_and_all_is_counted_rightly() -> None:
    lines = Lines(most_entries=50)
    dice = random.Random(1)
    for number in range(400):
        kept(lines, body_of(*(f"{number} {place}" for place in range(dice.randint(1, 9)))), number)
        assert sum(len(one.line.ends) for one in lines._kept.values()) <= 50
    assert lines.find(body_of("0 0")) is None
    for one in list(lines._kept.values()):
        lines.forget(one.line)
    assert (lines._places, lines._heads, lines._entries) == ({}, {}, 0)
