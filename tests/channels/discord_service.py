"""The whole service on the stand-in for Discord: in a thread, or as a program that a test may kill.

python -m tests.channels.discord_service STORE SETTINGS MODEL_URL
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from everlong.agent import Agent, AgentOptions, open_agent
from everlong.channels.discord import DiscordPlatform
from everlong.channels.service import ChannelService
from everlong.config import Settings
from everlong.providers import RetryPolicy, connect
from everlong.store import Store
from tests.channels.discord_stand_in import TOKEN, DiscordStandIn
from tests.waiting import PATIENCE, until

MODEL = "custom-model"


def settings_values(discord: DiscordStandIn, *, stream: bool = True, **section: Any) -> dict[str, Any]:
    """Return settings in which everybody of the stand-in may talk, unless a test says who."""
    own = {"api_base": discord.api, "users": list(discord.people), **section}
    return {
        "models": {MODEL: {"context_length": 32_768}},
        "auxiliary": {"compression": {"provider": "main"}},
        "memory": {"enabled": False},
        "channels": {"stream": stream, "discord": own},
    }


async def serve_forever(store: Store, values: dict[str, Any], model_url: str) -> None:
    """Run the service until it is cancelled."""
    settings = Settings.model_validate(values)

    def open_one(settings: Settings, _model: str | None, options: AgentOptions, **more: Any) -> Agent:
        policy = RetryPolicy(attempts=3, first_delay=0.0, longest_delay=0.0)
        connection = connect(MODEL, settings, base_url=model_url, api_key="made-up", policy=policy, timeout=PATIENCE)
        return open_agent(settings, connection, options, **more)

    platform = DiscordPlatform(TOKEN, settings.channels.discord)
    await ChannelService(store, settings, {"discord": platform}, opener=open_one).run()


@contextmanager
def serving(discord: DiscordStandIn, path: Path, model_url: str, **section: Any) -> Iterator[None]:
    """Run the service in a thread until the end of the block."""
    values = settings_values(discord, **section)
    failures: list[BaseException] = []
    stops: list[Callable[[], object]] = []

    async def serve_until_stopped(store: Store) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
        await serve_forever(store, values, model_url)

    def run() -> None:
        with Store.open(path) as store, suppress(asyncio.CancelledError):
            try:
                asyncio.run(serve_until_stopped(store))
            except Exception as error:  # noqa: BLE001 - the test looks at it
                failures.append(error)

    before = discord.gateway.identified
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        until(lambda: failures or discord.gateway.identified > before)
        assert failures == []
        yield
    finally:
        for stop in stops if thread.is_alive() else ():
            stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert failures == []


class DiscordProgram:
    """The service as a process of its own."""

    def __init__(self, discord: DiscordStandIn, path: Path, model_url: str, **section: Any) -> None:
        values = json.dumps(settings_values(discord, **section))
        before = discord.gateway.identified
        command = [sys.executable, "-W", "ignore", "-m", "tests.channels.discord_service", str(path), values, model_url]
        self._process = subprocess.Popen(command)
        until(lambda: discord.gateway.identified > before)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._process.wait(PATIENCE)


def _main() -> None:
    path, values, model_url = sys.argv[1:]
    with Store.open(Path(path)) as store:
        asyncio.run(serve_forever(store, json.loads(values), model_url))


if __name__ == "__main__":
    _main()
