"""A person's typed words are told from a client's additions, and make the title of a conversation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.model import (
    EPHEMERAL,
    Message,
    begins_with_wrapper,
    newest_request,
    read_message,
    readable_text,
    title_from,
    typed_words,
)


def user(*texts: str) -> Message:
    if len(texts) == 1:
        return {"role": "user", "content": texts[0]}
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


REMINDER = "<system-reminder>\nThe house rules apply.\n</system-reminder>\n\n"
ENVIRONMENT = "<environment_context>\n  <cwd>/home/ada</cwd>\n  <shell>fish</shell>\n</environment_context>"
DETAILS = "<environment_details>\n# Open tabs\na.py\n</environment_details>"
INIT = "<command-message>init</command-message>\n<command-name>/init</command-name>\n"
CAVEAT = "<local-command-caveat>What follows was run on this machine.</local-command-caveat>\n"
MODEL = (
    "<command-name>/model</command-name>\n            <command-message>model</command-message>\n"
    "            <command-args>large</command-args>\n"
)
OUTPUT = "<local-command-stdout>Now using the large one</local-command-stdout>\n"


# -- what a person typed stays -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Fix the login.",
        "why does <br> not work",
        "What is the difference between <div> and <span>?",
        '<div class="box">\n  <p>Why is this red?</p>\n</div>',
        "<task>\n  <name>backup</name>\n</task>\nWhy does this XML not validate?",
        "Make this shorter:\n<prompt>\nYou are a pirate.\n</prompt>\nand funnier.",
        "Can a <task>x</task> be nested in a sentence?",
        "<file>\n  <name>a</name>\n</file>",
        "<image src='a.png'></image>",
        "What does <system-reminder> mean in my log?",
        "It ends with </system-reminder> and nothing begins.",
        "Vec<UserRequest> does not compile",
        "if a < b and c > d: pass",
        "The user provided a wrong password and the page crashed.",
        "# A heading\n\nand [a link] Result",
        "<query>",
        "a" * 500,
    ],
)
def test_prose_and_pasted_code_stay_as_they_are(text: str) -> None:
    assert typed_words(user(text)) == text


def test_space_around_the_words_goes() -> None:
    assert typed_words(user("\n  Fix it.\n")) == "Fix it."


def test_parts_are_joined_by_line_breaks() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "input_text", "text": "Look:"}, picture, "and tell me."]
    assert typed_words({"role": "user", "content": content}) == "Look:\nand tell me."


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
def test_only_users_type(role: str) -> None:
    assert typed_words({"role": role, "content": "Hello."}) == ""


@pytest.mark.parametrize(
    "content", [None, "", [], [{"type": "tool_result", "tool_use_id": "a", "content": "hi"}], [{}]]
)
def test_a_message_without_text_has_no_typed_words(content: Any) -> None:
    assert typed_words({"role": "user", "content": content}) == ""


def test_what_a_host_adds_for_one_request_was_not_typed() -> None:
    parts = [{"type": "text", "text": "Memory: likes tea.", EPHEMERAL: True}, {"type": "text", "text": "Hello."}]
    assert typed_words({"role": "user", "content": parts}) == "Hello."
    assert typed_words({**user("Memory: likes tea."), EPHEMERAL: True}) == ""


# -- what a client added goes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "added",
    [
        REMINDER,
        REMINDER.replace("-", "_"),
        ENVIRONMENT,
        DETAILS,
        "<user_instructions>\nUse tabs.\n</user_instructions>",
        CAVEAT,
        OUTPUT,
        "<bash-stdout>a.txt</bash-stdout><bash-stderr></bash-stderr>",
        "<ide_opened_file>Somebody looks at a.py.</ide_opened_file>",
        "<ide_selection>lines 1 to 3 of a.py</ide_selection>",
        '<file_content path="a.py">\nprint("<system-reminder>")\n</file_content>',
        '<file name="/home/ada/a.txt">\nhello\n</file>',
        '<image name=[Image #1] path="/tmp/a.png">\n</image>',
        "[Request interrupted by user]",
        "[Request interrupted by user for a tool]",
        "[Image: source: /tmp/a.png]",
        "<turn_aborted>\nSomebody pressed escape.\n</turn_aborted>",
        "<system-reminder>Blocks of <system-reminder> are not a person's.</system-reminder>",
        "<system-reminder>a<system-reminder>b</system-reminder>c</system-reminder>",
    ],
)
def test_blocks_of_a_client_are_left_out(added: str) -> None:
    assert typed_words(user(added)) == ""
    assert typed_words(user(added, "Fix the login.")) == "Fix the login."
    assert typed_words(user("Fix the login.", added)) == "Fix the login."
    assert typed_words(user(f"{added}\nFix the login.")) == "Fix the login."
    assert typed_words(user(f"Fix the login.\n\n{added}")) == "Fix the login."


def test_instructions_from_a_file_are_left_out_with_their_heading() -> None:
    added = "# AGENTS.md instructions for /home/ada\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
    assert typed_words(user(added)) == ""
    assert typed_words(user(added, ENVIRONMENT)) == ""
    assert typed_words(user(f"{added}\n{ENVIRONMENT}\nFix the login.")) == "Fix the login."
    assert typed_words(user("# AGENTS.md instructions for /home/ada\n\nUse tabs.")) == ""


@pytest.mark.parametrize(
    "notice",
    [
        "This session is being continued from a previous one. Ada wanted tea.\n<user_query>tea</user_query>",
        "The conversation history before this point was compacted: Ada wanted tea.",
        "[CONTEXT COMPACTION] Ada wanted tea. <system-reminder>x</system-reminder> And cake.",
        'Called the Read tool with the following input: {"path": "a.py"}',
        "<path>/home/ada/a.py</path>\n<type>file</type>\n<content>\n1: <task>x</task>\n</content>",
        "Here are summaries of some files present in my git repository: a.py",
        "I have *added these files to the chat*: a.py",
    ],
)
def test_texts_that_a_client_writes_in_a_users_name_are_left_out(notice: str) -> None:
    assert typed_words(user(notice)) == ""
    assert typed_words(user(REMINDER + notice)) == ""
    assert typed_words(user(notice, "Fix the login.")) == "Fix the login."


def test_the_request_is_found_below_what_an_editor_tells() -> None:
    text = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nFix the login.\n"
    assert typed_words(user(text)) == "Fix the login."


def test_results_that_are_sent_as_text_were_not_typed() -> None:
    assert typed_words(user("[read_file for 'a.py'] Result:", "print(1)", DETAILS)) == ""


# -- what holds a person's words is opened -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["task", "feedback", "answer", "prompt", "query", "user_query", "user_message"])
def test_words_are_taken_out_of_the_tags_that_hold_them(name: str) -> None:
    held = f"<{name}>\nFix the login.\n</{name}>"
    assert typed_words(user(held)) == "Fix the login."
    assert typed_words(user(f"{held}\n\n{DETAILS}")) == "Fix the login."
    assert typed_words(user(f"<{name}>Fix the <br>.</{name}>", DETAILS)) == "Fix the <br>."
    assert typed_words(user(f"<{name}>\nFix the login.\n{REMINDER}</{name}>")) == "Fix the login."


def test_beside_a_tag_of_a_client_stands_nothing_that_a_person_typed() -> None:
    text = '<context>\nToday is Monday.\n</context>\n<userRequest mode="agent">\nFix the login.\n</userRequest>'
    assert typed_words(user("Here is the project.", text)) == "Fix the login."


@pytest.mark.parametrize(
    "report",
    [
        "The user has provided thoughts on this:\n<feedback>\nUse tabs.\n</feedback>",
        "The user denied it and says:\n<feedback>\nUse tabs.\n</feedback>",
        "[attempt] Result:\nDone.\n<feedback>\nUse tabs.\n</feedback>",
        "[TASK RESUMPTION] It was interrupted.\n\nNew words:\n<user_message>\nUse tabs.\n</user_message>\n# Steps",
    ],
)
def test_words_are_found_in_the_report_of_a_client(report: str) -> None:
    assert typed_words(user(report, DETAILS)) == "Use tabs."


# -- slash commands ----------------------------------------------------------------------------------------------------


def test_a_slash_command_is_what_was_typed_and_not_its_prompt() -> None:
    command = f"{INIT}<command-args>only the tests</command-args>\n"
    assert typed_words(user(command)) == "/init only the tests"
    assert typed_words(user(REMINDER, command, "Look around and write a guide.")) == "/init only the tests"
    assert typed_words(user(f"{INIT}<command-args></command-args>", "Look around.")) == "/init"


def test_a_command_that_the_client_runs_itself_gives_way_to_the_question_after_it() -> None:
    assert typed_words(user(CAVEAT, MODEL, OUTPUT, "Fix the login.")) == "Fix the login."
    assert typed_words(user(CAVEAT, MODEL, OUTPUT)) == "/model large"


def test_a_line_for_the_shell_was_typed() -> None:
    assert typed_words(user("<bash-input>ls</bash-input>\n", "<bash-stdout>a.txt</bash-stdout>")) == "ls"


# -- titles ------------------------------------------------------------------------------------------------------------


def test_the_title_is_what_was_asked_last() -> None:
    opening = [
        {"role": "system", "content": "Be kind."},
        user("Turn red to blue."),
        assistant("Done."),
        user("I have *added these files to the chat*: a.py"),
        assistant("I see."),
        user("Fix the login."),
        {"role": "system", "content": "Answer in English."},
    ]
    assert title_from(opening) == "Fix the login."


def test_a_message_without_typed_words_leaves_the_title_to_the_one_before() -> None:
    assert title_from([user("Fix the login."), user(ENVIRONMENT)]) == "Fix the login."
    assert title_from([user(ENVIRONMENT), user("Fix the login.")]) == "Fix the login."


@pytest.mark.parametrize("messages", [[], [user(REMINDER)], [assistant("Hello.")], [user("\x00\u200b")]])
def test_there_is_no_title_where_nobody_typed(messages: list[Message]) -> None:
    assert title_from(messages) is None


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("Fix\n\tthe   login.\n", "Fix the login."),
        ("a\x00b\x1b[1m", "a b [1m"),
        ('"Fix the login"', "Fix the login"),
        ('"Fix" the "login"', '"Fix" the "login"'),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 58 + " …"),
        (
            "Please have a look at the way in which we log people in and out",
            "Please have a look at the way in which we log people in …",
        ),
        ("See https://example.org/" + "a" * 80, "See https://example.org/" + "a" * 34 + " …"),
        ("修" * 80, "修" * 58 + " …"),
        (f"{INIT}<command-args>only the tests</command-args>\n", "/init only the tests"),
    ],
)
def test_a_title_is_one_line_of_at_most_sixty_characters(words: str, title: str) -> None:
    assert title_from([user(words)]) == title


# -- whatever comes ----------------------------------------------------------------------------------------------------

NAMES = ["system-reminder", "task", "user_query", "file", "command-name", "command-args", "local-command-stdout", "div"]
FRAGMENTS = st.one_of(
    st.sampled_from(["\n", " ", "<", ">", "</", '<file name="a">', "[a] Result:", "# AGENTS.md instructions", '"']),
    st.sampled_from([f"<{name}>" for name in NAMES] + [f"</{name}>" for name in NAMES]),
    st.text(max_size=8),
)
TEXTS = st.lists(FRAGMENTS, max_size=24).map("".join)
CONTENTS = st.one_of(TEXTS, st.lists(TEXTS, max_size=4).map(lambda texts: [{"type": "text", "text": t} for t in texts]))


def words_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@given(CONTENTS)
def test_no_word_is_made_up(content: Any) -> None:
    given = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
    typed = typed_words({"role": "user", "content": content})
    assert words_in(typed) <= words_in(given)
    assert typed == typed.strip()


@given(st.text(alphabet=st.characters(exclude_characters="<[#")))
def test_text_without_tags_is_returned_whole(text: str) -> None:
    assert typed_words(user(text)) == text.strip()


@given(st.lists(CONTENTS.map(lambda content: {"role": "user", "content": content}), max_size=4))
def test_a_title_is_short_and_shows_in_one_line(messages: list[Message]) -> None:
    title = title_from(messages)
    if title is None:
        assert not any(
            char.isprintable() and not char.isspace() for m in messages for char in typed_words(m).strip('"')
        )
    else:
        assert 0 < len(title) <= 60
        assert title.isprintable()
        assert title == title.strip()


HOSTILE: dict[str, Callable[[int], str]] = {
    "brackets": lambda size: "<" * size,
    "a tag without an end": lambda size: "<task" * (size // 5),
    "an endless tag": lambda size: "<system-reminder" + " a" * (size // 2),
    "an endless name": lambda size: "<" + "a" * size,
    "beginnings": lambda size: "\n<task>" * (size // 7),
    "endings": lambda size: "</system-reminder>" * (size // 18),
    "beginnings and one end": lambda size: "<system-reminder>" * (size // 17) + "</system-reminder>x",
    "beginnings in one line": lambda size: "x<task>" * (size // 7) + "</task>",
    "pairs that cross": lambda size: "\n<task>\n<query></task></query>" * (size // 29),
    "unbalanced blocks": lambda size: "<system-reminder><system-reminder></system-reminder><task>" * (size // 57),
    "spaces": lambda size: " " * size + "x",
    "markers": lambda size: "[Request interrupted by user" * (size // 28),
    "arguments": lambda size: "<command-name>/a</command-name>" + "<command-args>b</command-args>" * (size // 30),
    "held words": lambda size: "\n<user_query>\n<user_query>a</user_query>" * (size // 38),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_read_in_steps_that_grow_with_its_length(kind: str) -> None:
    assert lines_run(HOSTILE[kind](20_000)) <= 4.5 * lines_run(HOSTILE[kind](5_000)) + 100
    typed_words(user(HOSTILE[kind](200_000)))  # what a pattern does inside, only a test that hangs would show


def lines_run(text: str) -> int:
    """Count the lines of the module that a text takes."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith("typed.py"):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        typed_words(user(text))
    finally:
        sys.settrace(before)
    return count


# -- rules, material and requests --------------------------------------------------------------------------------------

RULE = "Write every log in blue ink."


@pytest.mark.parametrize(
    "message",
    [
        user(
            "<system-reminder>\n# claudeMd\nShown below.\n\nContents of /srv/log/CLAUDE.md (project instructions):\n\n"
            f"{RULE}\n# currentDate\nToday is Friday.\n</system-reminder>\n",
            "Begin.",
        ),
        user(f"# AGENTS.md instructions for /srv/log\n\n<INSTRUCTIONS>\n{RULE}\n</INSTRUCTIONS>", "Begin."),
        user(f"<user_instructions>\n{RULE}\n</user_instructions>\nBegin."),
        user(f"<system-reminder>\nInstructions from: /srv/log/AGENTS.md\n{RULE}\n</system-reminder>\nBegin."),
    ],
)
def test_rules_of_a_project_are_told_apart(message: Message) -> None:
    read = read_message(message)
    assert (read.typed, read.rules, read.material) == ("Begin.", RULE, "")
    assert RULE not in read.added


def test_rules_of_two_files_are_both_found() -> None:
    files = "Contents of /a/CLAUDE.md:\n\nUse ink.\n\nContents of /b/CLAUDE.md (private):\n\nUse tabs.\n"
    assert read_message(user(f"<system-reminder>\n{files}</system-reminder>")).rules == "Use ink.\nUse tabs."


@pytest.mark.parametrize(
    ("message", "material"),
    [
        (user('<file name="/srv/a.csv">\ngulls;7\n</file>\nCount them.'), "gulls;7"),
        (user("[read for a.csv] Result:\ngulls;7", DETAILS), "[read for a.csv] Result:\ngulls;7"),
        (
            user("I have *added these files to the chat*\n\na.csv\ngulls;7"),
            "I have *added these files to the chat*\n\na.csv\ngulls;7",
        ),
        (
            user("This session is being continued from a previous one.\ngulls;7"),
            "This session is being continued from a previous one.\ngulls;7",
        ),
    ],
)
def test_what_a_client_hands_on_is_material(message: Message, material: str) -> None:
    assert read_message(message).material == material


def test_a_result_is_read_without_the_reminder_behind_it() -> None:
    result: Message = {"role": "tool", "content": f"gulls;7\n<b>bold</b>\n\n{REMINDER}", "tool_call_id": "a"}
    assert readable_text(result) == "gulls;7\n<b>bold</b>"
    assert read_message(result).added == "The house rules apply."


@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder>\nThe house\n[… 4,000 characters left out …]\napply.\n</system-reminder>\nCount them.",
        "<system-reminder>\nThe house\n[… 4,000 characters left out …]\nCount them.",
        f"{REMINDER}<ide_selection>\na.py\n[… 9 characters left out …]\nb</ide_selection>\nCount them.",
    ],
)
def test_a_wrapper_that_was_shortened_is_still_one(text: str) -> None:
    assert typed_words(user(text)) == "Count them."


def test_the_newest_request_is_the_newest_message_that_a_person_typed() -> None:
    asked = [user("Count the gulls."), assistant("Seven."), user(REMINDER, "And the terns.")]
    own = [
        user("[Request interrupted by user]"),
        user("<command-name>/model</command-name>"),
        user("<local-command-stdout>Set.</local-command-stdout>"),
        user(REMINDER),
    ]
    assert newest_request([*asked, *own]) == 2
    assert newest_request([*asked, *own], skipped={2}) == 0
    assert newest_request(own) is None
    assert newest_request([*asked, user("<command-name>/count</command-name>")]) == 3


@pytest.mark.parametrize(
    ("text", "is_wrapper"),
    [
        ("<system-reminder> Available agents …", True),
        ("<command-name>/model", True),
        ("[Request interrupted by user for tool use]", True),
        ("# AGENTS.md instructions for /srv", True),
        ("<div> is not centred", False),
        ("Why is there a <system-reminder>?", False),
    ],
)
def test_a_text_that_begins_with_a_clients_words_is_known(text: str, is_wrapper: bool) -> None:
    assert begins_with_wrapper(text) is is_wrapper
