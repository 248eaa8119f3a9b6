"""The frontier: where the work stands after a compaction, read from the messages and carried on to the next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from everlong.context.frontier import Frontier, inherited_frontier, place_frontier, read_frontier, without_frontier

from everlong import ContextCompressor, Message
from everlong.context.literals import is_summary, summary_body
from everlong.model import text_of
from tests.context.builders import assistant, user


def call(number: int, name: str, result: str | None, /, **arguments: Any) -> list[Message]:
    made: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        ],
    }
    return [made] if result is None else [made, {"role": "tool", "tool_call_id": f"c{number}", "content": result}]


def states(frontier: Frontier) -> list[tuple[str, str]]:
    return [(item.state, item.text) for item in frontier.plan]


def bash(number: int, command: str, result: str | None) -> list[Message]:
    return call(number, "bash", result, command=command)


WANTED = [("completed", "Read the berth tables"), ("in_progress", "Write the parser"), ("pending", "Test it")]


@pytest.mark.spec("9.7")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TodoWrite", {"todos": [{"content": t, "status": s, "activeForm": t} for s, t in WANTED]}),
        ("update_plan", {"explanation": "now", "plan": [{"step": t, "status": s} for s, t in WANTED]}),
        ("todowrite", {"todos": [{"id": str(n), "content": t, "status": s} for n, (s, t) in enumerate(WANTED)]}),
        (
            "update_todo",
            {"items": [{"text": t, "status": "done" if s == "completed" else s} for s, t in WANTED]},
        ),
        ("manage_todo_list", {"todoList": [{"id": n, "title": t, "status": s} for n, (s, t) in enumerate(WANTED)]}),
        (
            "read_file",
            {"path": "a.py", "task_progress": "- [x] Read the berth tables\n- [~] Write the parser\n- [ ] Test it"},
        ),
    ],
)
def test_a_plan_is_read_whatever_its_tool_is_called(name: str, arguments: dict[str, Any]) -> None:
    found = read_frontier([user("Import the berth tables."), *call(1, name, "ok", **arguments)])
    assert states(found) == WANTED


def test_single_items_are_added_changed_merged_and_removed() -> None:
    found = read_frontier(
        [
            user("Import the berth tables."),
            *call(1, "TaskCreate", "Task #1 created successfully", subject="Read the berth tables"),
            *call(2, "TaskCreate", "Task #2 created successfully", subject="Write the parser"),
            *call(3, "TaskCreate", "Task #3 created successfully", subject="Ask about berth 9"),
            *call(4, "TaskUpdate", "Updated task #1 status", taskId="1", status="completed"),
            *call(5, "TaskUpdate", "Updated task #2 status", taskId="2", status="in_progress"),
            *call(6, "TaskUpdate", "Deleted task #3", taskId="3", status="deleted"),
        ]
    )
    assert states(found) == WANTED[:2]
    merged = read_frontier(
        [
            user("Import the berth tables."),
            *call(1, "todo_write", "ok", todos=[{"id": "a", "content": "Read", "status": "pending"}], merge=False),
            *call(2, "todo_write", "ok", todos=[{"id": "a", "status": "completed"}], merge=True),
            *call(3, "todo", "Added todo #2: Write", action="add", text="Write"),
            *call(4, "todo", "Todo #2 completed", action="toggle", id=2),
        ]
    )
    assert states(merged) == [("completed", "Read"), ("completed", "Write")]


def test_a_plan_that_was_refused_is_none_and_a_list_that_the_agent_says_counts_without_a_tool() -> None:
    refused = call(
        1, "TodoWrite", "<tool_use_error>invalid</tool_use_error>", todos=[{"content": "A", "status": "pending"}]
    )
    assert states(read_frontier([user("Go."), *refused])) == []
    said = assistant("The plan:\n- [x] Read the berth tables\n- [ ] Test it")
    assert states(read_frontier([user("Go."), said, *bash(1, "ls", "a.py")])) == [WANTED[0], WANTED[2]]


@pytest.mark.spec("9.7")
def test_an_error_is_open_until_the_same_command_succeeds() -> None:
    failed = bash(1, "cd app && npm run check 2>&1 | tail -5", "src/a.ts(3,1): error TS2304: Cannot find name 'berth'.")
    other = bash(2, "cd app && npm run build", "built")
    mended = bash(3, "cd app && npm run check", "")
    asked = user("Mend the types.")
    found = read_frontier([asked, *failed, *other])
    assert [error.text for error in found.errors] == ["src/a.ts(3,1): error TS2304: Cannot find name 'berth'."]
    assert read_frontier([asked, *failed, *other, *mended]).errors == ()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (bash(1, "/usr/bin/python3 -m pytest t.py", "/usr/bin/python3: No module named pytest\nExit code 1"),
         bash(2, "pytest t.py", "3 passed")),
        (bash(1, "grep x src/editor.ts", "grep: src/editor.ts: No such file or directory"),
         bash(2, "grep x src/a.ts", "x")),
        (call(1, "edit", "<error>old text not found</error>", path="a.py", old="x"),
         call(2, "edit", "Edited a.py", path="a.py", old="y")),
        (call(1, "book", "Error: paid 255 of 305", id="A1"), call(2, "book", '{"id": "A1", "paid": 305}', id="A1")),
        (call(1, "Skill", "<tool_use_error>Unknown skill: commit</tool_use_error>", skill="commit"),
         bash(2, "git commit -m 'Import berths'", "[main 1a2b3c4] Import berths")),
    ],
)  # fmt: skip
def test_what_a_later_call_made_good_is_closed(first: list[Message], then: list[Message]) -> None:
    assert len(read_frontier([user("Go on."), *first]).errors) == 1
    assert read_frontier([user("Go on."), *first, *then]).errors == ()


def test_a_search_without_a_hit_and_a_command_that_a_person_broke_off_are_no_errors() -> None:
    found = read_frontier(
        [
            user("Look."),
            *bash(1, "grep -n x a.py", "Command exited with code 1"),
            *bash(2, "npm test", "Command aborted"),
        ]
    )
    assert found.errors == ()
    assert found.stopped == ("npm test",)


def test_files_in_hand_are_those_that_were_changed_and_still_are() -> None:
    script = "cat <<'EOF' > fix.py\np = 'src/berths.py'\nopen(p, 'w').write('x')\nEOF\npython fix.py"
    found = read_frontier(
        [
            user("Mend the import."),
            *call(1, "read", "text", path="src/other.py"),
            *bash(2, "sed -i '12s/a/b/' src/tables.py", ""),
            *bash(3, script, ""),
            *bash(4, "rm fix.py && git checkout src/tables.py", ""),
            *call(5, "write", "ok", path="tests/test_berths.py", content="..."),
        ]
    )
    assert [file.path for file in found.files] == ["src/berths.py", "tests/test_berths.py"]


def test_a_task_that_ended_leaves_no_files_in_hand_and_no_error_that_was_worked_around() -> None:
    messages = [
        user("Mend the import."),
        *bash(1, "npx tsc src/a.ts", "src/a.ts(1,1): error TS1343: not allowed"),
        *bash(2, "npm run build", "built"),
        *call(3, "edit", "ok", path="src/a.ts", new_string="const berth = 9"),
        assistant("It builds."),
        user("Now the README."),
    ]
    found = read_frontier(messages)
    assert (found.files, found.errors, found.request) == ((), (), "Now the README.")
    stuck = [user("Publish it."), *bash(1, "publish", "Error: no session"), assistant("It has none."), user("/publish")]
    assert [error.text for error in read_frontier(stuck).errors] == ["Error: no session"]


def test_processes_run_until_they_are_stopped() -> None:
    started = bash(
        1, "npm run dev", "Command running in background with ID: b5798f9. Listening on http://localhost:5173"
    )
    found = read_frontier([user("Start it."), *started])
    assert [(process.id, process.ports) for process in found.running] == [("b5798f9", ("5173",))]
    stopped = call(2, "KillShell", "Successfully killed shell: b5798f9", shell_id="b5798f9")
    assert read_frontier([user("Start it."), *started, *stopped]).running == ()


def test_what_a_summary_states_is_read_back_word_for_word() -> None:
    messages = [
        user("Import the berth tables."),
        *call(1, "TodoWrite", "ok", todos=[{"content": t, "status": s} for s, t in WANTED]),
        *call(2, "edit", "ok", path="src/berths.py", new_string="def load(path):\n    ..."),
        *bash(
            3, "pytest tests/test_berths.py", "FAILED tests/test_berths.py::test_load - KeyError: 'draught'\n1 failed"
        ),
        *bash(4, "npm run dev", "Command running in background with ID: b5798f9. http://localhost:5173"),
    ]
    found = read_frontier(messages)
    text = place_frontier("## Goal\n- Import the berth tables.", found, 4_000, len)
    again = inherited_frontier(text)
    assert again is not None
    assert states(again) == WANTED
    assert (again.files, again.running) == (found.files, found.running)
    assert [error.text for error in again.errors] == [error.text for error in found.errors]
    assert "Plan (" not in without_frontier(text)
    mended = read_frontier(bash(5, "pytest tests/test_berths.py", "4 passed"), again)
    assert (mended.errors, states(mended)) == ((), WANTED)


class Prose:
    """A model that always writes the same."""

    name = "prose"

    def summarize(self, request: object) -> str:
        del request
        return (
            "## Goal\n- Import the berth tables of the harbour planner.\n## Progress\n### Done\n- Looked at the tables."
        )


@pytest.mark.spec("9.7")
@pytest.mark.parametrize("summarizer", [None, Prose()])
def test_every_compaction_states_the_frontier(summarizer: Prose | None) -> None:
    engine = ContextCompressor(16_000, summarizer=summarizer)
    context: list[Message] = [
        user("Import the berth tables of the harbour planner."),
        *call(0, "TodoWrite", "ok", todos=[{"content": t, "status": s} for s, t in WANTED]),
        *bash(
            1, "pytest tests/test_berths.py", "FAILED tests/test_berths.py::test_load - KeyError: 'draught'\n1 failed"
        ),
    ]
    for round_ in range(3):
        for number in range(30):
            context += call(
                100 * round_ + number + 2, "read", f"table of berth {number} " * 60, path=f"data/{number}.csv"
            )
        with engine.keeping(4):
            context = engine.compress(context, force=True)
        text = "\n".join(summary_body(message) for message in context if is_summary(message))
        stated = inherited_frontier(text)
        assert stated is not None
        assert states(stated) == WANTED
        assert [error.text for error in stated.errors] == [
            "FAILED tests/test_berths.py::test_load - KeyError: 'draught'"
        ]


def test_a_long_request_in_force_stands_whole_however_little_is_kept() -> None:
    asked = "Please mend the tide tables. " + " ".join(f"Berth {number} must not move." for number in range(300))
    messages: list[Message] = [{"role": "user", "content": asked}]
    for number in range(12):
        messages += call(number, "bash", f"ok {number}\n" + "row\n" * 40, command=f"make berth-{number}")
    messages.insert(21, {"role": "user", "content": "<system-reminder>The format was wrong.</system-reminder>"})
    engine = ContextCompressor(32_000, settings={"protect_last_n": 4})
    with engine.keeping(2):
        context = engine.compress(messages, force=True)
    assert engine.last_report is not None
    assert engine.last_report.outcome == "summarized"
    assert any(text_of(message) == asked for message in context)
