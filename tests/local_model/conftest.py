"""A small real model behind llama.cpp's server on loopback, and agents that talk to it in both formats."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from everlong.agent import Agent, AgentEvent, AgentOptions, open_agent
from everlong.config import Settings
from everlong.context import ContextCompressor
from everlong.providers import connect
from everlong.store import Store
from tests.local_model import serving

WINDOW = 4_096
SYSTEM = "You keep the log of a small harbour. Answer in one short sentence."
MODELS = {"openai": "tiny", "anthropic": "workshop:tiny"}
_GOODS = ("amber", "barley", "cider", "copper", "hemp", "linen", "salt", "slate", "tallow", "timber", "wool")


def entry(number: int) -> str:
    """What the user says at each turn: about 45 tokens, with facts of its own."""
    goods, gate = _GOODS[number * 7 % len(_GOODS)], number % 4 + 1
    return (
        f"Entry {number}: the {goods.title()}-{number * 37 % 100} lies at berth {number % 9 + 1} with "
        f"{number * 13 + 40} crates of {goods} for gate {gate}. What comes first?"
    )


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the model; its server ends with the tests, however they end."""
    missing = serving.missing_packages()
    if missing:
        pytest.skip(f"no local model: {' and '.join(missing)} not installed; run: make local-model")
    log = tmp_path_factory.mktemp("local_model") / "server.log"
    command = [sys.executable, serving.__file__, str(WINDOW)]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"the model's server did not start: {log.read_text()[-2_000:]}"
        yield address
        assert process.poll() is None, f"the model's server ended by itself: {log.read_text()[-2_000:]}"
        process.stdin.close()


class Opened(Protocol):
    """Opens agents that talk to the model."""

    def __call__(self, api: str, *, summarizer: str = ..., window: int | None = ..., **more: Any) -> Agent: ...


@pytest.fixture
def heard() -> list[AgentEvent]:
    return []


@pytest.fixture
def opened(served: str, store: Store, heard: list[AgentEvent], tmp_path: Path) -> Iterator[Opened]:
    made: list[Agent] = []

    def open_one(api: str, *, summarizer: str = "extractive", window: int | None = None, **more: Any) -> Agent:
        settings = settings_for(served, window)
        base_url = f"{served}/v1" if api == "openai" else None
        options = AgentOptions(root=tmp_path, tools=(), system_prompt=SYSTEM, **more)
        connection = connect(MODELS[api], settings, base_url=base_url)
        agent = open_agent(settings, connection, options, store=store, listen=heard.append)
        made.append(agent)
        if summarizer == "extractive":
            assert isinstance(agent.engine, ContextCompressor)
            agent.engine.summarizer = None
        return agent

    yield open_one
    for agent in made:
        agent.close()


def settings_for(served: str, window: int | None) -> Settings:
    """Settings for a slow model: short answers, and a compaction after some seven turns rather than fifty."""
    values: dict[str, Any] = {
        "agent": {"max_output_tokens": 12},
        "auxiliary": {"compression": {"provider": "main"}},
        "compression": {"threshold": 0.1, "protect_last_n": 4, "summary_max_tokens": 120},
        "memory": {"enabled": False},
        "providers": {"workshop": {"api": "anthropic", "base_url": served}},
    }
    if window is not None:
        values["models"] = {"tiny": {"context_length": window}}
    return Settings.model_validate(values)
