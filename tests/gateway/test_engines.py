"""Context engines of plugins in the gateway: one for each conversation, with its tools, from start to expiry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask, Call
from tests.examples import few
from tests.gateway.running import Running, run_gateway
from tests.plugins.making import write
from tests.waiting import until

WINDOW = 8_000
MODEL = "claude-sonnet-5"
WORDS = "what the client says takes up some room in the window of the model " * 24
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}

DIARY = '''
"""Writes down all that it hears, keeps the last four messages, and has a tool."""
import json
from pathlib import Path
from everlong import ContextEngine

LOG = Path(__file__).with_name("heard.jsonl")
NUMBER = [0]

class Diary(ContextEngine):
    name = "diary"

    def __init__(self, context_length=0):
        NUMBER[0] += 1
        self.number, self.context_length = NUMBER[0], context_length
        self.note("made")

    def note(self, what, **facts):
        with LOG.open("a") as file:
            file.write(json.dumps({"engine": self.number, "what": what, **facts}) + "\\n")

    def on_session_start(self, session_id, **kwargs):
        self.note("start", session=session_id, **{key: str(value) for key, value in kwargs.items()})

    def on_session_end(self, session_id, messages):
        self.note("end", session=session_id, messages=len(messages))

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]
        self.note("usage", prompt=usage["prompt_tokens"], total=usage["total_tokens"])

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or self.last_prompt_tokens) > 3_000

    def compress(self, messages, current_tokens=None, focus_topic=None, memory_context=None):
        self.compression_count += 1
        self.note("compress", messages=len(messages), memory=memory_context)
        head, tail = messages[:2], messages[-4:]
        while tail and tail[0]["role"] != "user":
            tail = tail[1:]
        return [*head, {"role": "assistant", "content": "THE DIARY HAS THE REST"}, *tail]

    def get_tool_schemas(self):
        return [{"name": "diary_read", "description": "Reads the diary.", "parameters":
                 {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]}}]

    def handle_tool_call(self, name, args, **kwargs):
        self.note("call", name=name, args=args, messages=len(kwargs["messages"]))
        return json.dumps({"page": args["page"], "says": "the key is under the third buoy"})
'''


def heard(folder: Path) -> list[dict[str, Any]]:
    log = folder / "heard.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


class Talk:
    """A conversation of one client."""

    def __init__(self, running: Running, api: str, opening: str, **fields: Any) -> None:
        self.running, self.api, self.fields = running, api, fields
        self.history: list[dict[str, Any]] = []
        self.opening = opening

    def say(self, words: str = WORDS) -> str:
        said = f"{self.opening}, {len(self.history)}: {words}"
        self.history.append({"role": "user", "content": said})
        listed = "input" if self.api == "responses" else "messages"
        body: dict[str, Any] = {"model": MODEL, listed: self.history, **self.fields}
        body |= {"max_tokens": 200} if self.api != "responses" else {"store": False}
        keys = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("anthropic-version", "2023-06-01")]
        with self.running.raw() as raw:
            answer = raw.ask(json.dumps(body).encode(), PATHS[self.api], keys)
        assert answer.status == 200, answer.body
        assert answer.header("x-everlong-warning") is None, answer.header("x-everlong-warning")
        data = answer.json()
        if self.api == "anthropic":
            text = "".join(block["text"] for block in data["content"])
        elif self.api == "openai":
            text = data["choices"][0]["message"]["content"]
        else:
            text = "".join(part["text"] for item in data["output"] for part in item["content"])
        self.history.append({"role": "assistant", "content": text})
        return text


@contextmanager
def diary(
    tmp_path: Path,
    script: Callable[[Ask], Answer] = lambda _: Answer("Go on."),
    code: str = DIARY,
    **settings: Any,
) -> Iterator[tuple[Running, ModelServer, Path]]:
    """A gateway whose engine is a diary."""
    folder = write(tmp_path / "engines" / "diary", code)
    given = {
        "context": {"engine": "diary"},
        "plugins": {"paths": [str(folder.parent)]},
        "models": {MODEL: {"context_length": WINDOW}},
        **settings,
    }
    with (
        ModelServer(script, window=WINDOW) as model,
        run_gateway(model.url, str(tmp_path / "store.db"), given) as running,
    ):
        yield running, model, folder


@pytest.mark.spec("1.4", "2.1")
@pytest.mark.parametrize("api", ["openai", "anthropic", "responses"])
def test_each_conversation_has_an_engine_of_its_own_which_compacts_it(api: str, tmp_path: Path) -> None:
    with diary(tmp_path) as (running, model, folder):
        one, other = Talk(running, api, "About boats"), Talk(running, api, "About gulls")
        for _ in range(12):
            one.say()
        other.say("short")
        until(lambda: sum(note["what"] == "usage" for note in heard(folder)) == 13)
        store = running.store()
        until(lambda: not running.gateway._compactor._ahead)  # none is going on in the background
        # A start for each conversation and for each roll-over.
        until(lambda: sum(note["what"] == "start" for note in heard(folder)) == 2 + len(store.compactions()))
        notes = heard(folder)
        assert {note["engine"] for note in notes} == {1, 2}, notes[:8]
        first = [note for note in notes if note["engine"] == 1]
        assert [note["what"] for note in first[:3]] == ["made", "start", "usage"]
        done = store.compactions()
        assert done, notes
        assert {one.engine for one in done} == {"diary"}
        assert any("THE DIARY HAS THE REST" in json.dumps(record.body) for record in model.requests)
        starts = [note for note in first if note["what"] == "start"]
        assert len(starts) == 1 + len(done)  # a roll-over is told, and is no end
        for before, after in pairwise(starts):
            assert after["parent_session_id"] == after["old_session_id"] == before["session"]
            assert after["reason"] == after["boundary_reason"] == "compression"
        assert {start["conversation_id"] for start in starts} == {starts[0]["session"]}
        assert (starts[0]["platform"], starts[0]["model"]) == ("gateway", MODEL)
        assert starts[0]["context_length"] == str(WINDOW)
        assert not any(note["what"] == "end" for note in notes)
        assert model.rejections == []
        lineage = store.conversations.parts(starts[0]["session"])
        assert [part.id for part in lineage] == [start["session"] for start in starts]
    ends = [note for note in heard(folder) if note["what"] == "end"]  # once, when the gateway stops
    assert sorted(note["engine"] for note in ends) == [1, 2]
    assert {note["session"] for note in ends} == {
        [note for note in heard(folder) if note["engine"] == number and note["what"] == "start"][-1]["session"]
        for number in (1, 2)
    }


@pytest.mark.spec("1.4")
def test_an_engine_hears_of_the_end_when_its_conversation_has_expired(tmp_path: Path) -> None:
    with diary(tmp_path) as (running, _, folder):
        now = 0.0
        running.gateway.engines._clock = lambda: now
        talk, other = Talk(running, "openai", "About boats"), Talk(running, "openai", "About gulls")
        talk.say()
        now = 3_600.0 * 16
        other.say()
        now = 3_600.0 * 23
        assert running.gateway.engines.expire() == 0
        now = 3_600.0 * 24
        assert running.gateway.engines.expire() == 1
        (end,) = [note for note in heard(folder) if note["what"] == "end"]
        assert (end["engine"], end["messages"]) == (1, 1)
        talk.say()  # it goes on after all, with an engine that begins anew
        starts = [note for note in heard(folder) if note["what"] == "start"]
        assert [note["engine"] for note in starts] == [1, 2, 3]
        assert starts[2]["session"] == starts[0]["session"] == end["session"]
        assert "parent_session_id" not in starts[2]


def reads_diary(ask: Ask) -> Answer:
    if ask.turns[-1].results:
        return Answer(f"It says: {ask.results[-1][1]}")
    if "where" in ask.last_user:
        return Answer("", [Call("diary_read", {"page": "7"})])
    return Answer("Go on.")


OWN_TOOL: dict[str, Any] = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.spec("1.5")
@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_tools_of_the_engine_are_offered_and_answered_and_the_client_hears_nothing(
    tmp_path: Path, is_streamed: bool, has_tools: bool
) -> None:
    with diary(tmp_path, reads_diary) as (running, model, folder):
        client = running.openai()
        asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "where is the key?"}]}
        if has_tools:
            asked["tools"] = [{"type": "function", "function": OWN_TOOL}]
        if is_streamed:
            deltas = [
                choice.delta
                for chunk in client.chat.completions.create(**asked, stream=True)
                for choice in chunk.choices
            ]
            assert not any(delta.tool_calls for delta in deltas)
            text = "".join(delta.content or "" for delta in deltas)
        else:
            message = client.chat.completions.create(**asked).choices[0].message
            assert message.tool_calls is None
            text = message.content or ""
        assert "the key is under the third buoy" in text
        (call,) = [note for note in heard(folder) if note["what"] == "call"]
        assert (call["name"], call["args"], call["messages"]) == ("diary_read", {"page": "7"}, 1)
        offered = [tool["function"]["name"] for tool in model.requests[0].body["tools"]]
        assert offered == [*(["look"] if has_tools else []), "diary_read"]
        assert model.rejections == []
        store = running.store()
        (turn,) = store.turns.since()
        assert "diary_read" not in str(store.turns.reply(turn.id))
        (usage,) = until(lambda: [note for note in heard(folder) if note["what"] == "usage"])
        told = model.requests[0].usage.get("prompt_tokens", 0)
        if is_streamed:  # without stream_options the API tells nothing
            assert 0.3 < usage["prompt"] / told < 3 if told else usage["prompt"] > 10
        else:
            assert usage["prompt"] == told  # without what was looked up


BROKEN = {
    "raises": "raise RuntimeError('no diary today')",
    "hangs": "import time; time.sleep(60)",
    "nonsense": "return 'a text'",
    "orphan": "return [*messages, {'role': 'tool', 'tool_call_id': 'x', 'content': 'y'}]",
}


@pytest.mark.parametrize("fault", few([*BROKEN], 2))
def test_an_engine_that_fails_is_stood_in_for_as_in_the_agent(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = DIARY.replace("self.compression_count += 1", BROKEN[fault])
    if fault == "hangs":
        monkeypatch.setattr("everlong.plugins.running.CALL_SECONDS", 1.0)
    with diary(tmp_path, code=code, context={"engine": "diary"}) as (running, model, _):
        talk = Talk(running, "openai", "About boats")
        for _ in range(24):
            talk.say()
        assert until(lambda: running.store().compactions())
        assert model.rejections == []


BUOY = """
import json
from pathlib import Path
from everlong.memory import MemoryProvider

LOG = Path(__file__).with_name("heard.jsonl")

def note(**facts):
    with LOG.open("a") as file:
        file.write(json.dumps(facts) + "\\n")

class Buoy(MemoryProvider):
    name = "buoy"

    def initialize(self, session_id, **kwargs):
        note(what="initialize", **kwargs)

    def on_pre_compress(self, messages):
        note(what="on_pre_compress", messages=len(messages))
        return "the key is under the third buoy"
"""


@pytest.mark.spec("7.3")
def test_memory_hears_of_a_compaction_and_the_summary_keeps_what_it_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    about = site / "third_buoy-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "third_buoy.py").write_text(BUOY)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: third_buoy\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[everlong.memory]\nbuoy = third_buoy:Buoy\n")
    monkeypatch.syspath_prepend(site)
    settings: dict[str, Any] = {"context": {"engine": "compressor"}, "memory": {"provider": "buoy"}}
    with diary(tmp_path, **settings) as (running, model, _):
        talk = Talk(running, "openai", "About boats")
        for _ in range(24):
            talk.say()
        until(lambda: running.store().compactions())
        begun, asked, *_ = heard(site)
        assert (begun["what"], begun["platform"], begun["tenant"]) == ("initialize", "gateway", "local")
        assert asked["what"] == "on_pre_compress"
        assert asked["messages"] > 4
        assert any("the key is under the third buoy" in json.dumps(record.body) for record in model.requests)
