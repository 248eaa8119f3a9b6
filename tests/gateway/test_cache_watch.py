"""For each turn that missed the provider's cache the gateway knows why, from the bytes that it sent."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from everlong.testing import ModelServer
from tests.examples import few
from tests.gateway.running import Raw
from tests.gateway.served import raw as connected, serving

API = [("x-api-key", "own"), ("anthropic-version", "2023-06-01")]
MARK = {"type": "ephemeral"}
WORDS = "The tide gauge was read again and found in order. "


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": WORDS * 20, "input_schema": {"type": "object", "properties": {}}}


class Client:
    """A client that sends its whole history each time, with markers of its own where it is told to."""

    def __init__(self, raw: Raw, model: str = "claude-sonnet-5", *, marks: bool = False) -> None:
        self.raw, self.marks = raw, marks
        self.body: dict[str, Any] = {
            "model": model,
            "max_tokens": 100,
            "system": WORDS * 400,
            "tools": [tool("look"), tool("find")],
            "messages": [],
        }

    def say(self, text: str = WORDS * 60) -> dict[str, Any]:
        said = self.body["messages"]
        said.append({"role": "user", "content": text})
        sent = copy.deepcopy(self.body)
        if self.marks:  # the newest message becomes a list for its marker, and is a text again in the next request
            sent["system"] = [{"type": "text", "text": sent["system"], "cache_control": MARK}]
            sent["messages"][-1]["content"] = [{"type": "text", "text": text, "cache_control": MARK}]
        answer = self.raw.ask(json.dumps(sent).encode(), headers=API)
        assert answer.status == 200, answer.body
        told: dict[str, Any] = answer.json()
        said.append({"role": "assistant", "content": told["content"]})
        return told


def lines(log: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines() if b'"event":"request"' in line]


Change = Callable[[dict[str, Any]], Any]


def _edit(body: dict[str, Any]) -> None:
    body["messages"][2]["content"] = WORDS * 61


@pytest.mark.parametrize("marks", few([False, True]))
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: None, None),
        (lambda body: body.update(system=WORDS * 401), "system"),
        (lambda body: body["tools"].append(tool("more")), "tools"),
        (lambda body: body["tools"].reverse(), "tools"),
        (lambda body: body.update(model="claude-opus-5"), "model"),
        (lambda body: body.update(tool_choice={"type": "any"}), "other"),
        (_edit, "history"),
        (lambda body: body.update(metadata={"user_id": "ada"}), None),
    ],
    ids=["nothing", "system", "tool", "order", "model", "choice", "message", "other"],
)
def test_what_changed_is_in_the_log_the_numbers_and_the_store(
    change: Change, reason: str | None, marks: bool, model: ModelServer, tmp_path: Path
) -> None:
    log = io.BytesIO()
    with serving(model.url, tmp_path, {}, log) as hosted, connected(hosted.address) as raw:
        client = Client(raw, marks=marks)
        for _ in range(3):
            client.say()
        change(client.body)
        last = client.say()
        numbers = raw.ask(b"", "/metrics", method="GET").body.decode()
    assert [line.get("cache_miss") for line in lines(log)[:4]] == [None, None, None, reason]
    with Store.open(tmp_path / "served.db") as store:
        turns = list(store.turns.since())
    found = (turns[-1].usage or {}).get("cache_miss")
    if reason is None:
        assert found is None
        assert last["usage"]["cache_read_input_tokens"] > 4_000
        return
    assert found is not None
    assert found["reason"] == reason
    before = turns[-2].usage or {}
    expected = before["cache_read_tokens"] + before["cache_write_tokens"]
    assert found["tokens"] == expected - last["usage"]["cache_read_input_tokens"] > 1_000
    assert f'everlong_cache_missed_tokens_total{{reason="{reason}"}} {found["tokens"]}' in numbers


def test_blanks_around_a_marker_take_no_square_of_time(model: ModelServer, tmp_path: Path) -> None:
    gap = b" \n" * 300_000
    part = b'{"type":"text","text":"hi",%s"cache_control":{"type":"ephemeral"}%s}' % (gap, gap)
    sent = b'{"model":"claude-sonnet-5","max_tokens":9,"messages":[{"role":"user","content":[%s]}]}' % part
    with serving(model.url, tmp_path) as hosted, connected(hosted.address) as client:
        assert [client.ask(sent, headers=API).status for _ in range(2)] == [200, 200]
