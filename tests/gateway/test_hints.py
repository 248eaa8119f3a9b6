"""The names by which clients know their conversations help to tell them apart, and decide nothing alone."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from everlong.gateway.formats import hint_in
from tests.gateway.running import TENANT, Running

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
    ],
    ids=["claude-code", "opencode"],
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
