"""The service as it runs: one process on a store, texts from the command line, beside a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from everlong.channels.service import ChannelClock, ChannelService, lease_key
from everlong.errors import EverlongError
from everlong.store import Store, leases
from everlong.testing import Ask, ModelServer, ScriptedModel
from tests.channels.conftest import Clock, opener_for, settings_for, until
from tests.channels.recorder import RecordingPlatform
from tests.channels.telegram_stand_in import TOKEN, stand_in
from tests.channels.test_queueing import words
from tests.waiting import PATIENCE, until as wait_until


def service_on(store: Store, server: ModelServer, platform: RecordingPlatform, clock: Clock) -> ChannelService:
    timing = ChannelClock(clock.now, clock.sleep)
    return ChannelService(store, settings_for(32_000), {"telegram": platform}, timing, opener_for(server))


@asynccontextmanager
async def running(service: ChannelService) -> AsyncIterator[None]:
    """Run a service until the end of the block."""
    is_up = asyncio.Event()
    task = asyncio.ensure_future(service.run(is_up.set))
    waiting = asyncio.ensure_future(is_up.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        if task.done():
            task.result()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, EverlongError):
            await task


async def test_a_second_process_is_told_that_another_one_runs_and_may_run_after_it(
    store: Store, platform: RecordingPlatform, serve: Any, clock: Clock
) -> None:
    server = serve(words)
    async with running(service_on(store, server, platform, clock)):
        receive = await until(lambda: platform.receive)
        second = RecordingPlatform()
        with pytest.raises(EverlongError, match="another process runs telegram on this store already"):
            async with running(service_on(store, server, second, clock)):
                pass
        assert second.receive is None
        await receive(platform.message("still here?"))
        await until(lambda: platform.texts() == ["still here?"])
        assert {one.name for one in platform.commands} >= {"new", "stop"}
    assert platform.is_closed
    third = RecordingPlatform()
    async with running(service_on(store, server, third, clock)):
        assert await until(lambda: third.receive)


def test_serve_runs_the_channels_beside_it_and_ends_them_with_it(serve: Any, tmp_path: Path) -> None:
    server = serve(words)
    with stand_in() as api:
        api.private_chat(11)
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        settings = {
            "agent": {"model": "local:a-model"},
            "providers": {"local": {"base_url": server.openai_url, "key_variable": "LOCAL_API_KEY"}},
            "models": {"local:a-model": {"context_length": 32_000}},
            "memory": {"enabled": False},
            "gateway": {"port": 0},
            "channels": {"telegram": {"enabled": True, "api_base": api.address, "users": ["11"]}},
        }
        (home / "config.yaml").write_text(json.dumps(settings))
        keys = {"TELEGRAM_BOT_TOKEN": TOKEN, "LOCAL_API_KEY": "made-up", "OPENAI_API_KEY": "made-up"}
        env = {**os.environ, **keys, "EVERLONG_HOME": str(home)}
        command = [sys.executable, "-m", "everlong", "serve", "--until-eof"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, cwd=tmp_path)
        try:
            api.say(11, 11, "Is anybody there?")
            wait_until(lambda: process.poll() is not None or _said(api) == ["Is anybody there?"])
            assert process.poll() is None, (tmp_path / "log").read_text()
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.communicate()
        before = sum(api.counts.values())
        api.say(11, 11, "And now?")
        with Store.open(home / "store.db") as store:  # its lease is free: the channels have ended too
            assert leases.take(store.database, lease_key(store.tenant, "telegram"), 60.0) is not None
        assert sum(api.counts.values()) == before


def _said(api: Any) -> list[str]:
    return [shown.text for shown in api.all_shown()]


STORY = "".join(f"{number:03} " for number in range(130)).strip()


def run_processes(server: Any, folder: Path, moments: list[str]) -> list[int]:
    """Return the exit codes of processes that die at moments, one after the other."""
    arguments = [str(folder / "store.db"), server.openai_url, str(folder), *moments]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", root]), "EVERLONG_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "tests.channels.killed_channel", *arguments]
    done = subprocess.run(command, env=env, cwd=root, stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def check_one_answer(folder: Path) -> None:
    """One turn is stored, and people see its words once; a message without words may have stayed behind."""
    shown = [one["text"] for one in json.loads((folder / "shown.json").read_text()).values()]
    assert "".join(text for text in shown if text != "…") == STORY
    assert shown.count("…") <= 1
    with Store.open(folder / "store.db") as store:
        (one,) = store.conversations.newest(5)
        roles = [line.entry.message["role"] for line in store.conversations.lines(one.id) if line.status is None]
        assert roles == ["user", "assistant"]
        assert store.verify().problems == []


@pytest.mark.spec("12.7")
def test_kill_9_after_kill_9_leaves_one_turn_and_one_answer(serve: Any, tmp_path: Path) -> None:
    def say(_ask: Ask) -> str:
        if len(model.asked) == 1:  # in the middle of the turn
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        return STORY

    model = ScriptedModel(say)
    moments = ["stored", "thinking", "send-1-after", "edit-1-after", "edit-2-before", "never"]
    codes = run_processes(serve(model), tmp_path, moments)
    assert dict(zip(moments, codes, strict=True)) == dict.fromkeys(moments, -signal.SIGKILL) | {"never": 0}
    check_one_answer(tmp_path)
    assert len(model.asked) == 2  # the second one instead of the one that a kill cut short
