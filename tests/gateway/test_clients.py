"""What clients tell about themselves is read, and their side requests are told from conversations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everlong.gateway.formats import client_of, folder_in_path, looks_aside, path_of_folder
from everlong.model import Message


def user(text: str) -> Message:
    return {"role": "user", "content": text}


# -- the program -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude-cli/2.1.0 (external, cli)", "claude-code"),
        ("codex_exec/0.1.0 (Debian 12; x86_64) xterm", "codex"),
        ("codex_cli_rs/0.1.0", "codex"),
        ("Codex Desktop/1.0", "codex"),
        ("opencode/1.2.3 ai-sdk/provider-utils/4.0.1 runtime/bun/1.3.0", "opencode"),
        ("Cline/3.0.1", "cline"),
        ("RooCode/3.1.0", "roo"),
        ("OpenAI/Python 3.1.0", "openai-sdk"),
        ("AsyncAzureOpenAI/Python 3.1.0", "openai-sdk"),
        ("AnthropicBedrock/Python 2.1.0", "anthropic-sdk"),
        ("Agents/Python 0.2.0", "openai-agents"),
        ("python-httpx/0.28.0", "python-httpx"),
        ("Python/3.12 aiohttp/3.14.0", "python"),
        ("MyAgent/1.0 (a note)", "MyAgent"),
        ("my-agent", "my-agent"),
        ("codexify/2.0", "codexify"),
        ("A" * 200, "A" * 40),
        ("a\x00b\x7f\udcffc/1", "abc"),
        ("\x00/1", None),
        ("(only a comment)", None),
    ],
)
def test_the_user_agent_names_the_program(agent: str, name: str | None) -> None:
    assert client_of({"user-agent": agent}) == name


# -- its folder --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/srv/my (old) shop",
        "C:\\Users\\Ada\\shop",
        "d:/shop",
        "\\\\server\\share",
        "/home/žaneta/π",
        "/" + "a" * 900,
    ],
)
def test_the_path_of_a_request_names_an_absolute_folder_of_any_system(path: str) -> None:
    name = path_of_folder(Path(path)).removeprefix("/folder/")
    assert re.fullmatch("[A-Za-z0-9_-]+", name)
    assert folder_in_path(name) == (path, None)
    wrapped = path_of_folder(Path(path), "aider").removeprefix("/folder/")
    assert folder_in_path(wrapped) == (path, "aider")


# -- what it asks on the side ------------------------------------------------------------------------------------------


def is_aside(*messages: Message | str, system: str = "", tools: bool = False, max_tokens: int = 0) -> bool:
    said = [user(one) if isinstance(one, str) else one for one in messages]
    return looks_aside(has_tools=tools, max_tokens=max_tokens, system_text=system, messages=said)


@pytest.mark.parametrize(
    "system",
    [
        "You are a title generator. Say one line only.",
        "You are the best title writer of all.",
        "Be a helper.\n\nCreate a short title (two words) which captures the goal of this coding session.",
        "You will write a title based on the first thing somebody says in a conversation.",
        "Suggest a name for this chat.",
        "Based on the conversation, produce a topic.",
        "Extract the topic of the current conversation.",
        "Summarise the conversation in 5 words or less.",
        "Describe this session in under 40 characters.",
        "Tell whether this message indicates a new topic. If so, extract a title.",
    ],
)
def test_a_request_for_the_name_of_a_conversation_is_aside(system: str) -> None:
    assert is_aside("Fix the login.", system=system)
    assert is_aside({"role": "system", "content": system}, "Fix the login.")
    assert not is_aside("Fix the login.", system=system, tools=True)
    assert not is_aside("Fix the login.", {"role": "assistant", "content": "Done."}, "Thanks.", system=system)
    assert not is_aside("Fix the login.", system="x" * 1_000 + system)


@pytest.mark.parametrize(
    ("system", "asked"),
    [
        ("", "Hello."),
        ("", "Write a title for my blog post about cats"),
        ("", "Write a title for the conversation between Anna and Ben in my play."),
        ("", "What is the title of this song?"),
        ("", "Summarize the following text in 5 words: it rains."),
        ("", "Name three topics for a chat with my grandmother."),
        ("You are a helpful assistant.", "Suggest a name for my cat."),
        ("You help authors to find titles for their novels.", "It is about cats."),
        ("You are a support agent. Keep the conversation on topic and give short answers.", "Hello."),
        ("Summarize the conversation that you are given in 200 words.", "Anna: Hi. Ben: Hi."),
        ("Give each speaker in the conversation a name.", "A: Hi. B: Hi."),
        ("You help to build a title generator in Python.", "Start."),
    ],
)
def test_a_conversation_of_one_turn_is_no_side_request(system: str, asked: str) -> None:
    assert not is_aside(asked, system=system)
