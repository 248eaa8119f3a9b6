from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.errors import TranscriptError
from everlong.wire import read_transcript, to_anthropic
from everlong.wire.logs import LogRun
from everlong.wire.logs.claude_code import read_claude_code
from tests.steps import steps_of

Entry = dict[str, Any]


def line(kind: str, uuid: str, parent: str | None, message: Any = None, **more: Any) -> Entry:
    entry = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "isSidechain": False, **more}
    return entry if message is None else {**entry, "message": message}


def says(uuid: str, parent: str | None, content: Any, **more: Any) -> Entry:
    return line("user", uuid, parent, {"role": "user", "content": content}, **more)


def replies(uuid: str, parent: str | None, reply: str, *blocks: Any, **more: Any) -> Entry:
    message = {"id": reply, "role": "assistant", "model": "claude-x", "content": list(blocks), "usage": {"n": 1}}
    return line("assistant", uuid, parent, message, requestId="r", **more)


def answers(uuid: str, parent: str | None, call_id: str, **more: Any) -> Entry:
    return says(uuid, parent, [result(call_id)], toolUseResult={"stdout": "…"}, **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": f"of {call_id}"}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def said(run: LogRun) -> list[dict[str, Any]]:
    return to_anthropic(run.messages)[1]


def only(runs: list[LogRun]) -> list[dict[str, Any]]:
    (run,) = (one for one in runs if not one.is_abandoned)
    return said(run)


SIMPLE = [says("u1", None, "List the files."), replies("a1", "u1", "m1", text("There are none."))]


def test_the_messages_of_a_log_are_those_that_the_model_saw() -> None:
    log = read_claude_code(SIMPLE)
    assert only(log) == [user("List the files."), assistant(text("There are none."))]
    assert (log[0].facts.session, log[0].facts.model) == ("s1", "claude-x")


def test_the_lines_of_one_reply_are_one_message() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    log = read_claude_code(
        [
            SIMPLE[0],
            replies("a1", "u1", "m1", thinking),
            replies("a2", "a1", "m1", text("I look.")),
            replies("a3", "a2", "m1", use("t1")),
            answers("u2", "a3", "t1"),
        ]
    )
    assert only(log) == [user("List the files."), assistant(thinking, text("I look."), use("t1")), user([result("t1")])]


PARALLEL = {
    "a result on each block": [
        replies("a1", "u1", "m1", use("t1")),
        replies("a2", "a1", "m1", use("t2")),
        answers("r1", "a1", "t1"),
        answers("r2", "a2", "t2"),
        replies("a3", "r2", "m2", text("Done.")),
    ],
    "results between the blocks": [
        replies("a1", "u1", "m1", use("t1")),
        answers("r1", "a1", "t1"),
        replies("a2", "r1", "m1", use("t2")),
        answers("r2", "a2", "t2"),
        replies("a3", "r2", "m2", text("Done.")),
    ],
    "the conversation goes on from the first": [
        replies("a1", "u1", "m1", use("t1")),
        replies("a2", "a1", "m1", use("t2")),
        answers("r2", "a2", "t2"),
        answers("r1", "a1", "t1"),
        replies("a3", "r1", "m2", text("Done.")),
    ],
    "one after the other": [
        replies("a1", "u1", "m1", use("t1")),
        replies("a2", "a1", "m1", use("t2")),
        answers("r1", "a2", "t1"),
        answers("r2", "r1", "t2"),
        replies("a3", "r2", "m2", text("Done.")),
    ],
}


@pytest.mark.parametrize("entries", PARALLEL.values(), ids=PARALLEL)
def test_parallel_calls_and_their_results_are_united(entries: list[Entry]) -> None:
    log = read_claude_code([SIMPLE[0], *entries])
    asked, called, answered, done = only(log)
    assert asked == user("List the files.")
    assert called == assistant(use("t1"), use("t2"))
    assert sorted(block["tool_use_id"] for block in answered["content"]) == ["t1", "t2"]
    assert done == assistant(text("Done."))


def test_what_claude_code_added_to_a_parallel_result_is_kept() -> None:
    entries = [
        replies("a1", "u1", "m1", use("t1")),
        replies("a2", "a1", "m1", use("t2")),
        answers("r1", "a1", "t1"),
        says("k1", "r1", [text("How this skill works: …")], isMeta=True),
        answers("r2", "a2", "t2"),
        replies("a3", "r2", "m2", text("Done.")),
    ]
    log = read_claude_code([SIMPLE[0], *entries])
    assert only(log)[2:] == [
        user([result("t1"), result("t2")]),
        user([text("How this skill works: …") | {"_added": True}]),
        assistant(text("Done.")),
    ]


def test_lines_that_are_no_messages_are_left_out_but_their_links_followed() -> None:
    log = read_claude_code(
        [
            {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
            SIMPLE[0],
            line("system", "y1", "u1", subtype="informational", content="Hook ran."),
            line("progress", "p1", "y1", data={}),
            replies("a1", "p1", "m1", text("Hello.")),
            replies("e1", "a1", "m2", text("API Error: 529"), isApiErrorMessage=True),
            says("u2", "e1", "Again?"),
            {"type": "summary", "summary": "Files", "leafUuid": "a1"},
        ]
    )
    assert only(log) == [user("List the files."), assistant(text("Hello.")), user("Again?")]


def test_history_written_again_under_new_uuids_in_a_second_section_is_dropped() -> None:
    first = [
        *SIMPLE,
        says("u2", "a1", "Look again."),
        replies("a2", "u2", "m2", use("t1")),
        answers("r1", "a2", "t1"),
        replies("a3", "r1", "m3", text("One.")),
    ]
    second = [
        {**entry, "uuid": f"new-{entry['uuid']}", "parentUuid": entry["parentUuid"] and f"new-{entry['parentUuid']}"}
        for entry in first
    ]
    again = [{**entry, "sessionId": "s2"} for entry in [*second, says("u9", "new-a3", "Thanks.")]]
    log = read_claude_code([*first, *again])
    assert only(log) == [*only(read_claude_code(first)), user("Thanks.")]
    assert log[-1].facts.session == "s2"


def test_a_branch_that_was_rewound_is_left_out() -> None:
    log = read_claude_code(
        [
            *SIMPLE,
            says("u2", "a1", "Delete them."),
            replies("a2", "u2", "m2", text("Which?")),
            says("u3", "a1", "Make one."),
            replies("a3", "u3", "m3", text("Made.")),
        ]
    )
    assert only(log)[2:] == [user("Make one."), assistant(text("Made."))]
    (abandoned,) = (one for one in log if one.is_abandoned)
    assert said(abandoned) == [*only(read_claude_code(SIMPLE)), user("Delete them."), assistant(text("Which?"))]


def test_each_abandoned_branch_is_there_once_with_all_results_of_parallel_calls() -> None:
    log = read_claude_code(
        [
            *SIMPLE,
            says("u2", "a1", "Look."),
            replies("a2", "u2", "m2", use("t1")),
            replies("a3", "a2", "m2", use("t2")),
            answers("r1", "a2", "t1"),
            answers("r2", "a3", "t2"),
            says("u3", "a1", "Wait."),
            says("u4", "a1", "Make one."),
            replies("a4", "u4", "m4", text("Made.")),
        ]
    )
    looked, waited = (said(one) for one in log if one.is_abandoned)
    assert [message["role"] for message in looked[2:]] == ["user", "assistant", "user"]
    assert len(looked[-1]["content"]) == 2
    assert waited[2:] == [user("Wait.")]


def test_sub_agents_one_after_another_have_their_own_words_only() -> None:
    entries = [says("u0", None, "Go")]
    entries += [says(f"u{at}", f"u{at - 1}", f"Part {at}", isSidechain=True, agentId=f"a{at}") for at in range(1, 300)]
    runs = read_claude_code(entries)
    assert sum(len(run.messages) for run in runs) == len(entries) == len(runs)


def test_sub_agents_are_conversations_of_their_own_after_the_main_one() -> None:
    log = read_claude_code(
        [
            says("x1", None, "Search.", isSidechain=True),
            SIMPLE[0],
            replies("a1", "u1", "m1", use("t1")),
            replies("x2", "x1", "m7", text("Found."), isSidechain=True),
            says("z1", None, "Plan.", isSidechain=True, agentId="plan7"),
            answers("r1", "a1", "t1"),
            replies("z2", "z1", "m8", text("Planned."), isSidechain=True, agentId="plan7"),
        ]
    )
    assert [run.facts.agent for run in log] == [None, "x1", "plan7"]
    assert said(log[0]) == [user("List the files."), assistant(use("t1")), user([result("t1")])]
    assert said(log[1]) == [user("Search."), assistant(text("Found."))]
    assert said(log[2]) == [user("Plan."), assistant(text("Planned."))]


def compacted(**boundary: Any) -> list[Entry]:
    return [
        line("system", "b1", None, subtype="compact_boundary", content="Conversation compacted", **boundary),
        says("c1", "b1", "This session is being continued: …", isCompactSummary=True),
        replies("a2", "c1", "m2", text("Going on.")),
    ]


def test_turns_that_were_summarized_are_given_themselves_where_the_file_has_them() -> None:
    expected = [user("List the files."), assistant(text("There are none.")), assistant(text("Going on."))]
    for boundary in ({"logicalParentUuid": "a1"}, {}):
        log = read_claude_code([*SIMPLE, *compacted(**boundary)])
        assert only(log) == expected


# -- as files ---------------------------------------------------------------------------------------------------------


def jsonl(entries: list[Entry]) -> str:
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def test_a_log_is_recognised_described_and_written_as_anthropic_messages() -> None:
    snapshot = {"type": "file-history-snapshot", "snapshot": {}}
    entries = [snapshot, *SIMPLE, replies("a2", "a1", "m1", use("t1")), answers("r1", "a2", "t1")]
    transcript = read_transcript(jsonl(entries))
    conversation = transcript.conversations[0]
    assert transcript.kind == "claude-code"
    assert transcript.describe() == ("a Claude Code session log of 1 conversation with 3 messages")
    assert (conversation.id, conversation.model) == ("s1", "claude-x")
    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "tool"]
    written = transcript.render([conversation.messages])
    assert json.loads(written) == only(read_claude_code(entries))
    assert read_transcript(written).kind == "anthropic-messages"


UUIDS = st.sampled_from(["u1", "u2", "u3", "u4", "gone"])
CONTENTS = st.sampled_from(
    ["hi", "", None, [], 5, [5], [text("x")], [use("t1")], [result("t1")], [use("t2"), text("y")]]
)
WILD = st.builds(
    lambda kind, uuid, parent, content, more: {
        **line(kind, uuid, parent, {"role": "user", "content": content, "id": parent}),
        **more,
    },
    st.sampled_from(["user", "assistant", "system"]),
    UUIDS | st.none(),
    UUIDS | st.none(),
    CONTENTS,
    st.dictionaries(
        st.sampled_from(["isSidechain", "agentId", "isCompactSummary", "message", "sessionId", "subtype", "uuid"]),
        st.sampled_from([True, None, "s2", 5, [], "compact_boundary"]),
        max_size=2,
    ),
)


@given(entries=st.lists(WILD, min_size=1, max_size=8))
def test_whatever_the_links_a_log_is_read_or_refused_in_words(entries: list[Entry]) -> None:
    with suppress(TranscriptError):
        transcript = read_transcript(jsonl(entries))
        transcript.render([conversation.messages for conversation in transcript.conversations])


@pytest.mark.parametrize("kind", ["progress", "user"])
def test_the_work_to_read_grows_with_the_log_and_not_faster(kind: str) -> None:
    def work(count: int) -> int:
        chain = [line(kind, f"p{n}", f"p{n - 1}" if n else None, isSidechain=True) for n in range(count)]
        ends = [says(f"q{n}", f"p{count - 1}", f"question {n}", isSidechain=True) for n in range(count)]
        return steps_of(lambda: read_claude_code([*chain, *ends]))

    assert work(400) < 5 * work(100)
