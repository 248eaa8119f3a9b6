"""Whatever a model sends, a message comes back that can be sent and that says what to do next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from everlong.agent.tools import builtin_tools, tool
from everlong.agent.tools.toolbox import cap
from everlong.errors import ToolError, ToolInterrupted
from everlong.model import ToolCall
from everlong.store.outputs import page_ends
from everlong.store.store import redacted_message
from everlong.wire.anthropic import INVALID
from tests.agent.desk import Desk
from tests.examples import examples


def echo(value: Any = None) -> Any:
    """Give back what came."""
    return value


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ('{"path": "a', "are not valid JSON (Unterminated string starting at: line 1 column 10 (char 9)), so nothing"),
        ('{"path": "a', "They seem to be cut off; send less at once."),
        ("{path: 1}", "Send them again as one valid JSON object."),
        ("[1]", "must be a JSON object"),
        (json.dumps({INVALID: '{"path": "a'}), "are not valid JSON, so nothing was done."),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_are_no_json_object_are_answered_with_what_is_wrong(
    desk: Desk, arguments: str, sentence: str
) -> None:
    result = desk.call("read_file", arguments)
    assert result.outcome == "failed"
    assert sentence in result.message["content"]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("the tide is out"), "sink failed: ValueError: the tide is out"),
        (ToolError("There is no water."), "There is no water."),
        (SystemExit(3), "sink failed: SystemExit: 3"),
        (UnspeakableError(), "sink failed: UnspeakableError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_tool_that_raises_is_a_failed_call_without_a_traceback(desk: Desk, error: BaseException, said: str) -> None:
    def sink() -> str:
        raise error

    assert desk.with_tools([tool(sink)]).failed("sink") == said


def test_after_an_interrupt_no_tool_is_begun_and_one_that_runs_may_say_how_far_it_came(desk: Desk) -> None:
    def row() -> str:
        raise ToolInterrupted("half way")

    desk.with_tools([tool(row)])
    assert (desk.run("row").outcome, desk.run("row").message["content"]) == ("interrupted", "half way")
    desk.context.interrupted.set()
    result = desk.run("row")
    assert (result.outcome, result.message["is_error"]) == ("interrupted", True)
    assert "nothing was done" in result.message["content"]


def test_a_long_output_shows_beginning_and_end_and_the_rest_can_be_read_in_pages(desk: Desk) -> None:
    lines = "".join(f"line {number} of the log\n" for number in range(5_000))
    result = desk.with_tools([*builtin_tools(), tool(echo)]).run("echo", value=lines)
    text = result.message["content"]
    assert len(text) <= desk.context.output_chars
    assert text.startswith("line 0 of the log\n")
    assert text.endswith("line 4999 of the log\n")
    assert result.whole == lines
    ident = desk.store.outputs.ident(lines)
    assert f'read_output(id="{ident}", page=2)' in text

    assert f"there is no stored output '{ident}'" in desk.failed("read_output", id=ident)
    at = desk.store.record([{"role": "user", "content": "go"}, result.message])
    desk.store.outputs.keep(at.head, result.whole)
    head, _, _ = text.partition("[…")
    read = [desk.done("read_output", id=ident, page=page).split("\n", 1) for page in range(1, 15)]
    assert read[0] == [f"[output {ident}, page 1 of 14; page=2 goes on]", head]
    assert read[-1][0] == f"[output {ident}, page 14 of 14, the last one]"
    assert "".join(page for _, page in read) == lines
    assert desk.failed("read_output", id=ident, page=15) == "there is no page 15; it has 14"


def test_where_the_store_redacts_pages_are_those_of_what_it_keeps(desk: Desk) -> None:
    desk.store.redact = redacted_message
    secret = "OPENAI_API_KEY=sk-abcdefghijklmnopqrstuvwx0123456789"  # noqa: S105 - made up
    lines = "".join(f"{secret} {number}\n" for number in range(1_000))
    result = desk.with_tools([*builtin_tools(), tool(echo)]).run("echo", value=lines)
    assert result.whole is not None
    assert "sk-abc" not in result.whole
    at = desk.store.record([{"role": "user", "content": "go"}, result.message])
    desk.store.outputs.keep(at.head, result.whole)
    head, _, rest = result.message["content"].partition("[…")
    ident = rest.partition('id="')[2][:12]
    second = desk.done("read_output", id=ident, page=2).split("\n", 1)[1]
    assert (head + second) == result.whole[: len(head) + len(second)]


UNITS = st.text(st.sampled_from("ab \n\r.é漢😀"), min_size=1, max_size=60)


@given(UNITS, st.integers(1_000, 3_000), st.integers(1, 9_000))
def test_capping_keeps_the_bound_the_beginning_and_the_end_and_counts_rightly(unit: str, limit: int, more: int) -> None:
    page = limit * 2 // 3
    text = (unit * (limit + more))[: limit + more]
    shown = cap(text, limit, page, "0" * 12)
    assert len(shown) <= limit
    head, mark, rest = shown.partition("[… ")
    first = page_ends(text, page)[0]
    assert text[:first] == head[:first]
    assert head[first:] in {"", "\n"}
    said, _, tail = rest.partition(" …]\n")
    assert mark
    assert text.endswith(tail)
    assert int(said.split(" of ")[0].replace(",", "")) == len(text) - first - len(tail)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["path", "pattern", "glob", "old", "new", "content", "query", "id", "page", "items", "lines", "start_line"]
ARGUMENTS = st.one_of(
    st.text(max_size=30),
    JSON.map(json.dumps),
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4).map(json.dumps),
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([one.name for one in builtin_tools()] + ["nonsense"]), arguments=ARGUMENTS)
def test_nothing_that_a_model_can_send_raises(desk: Desk, name: str, arguments: str) -> None:
    desk.answer = "no" if name == "run_command" else "once"
    result = desk.toolbox.run(ToolCall("c", name, arguments), desk.context, desk.approvals)
    assert isinstance(result.message["content"], str)
    assert result.message["content"].strip()
    json.dumps(result.message).encode()
    assert result.message["content"].encode("utf-8")


def test_the_list_is_answered_with_the_state_of_each_item_and_told_in_one_line(desk: Desk) -> None:
    items = [
        {"text": "Paint the buoy", "status": "done"},
        {"text": "Light it", "status": "in_progress"},
        {"text": "Sail"},
    ]
    assert desk.done("update_todo", items=items) == "[x] Paint the buoy\n[>] Light it\n[ ] Sail"
    assert desk.done("update_todo", items=[]) == "[the list is empty]"
    assert "'items.0.text' is missing" in desk.failed("update_todo", items=[{"status": "done"}])
