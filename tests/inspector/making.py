"""Stores to look at: a conversation with requests, compactions, a sub-agent, and words that could do harm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from everlong.context.literals import SUMMARY_PREFIX
from everlong.model import Message
from everlong.store import Branch, Occasion, Store
from tests.context.builders import assistant, user
from tests.store.engines import ScriptedEngine

MODEL = "anthropic:claude-sonnet-4-5"
PORT_LINE = "The harbour service listens on port 48213, never on another one."
SUMMARY = """## Goal
- Plan the ferries of the harbour

## Progress
### Done
- The class TidesReader parses data/tides.csv

## Critical Context
- config.toml
  timeout = 4711 seconds
"""
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "read_file", "description": "Reads a file.", "parameters": {}}}
]
START = 1_760_000_000.0

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<body onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:msgbox(1))",
    "![x](http://tracker.example/pixel.png)",
    "![x](javascript:alert(1))",
    "<http://a.example/?<script>alert(1)</script>>",
    "`<script>alert(1)</script>`",
    "```html\n<script>alert(1)</script>\n```",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "{{ 7 * 7 }}{% raw %}",
    "${alert(1)}",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</pre></details><script>alert(1)</script>",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<form action=//evil.example><button>x</button></form>",
    "\u202e<b>txt</b>\x1b[31mred\x00",
)


@dataclass
class Ferry:
    """A conversation that was compacted twice."""

    store: Store
    ident: str
    at: Branch
    parts: list[str]

    @property
    def link(self) -> str:
        return f"/inspector/c/{self.ident}"


def call(number: int, name: str, arguments: str) -> Message:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def result(number: int, text: str) -> Message:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


FIRST = [
    user("Plan the ferries of the harbour."),
    assistant("Noted."),
    user(f"{PORT_LINE} Read the configuration."),
    call(1, "read_file", '{"path": "config.toml"}'),
    result(1, "[server]\ntimeout = 4711 seconds\nworkers = 4"),
    call(2, "edit_file", '{"path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}'),
    result(2, "done"),
    assistant("I wrote the class `TidesReader` for data/tides.csv."),
    user("Good. What is next?"),
    assistant("The **timetable**."),
]


def _summarize(first: int, last: int, text: str) -> ScriptedEngine:
    made: Message = {"role": "user", "content": f"{SUMMARY_PREFIX}\n\n{text}"}
    return ScriptedEngine(lambda messages: [*messages[:first], made, *messages[last:]])


def make_ferry(store: Store, title: str = "Harbour ferries", model: str = MODEL) -> Ferry:
    """A conversation about ferries: ten messages, a compaction, four more, another compaction, and two more."""
    session = store.sessions.start(
        title=title, folder="/home/ada/ferry", model=model, client="claude-code", system_prompt="You plan ferries."
    )
    at: Branch | None = None
    part, clock, parts = session.id, START, [session.id]

    def say(message: Message) -> None:
        nonlocal at, clock
        clock += 20
        if at is None:
            lead: Message = {
                "role": "system",
                "content": "You plan ferries.\n\n# Notes from earlier sessions\n\n- short",
            }
            at = store.record([lead, message], tools=TOOLS, times=[clock, clock], conversation=session.id)
            store.sessions.attach(session.id, at)
        elif message["role"] == "assistant":
            turn = store.turns.begin(at, model=model, session=part, began=clock)
            after = store.append(at, [message], times=[clock])
            usage = {"input_tokens": 100, "cache_read_tokens": 10 * after.depth, "output_tokens": 7}
            store.turns.finish(turn.id, message, usage=usage, cost=0.01, echo_node=after.head)
            at = after
        else:
            at = store.append(at, [message], times=[clock])

    def compact(first: int, last: int) -> None:
        nonlocal part
        assert at is not None
        done = store.compact(
            at, _summarize(first, last, SUMMARY), Occasion("threshold", part, model), roll_over=part, current_tokens=900
        )
        assert done.child is not None
        part = done.child
        parts.append(part)

    for message in FIRST:
        say(message)
    compact(2, 10)
    for message in (user("Write it."), assistant("Written."), user("Test it."), assistant("Tested.")):
        say(message)
    compact(2, 6)
    say(user("Ship it."))
    say(assistant("Shipped."))
    assert at is not None
    store.searcher.index_pending(10_000)
    return Ferry(store, session.id, at, parts)


def make_long(store: Store, messages: int) -> str:
    """A conversation of so many messages that was never compacted."""
    session = store.sessions.start(title="A long one", model=MODEL)
    said = [user(f"question {n}") if n % 2 == 0 else assistant(f"answer {n}") for n in range(messages)]
    at = store.record(said, conversation=session.id)
    store.sessions.attach(session.id, at)
    return session.id


def make_hostile(store: Store, payload: str) -> Ferry:
    """A conversation in which every text that can be one is a payload."""
    session = store.sessions.start(
        title=f"t {payload}", folder=f"/f/{payload}", model=f"m {payload}", client=f"c {payload}", system_prompt=payload
    )
    said: list[Message] = [
        {"role": "system", "content": payload},
        user(f"harmless words {payload}"),
        {"role": "assistant", "content": payload, "reasoning_content": payload},
        call(1, payload, json.dumps({"path": payload, "old_string": "a", "new_string": payload})),
        {"role": "tool", "tool_call_id": "c1", "name": payload, "content": payload},
        call(2, "sh", payload),
        {"role": "tool", "tool_call_id": "c2", "content": f"@@ -1,1 +1,1 @@\n-{payload}\n+{payload}"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": payload}}]},
        {"role": "user", "content": [{"type": payload, "text": payload, "x": payload}]},
        assistant(payload),
    ]
    tools = [{"type": "function", "function": {"name": payload, "description": payload}}]
    at = store.record(said, tools=tools, conversation=session.id)
    store.sessions.attach(session.id, at)
    for _ in range(2):  # one request is no chart
        turn = store.turns.begin(at, model=f"m {payload}", session=session.id)
        miss = {"reason": payload, "tokens": 7}
        store.turns.finish(turn.id, usage={"input_tokens": 3, "cache_miss": miss}, status="failed", error=payload)
    text = f"## {payload}\n- {payload}\n\n## Critical Context\n- {payload}\n  {payload}"
    engine = _summarize(0, 4, text)
    done = store.compact(at, engine, Occasion(payload, session.id, f"m {payload}"), roll_over=session.id)
    assert done.child is not None
    store.searcher.index_pending(10_000)
    return Ferry(store, session.id, at, [session.id, done.child])
