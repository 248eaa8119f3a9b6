"""What clients tell about themselves is read: their names, their conversations, their API, their side requests."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from everlong.gateway.app import dialect_of
from everlong.gateway.formats import (
    ANTHROPIC,
    OPENAI,
    Dialect,
    client_of,
    folder_in_path,
    hint_in,
    looks_aside,
    path_of_folder,
)
from everlong.model import Message
from tests.context.builders import user
from tests.gateway.running import TENANT, Running


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude-cli/2.1.0 (external, cli)", "claude-code"),
        ("codex_exec/0.1.0 (Debian 12; x86_64) xterm", "codex"),
        ("opencode/1.2.3 ai-sdk/provider-utils/4.0.1 runtime/bun/1.3.0", "opencode"),
        ("OpenAI/Python 3.1.0", "openai-sdk"),
        ("AsyncAzureOpenAI/Python 3.1.0", "openai-sdk"),
        ("python-httpx/0.28.0", "python-httpx"),
        ("Python/3.12 aiohttp/3.14.0", "python"),
        ("MyAgent/1.0 (a note)", "MyAgent"),
        ("codexify/2.0", "codexify"),
        ("A" * 200, "A" * 40),
        ("a\x00b\x7f\udcffc/1", "abc"),
        ("\x00/1", None),
        ("(only a comment)", None),
    ],
)
def test_the_user_agent_names_the_program(agent: str, name: str | None) -> None:
    assert client_of({"user-agent": agent}) == name


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


def is_aside(*messages: Message | str, system: str = "", tools: bool = False, max_tokens: int = 0) -> bool:
    said = [user(one) if isinstance(one, str) else one for one in messages]
    return looks_aside(has_tools=tools, max_tokens=max_tokens, system_text=system, messages=said)


@pytest.mark.parametrize(
    "system",
    [
        "You are a title generator. Say one line only.",
        "Be a helper.\n\nCreate a short title (two words) which captures the goal of this coding session.",
        "Suggest a name for this chat.",
        "Summarise the conversation in 5 words or less.",
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
        ("", "Name three topics for a chat with my grandmother."),
        ("You are a support agent. Keep the conversation on topic and give short answers.", "Hello."),
        ("Summarize the conversation that you are given in 200 words.", "Anna: Hi. Ben: Hi."),
        ("You help to build a title generator in Python.", "Start."),
    ],
)
def test_a_conversation_of_one_turn_is_no_side_request(system: str, asked: str) -> None:
    assert not is_aside(asked, system=system)


ALIKE: list[Any] = [
    {"role": "user", "content": "Begin."},
    {"role": "assistant", "content": "Begun."},
    {"role": "user", "content": "Go on."},
]


@pytest.mark.parametrize(
    ("metadata", "hint"),
    [
        (None, None),
        ({"user_id": 5}, None),
        ({"user_id": "somebody"}, None),
        ({"user_id": "user_ab_account_cd_session_ef-1"}, "ef-1"),
        ({"user_id": '{"device_id": "d", "session_id": "ef-2"}'}, "ef-2"),
        ({"user_id": "{broken"}, None),
        ({"user_id": '{"session_id": 7}'}, None),
        ({"user_id": "user_session_a\x00b"}, "ab"),
    ],
)
def test_a_name_stands_in_the_metadata(metadata: Any, hint: str | None) -> None:
    assert hint_in(metadata) == hint


def ask(running: Running, tenant: str, messages: list[Any], **extra: Any) -> None:
    headers = {
        "x-api-key": "k",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        TENANT: tenant,
        **extra.pop("headers", {}),
    }
    body = {"model": "claude-sonnet-5", "max_tokens": 50, "messages": messages, **extra}
    with running.raw() as raw:
        answer = raw.ask(json.dumps(body).encode(), headers=list(headers.items()))
    assert (answer.status, answer.header("x-everlong-warning")) == (200, None)


def sessions_of(running: Running, tenant: str) -> list[str | None]:
    return [turn.session for turn in running.store(tenant).turns.since()]


@pytest.fixture
def tenant() -> str:
    return f"tenant-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize(
    ("main", "agent"),
    [
        ({"x-claude-code-session-id": "c"}, {"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"}),
        ({"x-session-affinity": "ses_1"}, {"x-session-affinity": "ses_2", "x-parent-session-id": "ses_1"}),
        ({"thread-id": "t1"}, {"thread-id": "t2", "x-codex-parent-thread-id": "t1"}),
    ],
    ids=["claude-code", "opencode", "codex"],
)
def test_an_agent_works_for_the_conversation_that_its_client_names(
    main: dict[str, str], agent: dict[str, str], gateway: Running, tenant: str
) -> None:
    ask(gateway, tenant, ALIKE, headers=main)
    ask(gateway, tenant, [{"role": "user", "content": "Search the files."}], headers=agent)
    store = gateway.store(tenant)
    (top,) = store.conversations.newest(kinds=("main",))
    (helper,) = store.conversations.newest(kinds=("agent",))
    assert helper.works_for == top.parts[0]


def test_a_name_leads_into_no_other_tenant(gateway: Running, tenant: str) -> None:
    named = {"x-everlong-session": "mine"}
    ask(gateway, tenant, ALIKE, headers=named)
    ask(gateway, f"{tenant}-other", ALIKE, headers=named, metadata={"user_id": tenant})
    assert len(sessions_of(gateway, tenant)) == 1
    assert sessions_of(gateway, tenant) != sessions_of(gateway, f"{tenant}-other")


@pytest.mark.parametrize(
    ("path", "headers", "dialect"),
    [
        ("/v1/messages", {"Authorization": "Bearer k"}, ANTHROPIC),
        ("/v1/messages/count_tokens?beta=true", {}, ANTHROPIC),
        ("/v1/chat/completions", {"anthropic-version": "2023-06-01", "x-api-key": "k"}, OPENAI),
        ("/v1/responses", {"x-api-key": "k"}, OPENAI),
        ("/v1/responses/compact", {"anthropic-beta": "x"}, OPENAI),
        ("/v1/models", {"x-api-key": "k"}, ANTHROPIC),
        ("/v1/models", {"x-api-key": "k", "Authorization": "Bearer k"}, OPENAI),
        ("/v1/files", {"anthropic-version": "2023-06-01"}, ANTHROPIC),
        ("/v1/files", {}, OPENAI),
    ],
)
def test_the_path_tells_the_api_and_headers_only_where_it_does_not(
    path: str, headers: dict[str, str], dialect: Dialect
) -> None:
    assert dialect_of(make_mocked_request("POST", path, headers=headers)) is dialect
