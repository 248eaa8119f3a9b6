"""The chronicle: the built-in summary quotes what was said and what came of it, and guesses nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from everlong import ContextCompressor, ExtractiveSummarizer, Message, SummaryRequest
from everlong.context.chronicle import Chronicle
from everlong.context.document import SECTIONS, SummaryDocument
from everlong.context.record import read_steps
from everlong.tokens import EstimatingCounter
from tests.context.builders import assistant, call, long_session, output, summary_text, user

COUNT = EstimatingCounter().count_text
GUESSED = ("Constraints & Preferences", "Key Decisions", "Resolved Questions", "Next Steps", "Tools & Patterns")


def bash(number: int, command: str, result: str | None) -> list[Message]:
    return call(number, "bash", result, command=command)


TALK = [
    user("Move the berth planner to port_8443."),
    *bash(1, "pytest tests/test_ports.py", "FAILED tests/test_ports.py::test_open\n<returncode>1</returncode>"),
    *call(2, "edit", "ok", path="src/ports.py", old="1", new="2"),
    assistant("The port is set in src/ports.py. The tests come next."),
    user("Thanks, go on."),
    *bash(3, "pytest tests/test_ports.py", "4 passed\n<returncode>0</returncode>"),
    *bash(4, "npm run build", "error: berth_count is missing\n<returncode>2</returncode>"),
    assistant("The tests pass; the build does not."),
    user("Add berth 17 to data/berths.csv."),
    *bash(5, "echo 17 >> data/berths.csv", "<returncode>0</returncode>"),
    assistant("Berth 17 is in."),
]


def told(messages: list[Message], budget: int = 2_000, **more: Any) -> SummaryDocument:
    return SummaryDocument.parse(Chronicle().extended(messages).write(budget, COUNT, **more))


@pytest.mark.spec("5.3")
def test_only_the_sections_that_structure_can_fill_are_written() -> None:
    document = told(TALK, newest="Add berth 17 to data/berths.csv.")
    assert [section for section in GUESSED if document.items[section]] == []
    headings = re.findall(r"^##+ (.*)$", document.render(), re.MULTILINE)
    assert [heading for heading in headings if heading != "Progress"] == [s for s in SECTIONS if document.items[s]]
    assert document.items["Goal"] == ['- First request: "Move the berth planner to port_8443." (turn 1)']
    assert document.items["Pending User Asks"][0].endswith('"Add berth 17 to data/berths.csv." (turn 3)')


def test_turns_are_told_in_order_with_their_numbers_and_what_came_of_them() -> None:
    done = told(TALK).items["Done"]
    assert [re.match(r"- turn (\d+)", item)[1] for item in done if item] == ["1", "3"]  # type: ignore[index]
    assert '→ "The tests pass; the build does not."; ' in done[0]  # what came last, with the outcomes of commands
    assert "`pytest tests/test_ports.py` → 4 passed; `npm run build` failed → error: berth_count is missing" in done[0]
    assert '"Add berth 17 to data/berths.csv." → "Berth 17 is in."' in done[1]
    assert told(TALK[:3]).items["Done"] == []  # a turn under way has no outcome yet
    assert "`edit" not in done[0]  # a changed file stands among the files
    assert "- src/: ports.py (edited)" in told(TALK).items["Relevant Files"]


def test_a_quotation_that_is_too_long_keeps_its_first_sentence_before_one_with_more_names() -> None:
    asked = "We now sell tickets for 78% of all berths of the harbour. The old page said so in Berth.md and in Pier.md."
    turns = [m for n in range(12) for m in (user(f"In week_{n}: {asked}"), assistant("Yes."))]
    assert "harbour. …" in "\n".join(told(turns, 420).items["Done"])


def test_a_quotation_that_is_too_long_loses_courtesy_first() -> None:
    asked = "Thanks for that! I moved the ferry to pier_12, because the old one leaks, and Mira wants a lamp there."
    turns = [m for n in range(12) for m in (user(f"Berth_{n}: {asked}"), assistant("Yes."))]
    done = "\n".join(told(turns, 420).items["Done"])
    assert '- turn 3, "… I moved the ferry to pier_12, because the old one leaks, and Mira wants a lamp there."' in done


def test_a_sentence_that_is_too_long_is_cut_from_its_end_and_never_inside() -> None:
    reason = "because fog comes earlier each year now"
    asked = f"I want lamps on pier_7 (for fog, snow, rain), {reason}, so that they see Dock.md"
    turns = [m for n in range(12) for m in (user(f"Berth_{n}: {asked}, can you help?"), assistant("Yes."))]
    done = re.findall(r'- turn (\d+), "(.*?)(?: …)?"', "\n".join(told(turns, 420).items["Done"]))
    rest = [f"Berth_{int(number) - 1}: {asked}".partition(words) for number, words in done]
    assert {(before, after[:1]) for before, _, after in rest} <= {("", ","), ("", "")}
    assert ", so that they see Dock.md" in {after for _, _, after in rest}, done


def test_of_too_many_turns_those_that_name_something_stay() -> None:
    named = [user("I met Laura on the ferry to Blue Horizon in 2019."), assistant("How nice.")]
    asked = [m for _ in range(60) for m in (user("How do I say that in a better way?"), assistant("Like this."))]
    quoted = "\n".join(told([user("Help me write a letter."), assistant("Gladly."), *named, *asked], 420).items["Done"])
    assert "I met Laura on the ferry to Blue Horizon in 2019." in quoted


@pytest.mark.parametrize("said", ["/mode", "Thanks!", "ok, go on", "Yes please", "继续", "Danke, weiter"])
def test_thanks_and_go_on_are_counted_and_left_out(said: str) -> None:
    document = told([user("Count the berths."), assistant("Nine."), user(said), assistant("Done."), user("Name them.")])
    assert said not in document.render()
    assert document.items["Done"][-1].startswith('- turn 3, "Name them."')


def test_only_the_last_failing_command_that_has_not_run_better_since_is_blocked() -> None:
    (blocked,) = told(TALK).items["Blocked"]
    assert blocked.startswith("- `npm run build` failed:")
    assert "berth_count is missing" in blocked
    mended = [*TALK, *bash(6, "npm run build", "built\n<returncode>0</returncode>")]
    assert told(mended).items["Blocked"] == []
    asked = [user("Name the berths in data/berths.csv."), assistant("Seventeen of them.")]
    assert told([*TALK, *asked]).items["Blocked"] == []  # after two more requests


def test_an_open_error_is_told_with_the_first_line_that_speaks_of_it() -> None:
    result = "src/quay.ts(28,2): error TS2739: no berth_id\nsrc/pier.ts(1,1)\n3 problems\nexit_hook\nend_2"
    blocked = told([user("Build it."), *bash(1, "npm run build", f"{result}\n<returncode>2</returncode>")])
    (item,) = blocked.items["Blocked"]
    assert "  src/quay.ts(28,2): error TS2739: no berth_id\n" in item
    assert item.endswith("\n  end_2")


def test_lines_that_a_later_run_made_stale_are_not_quoted() -> None:
    first = bash(1, "cat harbour.conf", "depth_limit = 7_first")
    later = bash(2, "cat harbour.conf", "depth_limit = 9_later")
    text = told([user("Look at the depth."), *first, *later, assistant("I see.")]).render()
    assert "9_later" in text
    assert "7_first" not in text


def quotes(*steps: list[Message]) -> dict[str, list[str]]:
    """Return the quoted lines of a session of these steps, by their source."""
    messages = [user("Look at the depth."), *(message for made in steps for message in made), assistant("I see.")]
    items = (item.split("\n") for item in told(messages).items["Critical Context"])
    return {source: [line.strip() for line in lines] for source, *lines in items}


def said_before(number: int, text: str, command: str) -> list[Message]:
    call_, result = bash(number, command, "done")
    return [{**call_, "content": text}, result]


EDIT = call(8, "edit", "ok", path="src/pier.py", old_string="depth_a = 7", new_string="depth_a = 9 + tide_b")
COMMIT = bash(8, "git commit -m done", "ok")
OTHER = call(8, "edit", "ok", path="src/quay.py", old_string="lamp_a = 1", new_string="lamp_a = 2 + lamp_b")


@pytest.mark.parametrize(
    ("command", "result", "since", "holds"),
    [
        pytest.param("cat src/pier.py", "depth_x = 7", EDIT, False, id="the file was edited"),
        pytest.param("cat src/pier.py", "depth_x = 7", OTHER, True, id="another file was edited"),
        pytest.param("nl src/pier.py | sed -n 1,9p", "depth_x = 7", OTHER, True, id="read through a filter"),
        pytest.param("ls -la src", "12 depth_x.py", OTHER, False, id="a listing, and a file was written"),
        pytest.param("pytest", "depth_x failed", OTHER, False, id="a run, and a file was edited"),
        pytest.param("git status", "modified: depth_x", COMMIT, False, id="a commit"),
        pytest.param(
            "cat src/pier.py", "depth_x = 7", bash(8, "git commit -m done", "ok"), True, id="commits edit no file"
        ),
        pytest.param("cat a.txt", "src/pier.py: depth_x = 7", EDIT, False, id="the line names the file"),
    ],
)
def test_an_output_is_dated_once_what_it_shows_has_changed(
    command: str, result: str, since: list[Message], *, holds: bool
) -> None:
    found = quotes(bash(1, command, f"{result}\nlamp_q = 1"), since)
    (source,) = (source for source, lines in found.items() if result in lines)
    assert source.startswith(f"$ {command}")
    assert (", before " not in source) is holds


def test_a_record_is_dated_once_a_call_has_changed_something() -> None:
    look = call(1, "get_booking", "berth: pier_7", booking="HX31")
    title = "get_booking(booking=HX31)"
    assert "berth: pier_7" in quotes(look, call(2, "list_piers", "none"))[f"{title}:"]
    later = quotes(look, call(2, "cancel_booking", "ok", booking="HX31"))
    assert "berth: pier_7" in later[f"{title}, before cancel_booking:"]


def test_what_a_call_was_given_is_dated_and_of_a_refused_one_nothing_is_told() -> None:
    plan = call(1, "submit_plan", "The user goes on planning.", text=f"{'A plan. ' * 9}\nUse the token_a.")
    (source,) = (source for source, lines in quotes(plan, OTHER).items() if "Use the token_a." in lines)
    assert source.endswith(", before quay.py changed:")
    written = call(1, "write", "ok", path="plan.md", content="In quay.py depth_x is 7.")
    again = call(2, "edit", "ok", path="plan.md", old_string="7", new_string="9")
    assert "In quay.py depth_x is 7." in quotes(written, again, OTHER)["plan.md, before plan.md changed:"]
    refused = bash(1, "rm -rf berth_b\ntouch token_a", "The user doesn't want to proceed with this tool use.")
    assert not any("token_a" in line for lines in quotes(refused).values() for line in lines)


def test_where_room_is_short_lines_that_still_hold_come_first() -> None:
    old, new = (bash(n, f"cat src/{file}.py", f"{file}_depth = 7") for n, file in ((1, "quay"), (2, "pier")))
    messages = [user("Look."), *old, *new, *OTHER, assistant("I see.")]
    (item,) = (item for item in told(messages, 70).items["Critical Context"] if "depth = 7" in item)
    assert item.split("\n") == ["$ cat src/pier.py", "  pier_depth = 7"]


def test_what_the_assistant_wrote_is_dated_by_what_changed_since() -> None:
    note = said_before(1, "I think depth_x is 7.", "date")
    assert "I think depth_x is 7." in quotes(note)["turn 1, the assistant:"]
    assert "I think depth_x is 7." in quotes(note, EDIT, OTHER)["turn 1, the assistant, before quay.py changed:"]
    about = said_before(1, "In pier.py depth_x is 7.", "date")
    assert "In pier.py depth_x is 7." in quotes(about, EDIT, OTHER)["turn 1, the assistant, before pier.py changed:"]


@pytest.mark.parametrize(
    "mark",
    [
        "</output_head>\n<elided>\n90 characters elided\n</elided>",
        "[90 lines truncated]",
        "[… 90 characters left out …]",
    ],
)
def test_a_line_that_a_harness_cut_is_not_quoted(mark: str) -> None:
    lines = quotes(bash(1, "cat log", f"berth_1 is free\nberth_2 is fr\n{mark}\nth_8 is\nberth_9 is full"))["$ cat log"]
    assert lines == ["berth_1 is free", "berth_9 is full"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        pytest.param(
            "The planner gives each ship of the fleet a berth by\ndepth_x and length.\nlamp_q is lit.",
            ["The planner gives each ship of the fleet a berth by", "depth_x and length.", "lamp_q is lit."],
            id="prose",
        ),
        pytest.param(
            "7\t# The depth_x of each ship of the fleet decides (mostly)\n8\t# which berth it gets",
            ["7\t# The depth_x of each ship of the fleet decides (mostly)", "8\t# which berth it gets"],
            id="a comment",
        ),
        pytest.param(
            "@cached_pier\ndef probe():\n  wet = 1", ["@cached_pier", "def probe():", "wet = 1"], id="a decorator"
        ),
        pytest.param('wet_x = probe(\n  "quay_1",\n)', ["wet_x = probe(", '"quay_1",', ")"], id="a statement"),
        pytest.param("probe(\n" + "  quay_1,\n" * 30 + ")\nlamp_q = 1", ["lamp_q = 1"], id="a part of a long one"),
        pytest.param("if wet_x:\n  probe(\n" + "quay_1,\n" * 30 + ")\nlamp_q = 1", ["lamp_q = 1"], id="a heading"),
        pytest.param(
            "def probe_a():\n  wet_x = 1\n  lamp_q = 2\n  lit_a = 3\ndef probe_b():\n  wet_x = 1\n  lamp_q = 2",
            ["def probe_a():", "wet_x = 1", "lit_a = 3", "def probe_b():", "wet_x = 1", "lamp_q = 2"],
            id="a line that comes again",
        ),
        pytest.param(") and depth_x > (\n  7\n)\nlamp_q = 1", ["lamp_q = 1"], id="the end of a statement"),
        pytest.param("I want `depth_x` to be\n\nI want `lamp_", ["I want `depth_x` to be"], id="a broken quotation"),
        pytest.param("lamp_q is lit.\nNow look at depth_x:\n", ["lamp_q is lit."], id="an announcement at the end"),
    ],
)
def test_what_goes_on_in_the_next_line_is_quoted_with_it_or_not_at_all(text: str, whole: list[str]) -> None:
    assert quotes(bash(1, "cat quay.txt", text))["$ cat quay.txt"] == whole


def test_a_numbered_line_that_a_newer_reading_shows_otherwise_is_not_quoted() -> None:
    first = bash(1, "nl quay.py | sed -n 1,3p", "1\tdepth_x = 7\n2\tlamp_q = 1")
    found = quotes(first, bash(2, "python3 mend.py", "ok"), bash(3, "nl quay.py", "1\tdepth_x = tide_9"))
    assert found["$ nl quay.py | sed -n 1,3p"] == ["2\tlamp_q = 1"]


def test_of_an_edit_only_the_new_text_is_quoted_and_of_a_failed_one_nothing() -> None:
    assert quotes(EDIT)["src/pier.py:"] == ["depth_a = 9 + tide_b"]
    failed = [EDIT[0], {**EDIT[1], "content": "Error: no such text", "is_error": True}]
    assert "src/pier.py:" not in quotes(failed)


def test_of_a_long_line_there_are_only_the_names() -> None:
    long = f"The berth is {'very ' * 50}deep at pier_7. It lies at quay_9."
    items = told([user("Look."), *bash(1, "cat notes.md", long)]).items["Critical Context"]
    assert items == ["- Names: pier_7, quay_9"]


def test_no_line_is_cut_where_a_long_output_is_cut() -> None:
    lines = [f"berth_{n} holds cargo_{n * 7}" for n in range(4_000)]
    (source, *quoted) = quotes(bash(1, "cat cargo.log", "\n".join(lines)))["$ cat cargo.log"]
    assert {source, *quoted} <= set(lines)


@pytest.mark.parametrize("budget", [120, 300, 1_000])
def test_the_budget_is_kept_and_goal_and_newest_request_give_way_last(budget: int) -> None:
    newest = "Add berth 17 to data/berths.csv."
    text = Chronicle().extended(TALK * 6).write(budget, COUNT, newest=newest)
    assert COUNT(text) <= budget
    assert "Move the berth planner" in text
    assert newest in text


def test_what_relates_to_the_focus_comes_before_other_lines() -> None:
    log = "\n".join([*(f"berth_{n} holds cargo_{n}" for n in range(50)), "lamp_7 of the pier is dark"])
    messages = [user("Look around."), *bash(1, "cat all.log", log)]
    assert "lamp_7 of the pier" in told(messages, 300, focus="pier").render()


# -- one summary after another -----------------------------------------------------------------------------------------


def grown(context: list[Message], round_: int) -> list[Message]:
    asked = user(f"Now mend pier_{round_} and tell me its depth.")
    return [*context, asked, *long_session(14, 300)[3:], assistant(f"Pier_{round_} is mended.")]


@pytest.mark.spec("5.5")
def test_nothing_decays_in_twenty_compactions_of_one_engine() -> None:
    engine = ContextCompressor(16_000)
    context = [*long_session(10), assistant("The build works.")]
    for round_ in range(20):
        context = engine.compress(grown(context, round_))
    text = summary_text(context)
    lost = [n for n in range(19) if f"mend pier_{n} and" not in text]
    assert lost == []
    assert '- turn 2, "Now mend pier_0 and tell me its depth."' in text
    assert [n for n in range(19) if f"Pier_{n} is mended." not in text] == []


def test_a_result_that_the_tail_shortened_is_read_whole_by_the_next_compaction() -> None:
    quiet = "The quay is quiet.\n" * 900
    engine = ContextCompressor(16_000)
    context = engine.compress([*long_session(10), *bash(1, "cat quay.log", f"{quiet}lamp_q = 1\n{quiet}")])
    assert "lamp_q" not in str(context)
    for round_ in range(2):
        context = engine.compress(grown(context, round_))
    assert "lamp_q" in summary_text(context)


def test_a_new_engine_carries_the_turns_on_from_the_last_summary() -> None:
    context = [*long_session(10), assistant("The build works.")]
    for round_ in range(3):
        context = ContextCompressor(16_000).compress(grown(context, round_))
    text = summary_text(context)
    assert [n for n in range(2) if f"mend pier_{n} and" not in text] == []
    numbers = [int(number) for number in re.findall(r"^- turn (\d+)", text, re.MULTILINE)]
    assert numbers == sorted(set(numbers))


def test_with_the_originals_at_hand_the_chronicle_is_made_from_them() -> None:
    talk = grown([*long_session(10), assistant("The build works.")], 0)
    stale = ContextCompressor(16_000).compress(talk)
    text = summary_text(stale)
    forged = [
        {**message, "content": str(message["content"]).replace("pier_0", "pier_99")}
        if isinstance(message["content"], str) and text in message["content"]
        else message
        for message in stale
    ]
    engine = ContextCompressor(16_000)
    once = engine.compress(grown(forged, 1), originals=lambda: talk)
    assert "mend pier_0 and" in summary_text(once)


def test_the_decisions_of_a_models_summary_are_carried_on() -> None:
    previous = "## Goal\n- Move the planner\n\n## Key Decisions\n- SQLite, not Postgres, because of Mira."
    request = SummaryRequest(TALK[4:], previous, 800, COUNT)
    assert "SQLite, not Postgres, because of Mira." in ExtractiveSummarizer().summarize(request)


def test_nothing_to_say_still_gives_a_summary() -> None:
    assert Chronicle().write(100, COUNT) == ""
    assert told([user("Hi"), assistant(output(40))]).items["Goal"] == ['- First request: "Hi" (turn 1)']


# -- plans -------------------------------------------------------------------------------------------------------------


WANTED = [("completed", "Read the berth tables"), ("in_progress", "Write the parser"), ("pending", "Test it")]


def plan(*messages: Message) -> list[tuple[str, str]]:
    return [(item.state, item.text) for item in Chronicle().extended([user("Import the tables."), *messages]).plan]


@pytest.mark.spec("9.7")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TodoWrite", {"todos": [{"content": t, "status": s, "activeForm": t} for s, t in WANTED]}),
        ("update_plan", {"explanation": "now", "plan": [{"step": t, "status": s} for s, t in WANTED]}),
        ("todowrite", {"todos": [{"id": str(n), "content": t, "status": s} for n, (s, t) in enumerate(WANTED)]}),
        ("update_todo", {"items": [{"text": t, "status": "done" if s == "completed" else s} for s, t in WANTED]}),
        ("manage_todo_list", {"todoList": [{"id": n, "title": t, "status": s} for n, (s, t) in enumerate(WANTED)]}),
        (
            "read_file",
            {"path": "a.py", "task_progress": "- [x] Read the berth tables\n- [~] Write the parser\n- [ ] Test it"},
        ),
    ],
)
def test_a_plan_is_read_whatever_its_tool_is_called(name: str, arguments: dict[str, Any]) -> None:
    assert plan(*call(1, name, "ok", **arguments)) == WANTED


def test_a_plan_that_was_refused_is_none_and_a_list_that_the_agent_says_counts_without_a_tool() -> None:
    todos = [{"content": "A", "status": "pending"}]
    assert plan(*call(1, "TodoWrite", "<tool_use_error>invalid</tool_use_error>", todos=todos)) == []
    said = assistant("The plan:\n- [x] Read the berth tables\n- [ ] Test it")
    assert plan(said, *call(1, "bash", "a.py", command="ls")) == [WANTED[0], WANTED[2]]


# -- outcomes and files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "result", "has_failed"),
    [
        ("pytest", "2 failed\n<returncode>1</returncode>", True),
        ("pytest", "Exit code 2\nusage: pytest", True),
        ("pytest", "2 failed, and the word error stands here", False),
        ("pylint src", "E0602: undefined-variable\nYour code has been rated at 3.10/10", False),
        ("npm test", "<returncode>0</returncode>\nerror: this is printed by the test of errors", False),
        ("grep -n x a.py", "Command exited with code 1", False),
        ("npm test", "Command aborted", False),
    ],
)
def test_a_command_failed_if_its_exit_code_says_so(command: str, result: str, has_failed: bool) -> None:
    (step,) = read_steps(bash(1, command, result))
    assert step.failed == has_failed


def test_files_are_those_that_were_changed_and_are_still_there() -> None:
    chronicle = Chronicle().extended(
        [
            user("Mend the import."),
            *call(1, "read", "text", path="src/other.py"),
            *bash(2, "sed -i '12s/a/b/' src/tables.py", ""),
            *bash(3, "cat <<'EOF' > fix.py\nopen('x')\nEOF\npython fix.py > log.txt", ""),
            *bash(4, "rm fix.py && git checkout -- src/tables.py", ""),
            *call(5, "write", "ok", path="tests/test_berths.py", content="..."),
            *bash(6, "sed -i s/a/b/ src/quay.py && sed s/b/c/ src/quay.py > new && mv new src/quay.py", ""),
            *call(7, "edit", "<error>no such file</error>", path="gone.py", old="x"),
        ]
    )
    changed = {"log.txt": "created", "tests/test_berths.py": "created", "src/quay.py": "edited"}
    assert chronicle.files == changed
