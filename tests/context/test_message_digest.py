"""Readings of messages that are made once and kept: for one compaction after another, and ahead of the first."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from everlong.context.frontier import read_frontier
from everlong.context.steps import KnownSteps, read_steps
from everlong.context.summary.clauses import clauses
from everlong.context.summary.key_lines import many_lines
from everlong.context.summary.message_digest import MessageDigests

from everlong import CompletionSummarizer, ContextCompressor, Message
from everlong.context.digest import turn_pieces
from tests.context.builders import assistant, long_session, output, step, system, user
from tests.context.scripted import COUNT, GOOD, Model

SESSION = long_session(40)


def model_engine(model: Model | None = None, window: int = 8_000) -> ContextCompressor:
    return ContextCompressor(window, summarizer=CompletionSummarizer(model or Model(), concurrency=1))


def tool(content: str) -> Message:
    return {"role": "tool", "tool_call_id": "call_1", "content": content}


class CountingCounter:
    """Counts tokens, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, text: str) -> int:
        self.asked += 1
        return COUNT(text)


# -- readings ----------------------------------------------------------------------------------------------------------


def test_kept_pieces_are_those_that_reading_anew_gives() -> None:
    turns = [*SESSION, user("secret token=abc12345def"), *step(1, output(3_000)), assistant("# done\n" * 20)]
    digests = MessageDigests()
    for _ in range(2):
        assert list(digests.pieces(turns, 2_000, COUNT)) == list(turn_pieces(turns, 2_000, COUNT))


def test_a_message_is_read_once_even_if_another_list_brings_it_again() -> None:
    digests, count = MessageDigests(), CountingCounter()
    list(digests.pieces(SESSION, 2_000, count))
    read = count.asked
    list(digests.pieces(copy.deepcopy(SESSION), 2_000, count))
    assert count.asked == read
    list(digests.pieces([*SESSION, user("one more")], 2_000, count))
    assert read < count.asked < read + 8


def test_a_result_is_named_after_the_call_that_it_answers_now() -> None:
    call, result = step(1, "the same result", command="make first")
    other = copy.deepcopy(call)
    other["tool_calls"][0]["function"]["arguments"] = '{"command": "make second"}'
    digests = MessageDigests()
    first = list(digests.pieces([call, result], 2_000, COUNT))
    second = list(digests.pieces([other, result], 2_000, COUNT))
    alone = list(digests.pieces([result], 2_000, COUNT))
    assert "make first" in first[-1].body
    assert "make second" in second[-1].body
    assert alone[-1].body == "the same result"


def test_another_counter_and_smaller_pieces_have_readings_of_their_own() -> None:
    def double(text: str) -> int:
        return 2 * COUNT(text)

    digests, turns = MessageDigests(), [user(output(2_000))]
    for count, room in ((COUNT, 2_000), (double, 2_000), (COUNT, 100), (COUNT, 2_000)):
        assert list(digests.pieces(turns, room, count)) == list(turn_pieces(turns, room, count))


def test_a_changed_message_is_read_anew() -> None:
    digests = MessageDigests()
    message = user("Use port 8443.")
    before = digests.few_lines([message])
    message["content"] = "Use port 9000."
    assert "9000" in digests.few_lines([message])[0][0].text
    assert before[0][0].text == "Use port 8443."


def test_a_line_that_recurs_is_kept_once() -> None:
    digests = MessageDigests()
    same = "port_8443 is the one that everybody listens on, whatever the page says"
    first, second = digests.many_lines([tool(f"{same}\nfirst_name"), tool(f"second_name\n{same}")])
    assert [line.text for line in second] == ["second_name", same]
    assert first[0] is second[1]


def test_a_line_has_the_source_of_the_call_that_it_was_passed_to_and_none_elsewhere() -> None:
    passed = step(1, "port_8443 is open", command="cat port_8443.txt\nport_8443 is open")
    digests = MessageDigests()
    for message in (*passed, tool("port_8443 is open"), *passed):
        assert digests.many_lines([message]) == [many_lines(message)]


def test_the_names_of_a_record_are_not_those_of_the_same_words_on_a_line() -> None:
    record = json.dumps({"first_key": "port_8443", "second_key": "port_9000", "filler": "x" * 80})
    digests = MessageDigests()
    (told,) = digests.many_lines([tool(record)])
    (plain,) = digests.many_lines([tool("\n".join(line.text for line in told))])
    assert [line.entities for line in told] != [line.entities for line in plain]
    assert plain == many_lines(tool("\n".join(line.text for line in told)))


def test_more_lines_than_are_known_at_a_time_are_read_all_the_same() -> None:
    digests = MessageDigests()
    for number in range(300):
        message = tool("\n".join(f"line_{number}_{place} of many" for place in range(60)))
        assert digests.many_lines([message]) == [many_lines(message)]


@pytest.mark.parametrize("mark", ["…", "你好，世界", "😀 done", "\ud800 alone", "é"])
def test_kept_pieces_have_the_words_of_any_script(mark: str) -> None:
    turns = [user(f"{mark} {output(300)}"), tool(f"{output(3_000)}\n{mark}\n{output(3_000)}")]
    digests = MessageDigests()
    for _ in range(2):
        assert list(digests.pieces(turns, 2_000, COUNT)) == list(turn_pieces(turns, 2_000, COUNT))


# -- reading ahead -----------------------------------------------------------------------------------------------------


def read_ahead(engine: ContextCompressor, messages: list[Message]) -> int:
    engine.should_compress_preflight(messages)
    times = 0
    while engine.work_ahead():
        times += 1
    return times


def test_a_compaction_after_reading_ahead_is_the_one_without() -> None:
    pairs = [(model_engine(), model_engine()), (ContextCompressor(8_000), ContextCompressor(8_000))]
    for engine, unread in pairs:
        assert read_ahead(engine, SESSION) > 0
        assert engine.compress(SESSION) == unread.compress(SESSION)


def test_messages_that_were_read_are_not_read_again_as_the_conversation_grows() -> None:
    engine = model_engine()
    assert read_ahead(engine, SESSION) > 0
    assert read_ahead(engine, SESSION) == 0
    assert read_ahead(engine, [*SESSION, user("one more")]) == 1


def test_another_conversation_is_read_from_its_beginning() -> None:
    engine = model_engine()
    read_ahead(engine, SESSION)
    other = [system(), *(user(f"{number} {output(300)}") for number in range(40))]
    assert read_ahead(engine, other) > 0
    assert engine.compress(other) == model_engine().compress(other)


def test_nothing_is_read_of_a_conversation_that_is_far_from_its_threshold() -> None:
    assert read_ahead(model_engine(window=1_000_000), SESSION) == 0
    assert read_ahead(model_engine(), []) == 0
    assert model_engine().work_ahead() is False


def test_a_disabled_engine_reads_nothing_ahead() -> None:
    engine = ContextCompressor(8_000, settings={"enabled": False})
    assert read_ahead(engine, SESSION) == 0


def test_a_reset_forgets_what_was_read() -> None:
    engine = model_engine()
    read_ahead(engine, SESSION)
    engine.on_session_reset()
    assert engine.work_ahead() is False
    assert read_ahead(engine, SESSION) > 0


def test_steps_that_were_read_ahead_make_the_frontier_that_reading_anew_makes() -> None:
    turns = [message for number in range(40) for message in step(number, f"error: no room for {number}")]
    known = KnownSteps()
    known.read_ahead(read_steps(turns[:30]))
    known.read_ahead(read_steps(turns[20:]))
    assert read_frontier(turns, known=known) == read_frontier(turns)


def test_of_steps_that_are_read_ahead_the_newest_are_kept() -> None:
    steps = read_steps([message for number in range(500) for message in step(number, f"result {number}")])
    known = KnownSteps()
    known.read_ahead(steps)
    oldest, newest = known.recall([replace(steps[0]), replace(steps[-1])])
    assert oldest is not steps[0]
    assert newest is steps[-1]


def test_a_large_stretch_is_read_in_bounded_portions() -> None:
    messages = [system(), *(user(f"{number} {output(20_000)}") for number in range(8))]
    assert read_ahead(model_engine(Model(GOOD)), messages) > 1


# -- hostile texts -----------------------------------------------------------------------------------------------------


def test_a_dropped_file_is_no_clause_and_thousands_of_slashes_do_no_harm() -> None:
    said = clauses("'/Users/me/shots/crash.png' Please fix the crash of the parser.")
    assert [clause.text for clause in said] == ["fix the crash of the parser"]
    assert clauses("/" + "./-/=." * 3_000 + "' fix it") is not None  # cubic before: it would take hours


# -- steps -------------------------------------------------------------------------------------------------------------


def test_steps_that_were_read_before_give_the_same_frontier_wherever_they_stand() -> None:
    turns = [user("Fix it."), *step(1, "Error: port 8443 is taken", command="make"), *step(2, "ok", command="ls")]
    known = KnownSteps()
    for messages in (turns, turns, turns[1:], [user("hello"), *turns], [*turns, *step(3, "1 failed", command="make")]):
        assert read_frontier(messages, known=known) == read_frontier(messages)
