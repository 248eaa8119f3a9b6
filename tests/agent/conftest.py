"""An agent on a real store and a real client, against a model server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from everlong.agent import Agent, AgentEvent, AgentOptions, approve_everything, open_agent
from everlong.config import Settings
from everlong.providers import RetryPolicy, connect
from everlong.store import Store
from everlong.testing import ModelServer
from tests.agent.desk import Desk
from tests.testing_server.conftest import serve
from tests.waiting import PATIENCE

__all__ = ["serve"]

APIS = ("anthropic", "openai")
MODELS = {"anthropic": "anthropic:claude-sonnet-5", "openai": "custom-model"}


class Opened(Protocol):
    """Opens agents, each listening to itself in ``heard``."""

    def __call__(self, server: ModelServer, api: str = ..., *, window: int = ..., **more: Any) -> Agent: ...


@pytest.fixture
def heard() -> list[AgentEvent]:
    return []


@pytest.fixture
def opened(store: Store, heard: list[AgentEvent], root: Path) -> Iterator[Opened]:
    made: list[Agent] = []

    def open_one(server: ModelServer, api: str = "anthropic", *, window: int = 0, **more: Any) -> Agent:
        settings = settings_for(window or server.window, MODELS[api], **more.pop("settings", {}))
        listen: Callable[[AgentEvent], None] = more.pop("listen", heard.append)
        options = AgentOptions(**{"root": root, "approver": approve_everything, **more})
        connection = connected(server, api, settings)
        agent = open_agent(settings, connection, options, store=store, listen=listen)
        made.append(agent)
        return agent

    yield open_one
    for agent in made:
        agent.close()


def settings_for(window: int, model: str, **sections: Any) -> Settings:
    """Settings with the server's window, no other model for summaries, and no memory unless a test asks for it."""
    values: dict[str, Any] = {
        "models": {model.removeprefix("custom:"): {"context_length": window}},
        "auxiliary": {"compression": {"provider": "main"}},
        "compression": {"protect_last_n": 6},
        "memory": {"enabled": False},
    }
    return Settings.model_validate(values | sections)


def connected(server: ModelServer, api: str, settings: Settings) -> Any:
    """The official client of an API, on the server; it tries again without waiting."""
    url = server.url if api == "anthropic" else server.openai_url
    policy = RetryPolicy(attempts=6, first_delay=0.0, longest_delay=0.0)
    return connect(MODELS[api], settings, base_url=url, api_key="made-up", policy=policy, timeout=PATIENCE)


@pytest.fixture
def desk(root: Path, store: Store) -> Desk:
    return Desk(root, store)
