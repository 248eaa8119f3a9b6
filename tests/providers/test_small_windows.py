"""A summarizer's window of any size, known or not, is enough: in the library, the agent and the gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlong.agent import AgentOptions, open_agent
from everlong.config import Settings
from everlong.context import ContextCompressor
from everlong.providers import connect, summarizer_for
from everlong.store import Store
from everlong.testing import ModelServer
from everlong.tokens import MessageCounter, counter_for
from tests.context.builders import long_session
from tests.context.scripted import GOOD
from tests.examples import few
from tests.gateway.running import run_gateway
from tests.testing_server.conftest import KEY, Serve
from tests.waiting import until

PROMPT_SHARE = 0.6
MAIN = "custom-model"
SAID = "The boat was moored with two lines and a spring, and its owner signed the harbour's book. " * 60
count = MessageCounter(counter_for("tiny")).total
Compactions = Callable[[Settings, ModelServer, Path], list[tuple[str | None, str | None]]]


def in_library(settings: Settings, main: ModelServer, folder: Path) -> list[tuple[str | None, str | None]]:  # noqa: ARG001
    chain = summarizer_for(settings)
    reports = []
    for _ in range(2):
        engine = ContextCompressor(8_000, summarizer=chain)
        engine.compress(long_session(120))
        reports.append(engine.last_report)
    return [(one.summarizer, one.fallback_reason) for one in reports if one is not None]


def in_agent(settings: Settings, main: ModelServer, folder: Path) -> list[tuple[str | None, str | None]]:
    with Store.open(folder / "store.db") as store:
        connection = connect(MAIN, settings, base_url=main.openai_url, api_key=KEY)
        agent = open_agent(settings, connection, AgentOptions(root=folder), store=store)
        for number in range(40):
            agent.run(f"Boat {number}: {SAID}")
        agent.close()
        return [(one.summarizer, one.fallback) for one in store.compactions()]


def in_gateway(settings: Settings, main: ModelServer, folder: Path) -> list[tuple[str | None, str | None]]:
    given: dict[str, Any] = settings.model_dump(mode="json", include={"models", "auxiliary"})
    with run_gateway(main.url, str(folder / "store.db"), given, summarizer=None) as running:
        client, history = running.openai(), list[Any]()
        for number in range(40):
            history.append({"role": "user", "content": f"Boat {number}: {SAID}"})
            reply = client.chat.completions.create(model=MAIN, messages=history, max_tokens=200)
            history.append({"role": "assistant", "content": reply.choices[0].message.content})
            until(lambda: not running.gateway._compactor._ahead)  # or lines take the place of a summary under way
        return [(one.summarizer, one.fallback) for one in running.store().compactions()]


@pytest.mark.spec("5.6")
@pytest.mark.parametrize("compact", [in_library, in_agent, in_gateway])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("window", few([3_000, 16_000, 8_000, 12_000, 64_000]))
def test_every_window_of_a_summarizer_is_enough(
    serve: Serve, tmp_path: Path, window: int, is_known: bool, compact: Compactions
) -> None:
    """A known one is filled to 60 % at most; the parts for an unknown one are halved until they fit, and stay so."""
    main, tiny = serve("Moored.", window=24_000), serve(GOOD, window=window, models=("tiny",))
    models = {MAIN: {"context_length": 24_000}, **({"tiny": {"context_length": window}} if is_known else {})}
    auxiliary = {"compression": {"base_url": tiny.openai_url, "model": "tiny"}}
    settings = Settings.model_validate({"models": models, "auxiliary": auxiliary, "memory": {"enabled": False}})
    done = compact(settings, main, tmp_path)
    assert len(done) >= 2
    assert {*done} == {("custom:tiny", None)}
    if is_known:
        assert tiny.rejections == []
        assert max(count(one.body["messages"]) for one in tiny.requests) <= PROMPT_SHARE * window
    refused = [one.rejected for one in tiny.requests]
    assert True not in refused[refused.index(False) :]  # nothing is learned twice
