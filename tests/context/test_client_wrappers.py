"""Summaries of conversations with real clients: the goal and the request are a person's words, never a client's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from everlong import ContextCompressor, Message, Quality, SummaryRequest
from everlong.context.digest import turn_pieces
from everlong.context.document import SummaryDocument
from everlong.context.literals import is_summary, summary_body
from everlong.context.summary_prompts import transcript_prompt
from everlong.model import text_of
from tests.context.builders import assistant, output, step, system, user
from tests.context.scripted import COUNT

FIRST = "Let the lighthouse log count foggy nights per keeper."
NEWEST = "Print the foggy nights of keeper Ottilie as well."
RULE = "Never rename the folder keepers/ without a migration."
REMINDER = (
    "<system-reminder>\nAvailable agent types: plover, dunlin. Skills: /tidy-nets must be used for nets, port 9911.\n"
    "</system-reminder>\n"
)
CLAUDE_MD = (
    "<system-reminder>\nYou can use the following context:\n# claudeMd\nInstructions are shown below.\n\n"
    f"Contents of /srv/fog/CLAUDE.md (project instructions, checked into the codebase):\n\n{RULE}\n"
    "# currentDate\nToday is 2031-04-05.\n\n      IMPORTANT: this context may or may not be relevant to you.\n"
    "</system-reminder>\n"
)
ENVIRONMENT = "<environment_context>\n  <cwd>/srv/fog</cwd>\n  <shell>zsh-9911</shell>\n</environment_context>"
DETAILS = "<environment_details>\n# Files\nkeepers/log_9911.py\n# Time\n05:06 dunlin\n</environment_details>"
JUNK = ("9911", "plover", "dunlin", "reminder", "environment", "interrupted", "ide_opened", "command-", "zsh", "caveat")


def parts(*texts: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


@dataclass
class Client:
    opening: list[Message]
    request: list[Message]
    after: Message
    """A user message that no person wrote."""


CLIENTS = {
    "claude code": Client(
        [parts(REMINDER, CLAUDE_MD, FIRST)],
        [parts(REMINDER, NEWEST)],
        user("<task-notification>\n<task-id>b9911</task-id>\nplover has ended.\n</task-notification>"),
    ),
    "claude code logs": Client(
        [
            user("<local-command-caveat>Caveat: plover 9911</local-command-caveat>"),
            user("<command-name>/model</command-name><command-args>dunlin</command-args>"),
            user("<local-command-stdout>Set to dunlin-9911</local-command-stdout>"),
            user(f"<ide_opened_file>The user opened /srv/plover-9911.py in the IDE.</ide_opened_file>\n{FIRST}"),
        ],
        [user(NEWEST)],
        user("[Request interrupted by user for tool use]"),
    ),
    "codex": Client(
        [
            user(f"# AGENTS.md instructions for /srv/fog\n\n<INSTRUCTIONS>\n{RULE}\n</INSTRUCTIONS>"),
            user(ENVIRONMENT),
            user(FIRST),
        ],
        [user(NEWEST)],
        user("<turn_aborted>\ndunlin stopped 9911\n</turn_aborted>"),
    ),
    "opencode": Client(
        [user(FIRST)],
        [parts("Called the Read tool with the following input: {}", NEWEST)],
        user("<system-reminder>\nplan mode 9911 is dunlin\n</system-reminder>"),
    ),
    "cline": Client(
        [parts(f"<task>\n{FIRST}\n</task>", DETAILS)],
        [parts("[plan_mode_respond] Result:", f"<user_message>\n{NEWEST}\n</user_message>", DETAILS)],
        user(f"[ERROR] You did not use a tool in your plover response!\n{DETAILS}"),
    ),
    "aider": Client(
        [user("Here are summaries of some files present in my git repository.\nplover_9911.py"), user(FIRST)],
        [user(NEWEST)],
        user("I am not sharing any files that you can edit yet, dunlin 9911."),
    ),
    "pi": Client(
        [user(f'<file name="/srv/fog/keepers.csv">\nkeeper;nights\n</file>\n{FIRST}')],
        [user(NEWEST)],
        user("<system-reminder>dunlin 9911</system-reminder>"),
    ),
}


def conversation(client: Client, *, ends_with_client: bool = False) -> list[Message]:
    messages = [system(), *client.opening, assistant("I start.")]
    for number in range(30):
        reminded = "\n\n<system-reminder>\nConsider /tidy-nets on port 9911.\n</system-reminder>" if number % 3 else ""
        messages += step(number, f"night_{number}.log: {output(300)}{reminded}")
    messages += [*client.request, assistant("I look at Ottilie's nights.")]
    for number in range(30, 60):
        messages += step(number, f"night_{number}.log: {output(300)}")
    return [*messages, client.after] if ends_with_client else messages


def compacted(messages: list[Message], target: int = 4_000) -> tuple[list[Message], SummaryDocument, Quality]:
    engine = ContextCompressor(32_000)
    result = engine.compress(messages, target_tokens=target)
    summary = next(message for message in result if is_summary(message))
    assert engine.last_report is not None
    assert engine.last_report.quality is not None
    return result, SummaryDocument.parse(summary_body(summary)), engine.last_report.quality


@pytest.mark.parametrize("ends_with_client", [False, True])
@pytest.mark.parametrize("name", CLIENTS)
def test_goal_and_newest_request_are_the_persons_words(name: str, ends_with_client: bool) -> None:
    messages = conversation(CLIENTS[name], ends_with_client=ends_with_client)
    result, document, quality = compacted(messages)
    assert document.items["Goal"][0].startswith(f'- First request: "{FIRST[:40]}')
    assert document.items["Pending User Asks"][0].endswith(f': "{NEWEST}" (turn 2)')
    written = document.render()
    assert [junk for junk in JUNK if junk in written.lower()] == []
    assert (quality.task_kept, quality.request_kept) == (True, True)
    if ends_with_client:  # what the client said last still reaches the model
        assert result[-1] == CLIENTS[name].after


@pytest.mark.parametrize("name", CLIENTS)
def test_a_second_compaction_still_knows_the_request_when_only_the_client_spoke_since(name: str) -> None:
    once, _, _ = compacted(conversation(CLIENTS[name], ends_with_client=True), 3_000)
    for number in range(60, 100):
        once += step(number, f"night_{number}.log: {output(300)}")
    _, document, _ = compacted(once, 3_000)
    assert document.items["Pending User Asks"][0].endswith(f': "{NEWEST}" (turn 2)')
    assert [junk for junk in JUNK if junk in document.render().lower()] == []


def test_the_prompt_for_a_summary_model_shows_the_request_and_no_reminder() -> None:
    messages = conversation(CLIENTS["claude code"])
    request = SummaryRequest(
        messages[1:], None, 500, COUNT, opening=messages[1], latest_user=CLIENTS["claude code"].request[0]
    )
    pieces = list(turn_pieces(request.turns, 2_000, COUNT))
    prompt = text_of(transcript_prompt(request, pieces, 500)[-1])
    assert FIRST in prompt
    assert NEWEST in prompt
    assert [junk for junk in JUNK if junk in prompt.lower()] == []
