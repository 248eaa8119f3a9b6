"""The storing process: it stores what threads would store, and its death costs nobody anything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import ClientSession, ClientTimeout
from bench.gateway.kills import Client, Seen, audit, drain
from bench.gateway.serving import gateway
from bench.gateway.upstreams import failing_upstream
from bench.store.server import binaries, pair

from everlong.errors import StoreUnavailable
from everlong.gateway import writer as writers
from everlong.gateway.journal import JournalEntry
from everlong.gateway.writer import StoringProcess
from everlong.model import text_of
from everlong.store import Store
from everlong.testing import Answer, ModelServer
from tests.examples import few
from tests.gateway.running import Running, run_gateway
from tests.gateway.served import Program, program
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="threads store here")


@pytest.fixture
def repeating() -> Iterator[ModelServer]:
    with ModelServer(lambda ask: Answer(f"Heard: {ask.last_user}")) as model:
        yield model


@pytest.fixture
def process(tmp_path: Path) -> StoringProcess:
    return StoringProcess(str(tmp_path / "gateway.db"))


@pytest.fixture
def running(repeating: ModelServer, tmp_path: Path, process: StoringProcess) -> Iterator[Running]:
    with run_gateway(repeating.url, str(tmp_path / "gateway.db"), writer=process) as made:
        yield made


def talk(client: openai.OpenAI, name: str, turns: int) -> list[str]:
    """Talk for some turns; return the words of the whole conversation."""
    said: list[Any] = []
    for number in range(turns):
        said.append({"role": "user", "content": f"{name}, {number}"})
        answer = client.chat.completions.create(model="m", messages=said).choices[0].message.content
        said.append({"role": "assistant", "content": answer})
    return [one["content"] for one in said]


def turns_of(running: Running) -> list[tuple[str, str]]:
    """Return the last words and the reply of every stored turn."""
    store, found = running.store(), []
    for turn in store.turns.since():
        entries = [one for one in store.entries(store.branch(turn.branch, turn.depth)) if one.id is not None]
        reply = store.turns.reply(turn.id)
        found.append((text_of(entries[-1].message), "" if reply is None else text_of(reply)))
    return found


def test_a_killed_process_is_started_again_and_nothing_is_lost_or_doubled(
    running: Running, process: StoringProcess
) -> None:
    is_over, killed = threading.Event(), list[int]()

    def kill() -> None:
        """Kill the process whenever it has stored something."""
        seen = 0
        while not is_over.wait(0.01):
            with running.database.read() as connection:
                stored = connection.exec_driver_sql("SELECT count(*) FROM turn").scalar_one()
            pid = process.pid
            if pid is not None and stored > seen:
                seen = stored
                with suppress(ProcessLookupError):  # it has ended already
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    talks: list[list[str]] = []

    def go_on(name: str) -> None:
        """Talk until the process was killed some times."""
        client, number = running.openai(), 0
        while number < 2 or (len(killed) < 3 and number < 200):
            talks.append(talk(client, f"{name}, talk {number}", 5))
            number += 1

    clients = [threading.Thread(target=go_on, args=(f"client {number}",)) for number in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(PATIENCE)
    is_over.set()
    killer.join()
    asked = Counter((words, f"Heard: {words}") for said in talks for words in said[::2])
    until(lambda: not running.gateway.journal.waiting)
    assert Counter(turns_of(running)) == asked
    assert not running.store().verify().problems
    assert len(killed) >= 3


def test_a_killed_gateway_takes_its_process_along_and_nothing_is_lost_or_doubled(
    repeating: ModelServer, tmp_path: Path
) -> None:
    given = ["--port", "0", "--upstream", repeating.url, "--store", str(tmp_path / "gateway.db")]
    said: list[str] = []
    for number in range(3):
        with program(*given, EVERLONG_HOME=str(tmp_path / "home")) as served:
            with openai.OpenAI(base_url=f"{served.address}/v1", api_key="made-up", max_retries=0) as client:
                said += talk(client, f"talk {number}", 4)[::2]
            served.tell(signal.SIGKILL)
            served.end()  # its output ends with the last process that has it
    with program(*given, EVERLONG_HOME=str(tmp_path / "home")) as served:
        with Store.open(tmp_path / "gateway.db") as store:
            until(lambda: len([turn for turn in store.turns.since() if turn.status == "done"]) >= len(said))
        served.tell(signal.SIGTERM)
        assert served.end()[0] == 0
    with Store.open(tmp_path / "gateway.db") as store:
        replies = [store.turns.reply(turn.id) for turn in store.turns.since()]
        assert Counter(text_of(reply or {}) for reply in replies) == Counter(f"Heard: {words}" for words in said)
        assert not store.verify().problems


def children_of(served: Program) -> list[int]:
    tasks = Path(f"/proc/{served.process.pid}/task")
    if not tasks.exists():
        pytest.skip("this system does not show the children of a process")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, be it that nobody has asked for its exit code yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("name", few([signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP], 2))
def test_a_signal_to_all_processes_leaves_none_behind_and_everything_stored(
    repeating: ModelServer, tmp_path: Path, name: signal.Signals
) -> None:
    """A terminal sends Ctrl-C to all of them, and a service manager its signal to stop."""
    given = ["--port", "0", "--upstream", repeating.url, "--store", str(tmp_path / "gateway.db")]
    with program(*given, EVERLONG_HOME=str(tmp_path / "home"), EVERLONG_TEST_STARTED="1") as served:
        (storing,) = children_of(served)
        with openai.OpenAI(base_url=f"{served.address}/v1", api_key="made-up", max_retries=0) as client:
            talk(client, "one", 2)
        for pid in (storing, served.process.pid):
            os.kill(pid, name)
        code, said = served.end()
        assert code == (-signal.SIGKILL if name == signal.SIGKILL else 0), said
        assert "Traceback" not in said
        until(lambda: is_gone(storing))
    if name != signal.SIGKILL:
        with Store.open(tmp_path / "gateway.db") as store:
            assert [turn.status for turn in store.turns.since()] == ["done"] * 2


def test_a_process_ends_with_its_gateway_while_it_cannot_open_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_LAST_SECONDS", 3_600.0)  # it is not killed, but ends by itself
    (tmp_path / "file").write_text("no folder")

    async def start_and_close() -> tuple[int | None, int | None]:
        process = StoringProcess(str(tmp_path / "file" / "gateway.db"))
        await process.start()
        pid = process.pid
        await asyncio.wait_for(process.close(), PATIENCE)
        return pid, process.pid

    before, after = asyncio.run(start_and_close())
    assert before is not None
    assert after is None
    assert is_gone(before)


def test_a_process_that_cannot_be_started_is_a_clear_error(
    process: StoringProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(StoreUnavailable, match="stores for the gateway cannot be started"):
        asyncio.run(process.start())


SECRET = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3


@pytest.mark.parametrize("is_killed", [False, True])
def test_secrets_reach_neither_journal_nor_database(repeating: ModelServer, tmp_path: Path, is_killed: bool) -> None:
    """Of a fresh conversation, of one that goes on, and of one that forks; the reply repeats what it heard."""
    database = tmp_path / "gateway.db"
    process = StoringProcess(str(database), redacts=True)
    with run_gateway(repeating.url, str(database), {"store": {"redact": True}}, writer=process) as running:
        client = running.openai()
        said: list[Any] = []
        for words in ("a first one", "a second one", "an edited one"):
            said.append({"role": "user", "content": f"{words}: {SECRET}"})
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)  # so that the entry stays in the journal
            asked = threading.Thread(target=ask, args=(client, list(said)))
            asked.start()
            journal = until(partial(journal_with, running, words))
            assert SECRET not in journal
            os.kill(process.pid, signal.SIGKILL if is_killed else signal.SIGCONT)
            asked.join(PATIENCE)
            until(lambda: not running.gateway.journal.waiting)
            if words == "a first one":
                said.append({"role": "assistant", "content": f"Heard: {words}: {SECRET}"})
            else:
                said.pop()
        assert len(turns_of(running)) == 3
        kept = [one for turn in turns_of(running) for one in turn]
        assert not [one for one in kept if SECRET in one]
        assert all("a first one" in one or "a second one" in one or "an edited one" in one for one in kept)
    assert not [file.name for file in tmp_path.glob("gateway.db*") if SECRET.encode() in file.read_bytes()]


def ask(client: openai.OpenAI, said: list[Any]) -> None:
    client.chat.completions.create(model="m", messages=said)


def journal_with(running: Running, words: str) -> str:
    """Return the journal once it has a finished turn with these words; empty before that."""
    files = running.gateway.journal._folder.glob("*.jsonl")
    lines = [line for file in files for line in file.read_text().splitlines()]
    replies = [(line, JournalEntry.from_line(line.encode()).turn.reply) for line in lines]
    finished = [line for line, reply in replies if words in line and "Heard" in json.dumps(reply)]
    return "\n".join(lines) if finished else ""


def test_the_process_has_no_keys(tmp_path: Path, repeating: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up")
    process = StoringProcess(str(tmp_path / "gateway.db"))
    with run_gateway(repeating.url, str(tmp_path / "gateway.db"), writer=process) as running:
        talk(running.openai(), "one", 1)
        if not Path(f"/proc/{process.pid}/environ").exists():
            pytest.skip("this system does not show the environment of a process")
        assert b"sk-made-up" not in Path(f"/proc/{process.pid}/environ").read_bytes()


SETTINGS = {"models": {"m-1": {"context_length": 1_000_000}}, "auxiliary": {"compression": {"provider": "main"}}}
ANSWERS = 40
"""Answers with the leader, with nobody, and with the standby in its place."""


async def load(address: str, *steps: Callable[[], None]) -> Seen:
    """Let clients talk while one thing after the other happens; return what they saw."""
    seen = Seen()
    async with ClientSession(timeout=ClientTimeout(total=60)) as session:
        talkers = [
            asyncio.create_task(Client(f"client {number}", [(address, 0)], seen).talk(session)) for number in range(4)
        ]
        for step in (*steps, lambda: None):
            before = len(seen.answered)
            while len(seen.answered) < before + ANSWERS:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(step)
        seen.is_over = True
        await asyncio.gather(*talkers)
    return seen


def test_a_standby_takes_over_and_every_answered_turn_is_stored_once(tmp_path: Path) -> None:
    if binaries() is None:
        pytest.skip("no PostgreSQL: install its server binaries (initdb, postgres)")
    with pair() as servers, failing_upstream(0.0) as model:
        Store.open(servers.url).close()
        with gateway(model, servers.url, SETTINGS, tmp_path) as (address, _):
            seen = asyncio.run(load(address, servers.kill_leader, servers.promote))
            drained = drain(servers.url, tmp_path, seen)
        assert (drained.lost, drained.left) == (0, 0)
        assert audit(servers.url, seen) == []
