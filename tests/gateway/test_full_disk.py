"""What the gateway does where it cannot keep what it is sent: a full disk, a locked file, a kill."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from tests.examples import few
from tests.gateway.running import Raw
from tests.gateway.served import Program, program, raw
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE, until

CHAT = "/v1/chat/completions"


def answer_of(exchange: Exchange) -> None:
    """Repeat the last words of a request."""
    body = json.loads(exchange.received.body)
    said = body["messages"][-1]["content"] if "messages" in body else body["input"]
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    if "messages" in body:
        message = {"role": "assistant", "content": f"To {said}"}
        told: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    else:
        content = [{"type": "output_text", "text": f"To {said}", "annotations": []}]
        output = [{"type": "message", "role": "assistant", "status": "completed", "id": "msg_1", "content": content}]
        told = {"output": output, "status": "completed"}
    exchange.answer(json.dumps({"id": "made-up", "object": "x", "model": "m", "usage": usage, **told}).encode())


class Talk:
    """A client with one conversation, which goes on with what it is answered."""

    def __init__(self, client: Raw, name: str) -> None:
        self.client, self.name = client, name
        self.said: list[dict[str, str]] = []
        self.number = 0

    def ask(self) -> tuple[int, str]:
        """Say the next words; the status, and the warning of the answer."""
        self.number += 1
        words = f"{self.name} number {self.number} " + "and so on " * 20
        asked = [*self.said, {"role": "user", "content": words}]
        got = self.client.ask(json.dumps({"model": "m", "messages": asked}).encode(), CHAT)
        if got.status == 200:
            reply = got.json()["choices"][0]["message"]
            self.said = [*asked, {"role": "assistant", "content": reply["content"]}]
        return got.status, got.header("x-everlong-warning") or ""


@contextmanager
def no_room(served: Program) -> Iterator[None]:
    """Let a program write to no file, as on a full disk; nor the process that stores for it."""
    resource = pytest.importorskip("resource")
    tasks = Path(f"/proc/{served.process.pid}/task").iterdir()
    stores = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    before = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    for process in (served.process.pid, *stores):
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        if served.process.poll() is None:
            for process in (served.process.pid, *stores):
                resource.prlimit(process, resource.RLIMIT_FSIZE, before)


@contextmanager
def gateway(upstream: Upstream, folder: Path, **env: str) -> Iterator[Program]:
    home = {"EVERLONG_HOME": str(folder / "home"), "EVERLONG_TEST_STARTED": "1", **env}
    with program("--port", "0", "--upstream", upstream.url, "--store", str(folder / "s.db"), **home) as served:
        yield served


def ready(served: Program) -> int:
    with raw(served.address) as client:
        return client.ask(b"", "/readyz", method="GET").status


def stored(folder: Path) -> list[str]:
    """All that was ever said, in whatever conversation."""
    with Store.open(folder / "s.db") as store:
        found = {entry.id: entry for turn in store.turns.since() for entry in store.entries(store.branch(turn.branch))}
        assert store.verify().problems == []
        return [str(entry.message["content"]) for entry in found.values()]


def refusals_in(served: Program, count: int) -> list[str]:
    """Wait for the log lines of so many requests that were answered with 503; their levels."""
    levels: list[str] = []
    assert served.process.stderr is not None
    while len(levels) < count and (line := served.process.stderr.readline()):
        told = json.loads(line) if line.startswith("{") else {}
        levels += [told["level"]] if told.get("status") == 503 and told["path"] != "/readyz" else []
    return levels


linux = pytest.mark.skipif(sys.platform != "linux", reason="a limit for another process can be set on Linux only")


@linux
@pytest.mark.spec("12.7")
def test_on_a_full_disk_no_turn_is_answered_and_lost(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path) as served, raw(served.address) as client:
        talk, other = Talk(client, "first"), Talk(client, "second")
        assert [talk.ask()[0] for _ in range(3)] == [200] * 3
        seen = len(upstream.requests)
        with no_room(served):
            assert [talk.ask()[0] for _ in range(3)] == [503] * 3
            assert other.ask()[0] == 503  # one that is not known
            refused = client.ask(b'{"model":"m","input":"Hello?"}', "/v1/responses")
            assert refused.status == 503
            assert "neither in its journal nor in its database" in refused.json()["error"]["message"]
            assert refused.header("retry-after")
            assert len(upstream.requests) == seen, "a request went upstream that is kept nowhere"
            assert ready(served) == 503
        assert ready(served) == 200
        assert [talk.ask()[0] for _ in range(2)] == [200] * 2
        assert refusals_in(served, 5) == ["error"] * 5
        served.tell(signal.SIGKILL)
        served.end()
    with gateway(upstream, tmp_path) as served:
        until(lambda: not any((tmp_path / "home").glob("gateway-spool/*.jsonl")) or _is_empty(tmp_path))
        served.tell(signal.SIGTERM)
        served.end()
    found = stored(tmp_path)
    assert [one["content"] for one in talk.said] == [one for one in found if "first" in one]


@linux
@pytest.mark.spec("12.7")
def test_who_prefers_answers_to_records_gets_them_with_a_warning(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path, EVERLONG_GATEWAY__WHEN_FULL="pass") as served, raw(served.address) as client:
        talk = Talk(client, "first")
        assert talk.ask()[0] == 200
        with no_room(served):
            status, warning = talk.ask()
            assert status == 200
            assert "memory" in warning
            assert ready(served) == 200
        served.tell(signal.SIGTERM)
        code, said = served.end()
    assert code == 0
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert "error" in {line["level"] for line in lines if line.get("path") == CHAT}


@linux
@pytest.mark.spec("12.7")
def test_an_answer_that_finds_the_disk_full_is_kept_until_there_is_room(upstream: Upstream, tmp_path: Path) -> None:
    is_asked, go_on = threading.Event(), threading.Event()

    def script(exchange: Exchange) -> None:
        if len(upstream.requests) > 1:
            is_asked.set()
            go_on.wait(PATIENCE)
        answer_of(exchange)

    upstream.script = script
    with gateway(upstream, tmp_path) as served, raw(served.address) as client:
        talk = Talk(client, "first")
        talk.ask()
        got: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: got.append(talk.ask()))
        asking.start()
        assert is_asked.wait(PATIENCE)
        until(lambda: any("number 2" in words for words in stored(tmp_path)))  # as requests that take their time are
        with no_room(served):
            go_on.set()
            asking.join(PATIENCE)
        assert got[0][0] == 200
        assert "kept in memory" in got[0][1]
        until(lambda: talk.said[-1]["content"] in stored(tmp_path))
        served.tell(signal.SIGTERM)
        assert served.end()[0] == 0
    assert [one["content"] for one in talk.said] == stored(tmp_path)


@pytest.mark.spec("12.7")
@pytest.mark.parametrize("path", few([CHAT, "/v1/responses"]))
def test_a_kill_right_after_a_request_went_upstream_loses_no_word_of_it(
    path: str, upstream: Upstream, tmp_path: Path
) -> None:
    served_now: list[Program] = []

    def script(exchange: Exchange) -> None:
        if b"the last words" in exchange.received.body:
            served_now[0].tell(signal.SIGKILL)
            served_now[0].process.wait(PATIENCE)
            return
        answer_of(exchange)

    upstream.script = script
    with gateway(upstream, tmp_path) as served, raw(served.address) as client:
        served_now.append(served)
        talk = Talk(client, "first")
        for _ in range(2):
            talk.ask()
        messages = [*talk.said, {"role": "user", "content": "the last words"}]
        told: dict[str, Any] = {"messages": messages} if path == CHAT else {"input": "the last words"}
        client.begin(json.dumps({"model": "m", **told}).encode(), path)
        served.process.wait(PATIENCE)
    with gateway(upstream, tmp_path) as served:
        until(lambda: "the last words" in stored(tmp_path))
        served.tell(signal.SIGTERM)
        served.end()
    found = stored(tmp_path)
    assert found.count("the last words") == 1
    with Store.open(tmp_path / "s.db") as store:
        assert sum(turn.status == "open" for turn in store.turns.since()) == 1


@pytest.mark.spec("12.7")
def test_a_file_that_another_process_has_locked_holds_up_no_new_conversation(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path) as served, raw(served.address) as client:
        talks = [Talk(client, f"conversation {number}") for number in range(6)]
        assert talks[0].ask()[0] == 200
        with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert [talk.ask()[0] for talk in talks] == [200] * 6
            other.execute("ROLLBACK")
        wanted = {message["content"] for talk in talks for message in talk.said}
        until(lambda: wanted <= set(stored(tmp_path)))
        served.tell(signal.SIGTERM)
        assert served.end()[0] == 0
    assert sorted(wanted) == sorted(stored(tmp_path))


def _is_empty(folder: Path) -> bool:
    return all(not path.stat().st_size for path in (folder / "home").glob("gateway-spool/*.jsonl"))


def test_a_balancer_hears_of_a_stop_before_anybody_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path) as served:
        assert ready(served) == 200
        served.tell(signal.SIGTERM)
        until(lambda: ready(served) == 503)
        with raw(served.address) as client:
            assert Talk(client, "late").ask()[0] == 200
        served.tell(signal.SIGTERM)
        served.end()


def test_a_kept_connection_gets_its_answer_and_ends_with_it(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path) as served, raw(served.address) as client:
        talk = Talk(client, "first")
        assert talk.ask()[0] == 200
        assert ready(served) == 200
        served.tell(signal.SIGTERM)
        until(lambda: ready(served) == 503)
        got = client.ask(b'{"model":"m","messages":[{"role":"user","content":"again"}]}', "/v1/chat/completions")
        assert (got.status, got.header("connection")) == (200, "close")
        served.tell(signal.SIGTERM)
        served.end()
