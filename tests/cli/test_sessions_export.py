"""``everlong sessions export``: files that come back as they were, and transcripts that do no harm."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from pathlib import Path

import pytest

from everlong import Message, Store
from everlong.cli.sessions_transfer import export_to
from everlong.store.transcripts import write_transcript
from everlong.store.upkeep.maintenance import stats
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, user
from tests.examples import few, length
from tests.store.engines import ScriptedEngine, summarizing

PIXEL = "data:image/png;base64,iVBORw0KGgo="
EVIL = [
    user("</pre><script>alert(1)</script><img src=x onerror=alert(2)> & \x1b[31mred\x1b[0m \u202etxt"),
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "<b>hm</b>"},
            {"type": "text", "text": "![t](http://tracker.example/x.png)\n````\n# not a heading"},
            {"type": "image_url", "image_url": {"url": 'http://tracker.example/"><script>'}},
            {"type": "image_url", "image_url": {"url": PIXEL}},
            {"type": "<u>odd</u>", "data": "<s>"},
        ],
        "tool_calls": [{"id": "c1", "function": {"name": "<i>sh</i>", "arguments": '{"x": "<script>"}'}}],
    },
    {"role": "tool", "tool_call_id": '"><script>', "content": "```\n</details><iframe src=//evil.example>"},
]


@pytest.fixture
def evil(sessions: Run, store_file: Path) -> Run:
    with Store.open(store_file) as store:
        add_session(store, EVIL, "<script>title</script>", system_prompt="<script>prompt")
    return sessions


def test_whatever_a_message_says_markdown_has_no_markup_of_its(evil: Run) -> None:
    page = evil("export", "--all", "--format", "markdown").out
    outside = re.sub(r"(?ms)^>? ?(`{3,}).*?^>? ?\1$", "", page)
    assert "<script>" in page
    assert re.search(r"(?<!\\)<\w", outside) is None
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_jsonl_comes_back_as_the_same_session_in_another_store(
    run: Run, sessions: Run, store_file: Path, tmp_path: Path
) -> None:
    messages = [user("Where to?"), {**assistant("\ud800 north"), "timestamp": "mine"}, user("Why?")]
    with Store.open(store_file) as store:
        add_session(store, messages, "Way", 5_000.0, model="m-1", user="ada", system_prompt="Be brief.")
    assert sessions("export", "Way", "-o", str(tmp_path / "way.jsonl")).code == 0
    other = ["sessions", "--store", str(tmp_path / "other.db")]
    assert run(*other, "import", str(tmp_path / "way.jsonl")).code == 0
    here, there = sessions("show", "Way", "--json").json, run(*other, "show", "Way", "--json").json
    assert here["messages"] == there["messages"]
    for name in ("id", "title", "source", "user", "model", "started", "system_prompt"):
        assert here["session"][name] == there["session"][name]
    for program in (other, ["sessions", "--store", str(store_file)]):
        again = run(*program, "import", str(tmp_path / "way.jsonl"), "--json").json
        assert (again["known"], again["new"], again["messages"]) == (1, 0, 0)


@pytest.mark.spec("7.6")
def test_a_folder_gets_a_json_log_for_each_session(sessions: Run, store_file: Path, tmp_path: Path) -> None:
    with Store.open(store_file) as store:
        idents = [add_session(store, [user(f"talk {n}"), assistant("yes")]).id for n in range(2)]
    assert sessions("export", "--all", "--format", "json", "-o", f"{tmp_path / 'logs'}/").code == 0
    for ident in idents:
        log = json.loads((tmp_path / "logs" / f"session_{ident}.json").read_text(encoding="utf-8"))
        assert (log["session_id"], len(log["messages"])) == (ident, 2)


MANY = length(10_000, 5_000)


@pytest.mark.parametrize("form", few(["jsonl", "markdown"]))
def test_many_messages_are_written_in_little_memory(tmp_path: Path, form: str) -> None:
    messages: list[Message] = [user(f"{n} " + "words " * 300) if n % 2 else assistant(f"{n}") for n in range(MANY)]
    with Store.open(tmp_path / "store.db") as store:
        one = store.conversations.find(add_session(store, messages).id)
        messages.clear()
        written = 0

        def write(text: str) -> None:
            nonlocal written
            written += len(text)

        tracemalloc.start()
        try:
            assert write_transcript(store, [one], form, write) == MANY  # type: ignore[arg-type]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert written > 900 * MANY
    assert peak < written / 4


@pytest.fixture
def long_talk(sessions: Run, store_file: Path) -> tuple[Run, list[str]]:
    """Forty-five steps with a compaction every tenth, and a reply that broke off."""
    with Store.open(store_file) as store:
        part = store.sessions.start(title="Steps", system_prompt="Be brief.")
        at = store.record([user("step 0")], conversation=part.id)
        part = store.sessions.attach(part.id, at)
        for number in range(1, 45):
            turn = store.turns.begin(at, model="m", session=part.id)
            if number == 15:
                store.turns.finish(turn.id, assistant("half a"), status="cancelled")
                turn = store.turns.begin(at, model="m", session=part.id)
            answered = store.turns.finish(turn.id, assistant(f"done {number - 1}"))
            assert answered.echo_node is not None
            at = store.append(store.branch(at.id), [user(f"step {number}")])
            if number % 10 == 0:
                done = store.compact(at, ScriptedEngine(summarizing(1, 15)), roll_over=part.id)
                assert done.child is not None
                part = store.sessions.get(done.child)
    listed = sessions("list", "--json").json
    assert len(listed) == 1
    return sessions, listed[0]["parts"]


def expected() -> list[str]:
    words = ["step 0"]
    for number in range(1, 45):
        words += ["half a"] if number == 15 else []
        words += [f"done {number - 1}", f"step {number}"]
    return words


def test_any_id_exports_all_words_in_order_once(long_talk: tuple[Run, list[str]]) -> None:
    sessions, parts = long_talk
    assert len(parts) == 5
    (text,) = {sessions("export", part).out for part in parts}
    told = json.loads(text)
    assert (told["kind"], told["id"], told["parts"]) == ("everlong-conversation/1", parts[0], parts)
    assert [message["content"] for message in told["messages"]] == ["Be brief.", *expected()]
    assert len(told["times"]) == len(told["messages"])
    assert [one["content"] for one in told["messages"] if one.get("_status") == "cancelled"] == ["half a"]
    assert len(told["compactions"]) == 4
    for done in told["compactions"]:
        before = told["messages"][done["before_message"] - 1]["content"]
        assert before in {"step 10", "step 20", "step 30", "step 40"}


def test_an_export_adds_nothing_where_it_came_from_and_all_of_it_elsewhere(
    run: Run, long_talk: tuple[Run, list[str]], store_file: Path, tmp_path: Path
) -> None:
    sessions, parts = long_talk
    path = str(tmp_path / "steps.jsonl")
    assert sessions("export", "Steps", "-o", path).code == 0
    with Store.open(store_file) as store:
        before = stats(store)
    again = sessions("import", path)
    assert "1 conversation (1 already there); 0 new messages" in again.err
    with Store.open(store_file) as store:
        after = stats(store)
    assert {name: before[name] for name in ("sessions", "messages", "branches")} == {
        name: after[name] for name in ("sessions", "messages", "branches")
    }
    other = ["sessions", "--store", str(tmp_path / "other.db")]
    assert run(*other, "import", path, "--json").json["new"] == 1
    (one,) = run(*other, "list", "--json").json
    assert (one["id"], one["messages"], one["title"]) == (parts[0], 90, "Steps")
    here, there = (json.loads(ran.out) for ran in (sessions("export", "Steps"), run(*other, "export", "Steps")))
    assert here["messages"] == there["messages"]
    shown = {entry["node"] for entry in sessions("show", "Steps", "--json").json["messages"]}
    assert shown == {entry["node"] for entry in run(*other, "show", "Steps", "--json").json["messages"]}


def test_an_export_writes_through_no_link_that_a_folder_brings_along(tmp_path: Path) -> None:
    mine, clone = tmp_path / "mine", tmp_path / "clone"
    mine.write_text("precious")
    clone.mkdir()
    (clone / f".out.jsonl.{os.getpid()}.partial").symlink_to(mine)
    with Store.open(tmp_path / "store.db") as store:
        at = store.record([user("hello"), assistant("hi")])
        ident = store.sessions.start(at, from_depth=0).id
        with pytest.raises(FileExistsError):
            export_to(store, store.conversations.get(ident), clone / "out.jsonl")
    assert mine.read_text() == "precious"
