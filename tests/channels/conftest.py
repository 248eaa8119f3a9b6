"""Channels on a real store and a real client, against a model server on loopback."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from everlong.agent import Agent, AgentOptions, open_agent
from everlong.agent.engines import EngineMaker
from everlong.channels.platform import Inbound
from everlong.channels.service import Channel, ChannelClock
from everlong.config import Settings
from everlong.providers import RetryPolicy, connect
from everlong.store import Store
from everlong.testing import ModelServer
from tests.channels.discord_stand_in import DiscordStandIn, discord_stand_in
from tests.channels.recorder import RecordingPlatform
from tests.channels.telegram_stand_in import TelegramStandIn, stand_in
from tests.examples import few
from tests.testing_server.conftest import serve
from tests.waiting import PATIENCE

__all__ = ["serve"]

MODEL = "custom-model"


class Clock:
    """A clock that tests set; sleeping takes no time."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.005))


class Opened(Protocol):
    """Opens a channel on the store of the test; opened again, it is a restart."""

    def __call__(
        self, server: ModelServer, platform: RecordingPlatform, **settings: Any
    ) -> AbstractAsyncContextManager[Channel]: ...


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user who runs the tests is read or written."""
    monkeypatch.setenv("EVERLONG_HOME", str(tmp_path / "home"))


ON_BOTH_DATABASES = pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
ON_SQLITE_AND_IN_SOAK_ON_BOTH = pytest.mark.parametrize("store", few(["sqlite", "postgresql"]), indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store in a file, or on a server where a test asks for it."""
    if getattr(request, "param", "sqlite") == "postgresql":
        with Store.open(request.getfixturevalue("postgres_url"), tenant=uuid.uuid4().hex) as opened:
            yield opened
        return
    with Store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform() -> RecordingPlatform:
    return RecordingPlatform()


@pytest.fixture
def discord() -> Iterator[DiscordStandIn]:
    with discord_stand_in() as running:
        yield running


@pytest.fixture
def ada(discord: DiscordStandIn) -> str:
    return discord.add_person("ada")


@pytest.fixture
def chat(discord: DiscordStandIn, ada: str) -> str:
    return discord.add_private_chat(ada)


def settings_for(window: int, **sections: Any) -> Settings:
    """Settings with one known person and the server's window, without memory unless a test asks for it."""
    channels = dict(sections.pop("channels", {}))
    telegram = {"users": ["1", "2"], **channels.pop("telegram", {})}
    values: dict[str, Any] = {
        "models": {MODEL: {"context_length": window}},
        "auxiliary": {"compression": {"provider": "main"}},
        "compression": {"protect_last_n": 4},
        "memory": {"enabled": False},
        "channels": {**channels, "telegram": telegram},
    }
    return Settings.model_validate(values | sections)


def opener_for(server: ModelServer, engines: dict[str, EngineMaker] | None = None) -> Callable[..., Agent]:
    """Return a function that opens agents with the official client, on the server."""

    def open_one(settings: Settings, model: str | None, options: AgentOptions, **more: Any) -> Agent:
        policy = RetryPolicy(attempts=3, first_delay=0.0, longest_delay=0.0)
        named = model or MODEL
        connection = connect(
            named, settings, base_url=server.openai_url, api_key="made-up", policy=policy, timeout=PATIENCE
        )
        return open_agent(settings, connection, replace(options, engines=engines), **more)

    return open_one


@pytest.fixture
def opened(store: Store, clock: Clock) -> Opened:
    return opener_on(store, clock)


def opener_on(store: Store, clock: Clock) -> Opened:
    """Return what opens channels on a store."""

    @asynccontextmanager
    async def open_channel(server: ModelServer, platform: RecordingPlatform, **sections: Any) -> Any:
        engines = sections.pop("engines", None)
        settings = settings_for(sections.pop("window", server.window), **sections)
        channel = Channel(
            platform,
            store,
            settings,
            settings.channels.telegram,
            asyncio.Semaphore(8),
            ChannelClock(clock.now, clock.sleep),
            opener_for(server, engines),
        )
        await channel.start()
        try:
            yield channel
        finally:
            await channel.stop(PATIENCE)

    return open_channel


async def until(found: Callable[[], Any]) -> Any:
    """Return what a function finds as soon as it finds something; the loop goes on meanwhile."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not (value := found()):
        assert asyncio.get_running_loop().time() < end, f"waited {PATIENCE} seconds in vain"
        await asyncio.sleep(0.01)
    return value


async def hear(channel: Channel, *events: Inbound) -> None:
    """Have a channel receive events, and wait until it has dealt with them."""
    for event in events:
        await channel.receive(event)
    await channel.settle()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    """Let the machine's own time be UTC, whatever it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def api() -> Iterator[TelegramStandIn]:
    """A Telegram in which Anna has a chat."""
    with stand_in() as server:
        server.private_chat(501, "Anna")
        yield server
