"""Small logs of each client, in the shape of real ones; the words, names and figures are made up."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everlong.cli.archive.log_import import LogFolder, LogImport, changed_logs
from everlong.cli.sessions_transfer import import_files
from everlong.store import Store

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg=="


class OwnLogs(LogImport):
    """The import of logs that lie where their client keeps them, wherever that is in a test."""

    def __init__(self, store: Store, **more: Any) -> None:
        super().__init__(store, is_own=lambda _: True, **more)


def lines(values: Sequence[Any]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


class ClaudeLog:
    """A log of Claude Code that grows line by line."""

    def __init__(self, session: str = "5a991f5d", agent: str | None = None) -> None:
        self.session, self.agent = session, agent
        self.entries: list[dict[str, Any]] = []
        self.parent: str | None = None
        self.replies = 0

    def link(self, kind: str, **more: Any) -> str:
        ident = f"{self.session}-{self.agent or ''}-{len(self.entries)}"
        moment = f"2026-09-01T10:{len(self.entries) // 60:02}:{len(self.entries) % 60:02}.000Z"
        side = {"isSidechain": self.agent is not None, **({"agentId": self.agent} if self.agent else {})}
        about = {"cwd": "/srv/harbour", "sessionId": self.session, "version": "2.1.325", "gitBranch": "tide"}
        self.entries.append(
            {"parentUuid": self.parent, **side, "type": kind, **more, "uuid": ident, "timestamp": moment, **about}
        )
        self.parent = ident
        return ident

    def ask(self, words: str) -> ClaudeLog:
        self.link("user", message={"role": "user", "content": words})
        self.link("attachment", attachment={"type": "date", "date": "2026-09-01"})
        return self

    def reply(self, *blocks: dict[str, Any]) -> ClaudeLog:
        self.replies += 1
        usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100}
        usage |= {"cache_creation_input_tokens": 20}
        for block in blocks:
            ident = f"msg_{self.session}_{self.agent or ''}_{self.replies}"
            message = {"id": ident, "role": "assistant", "model": "claude-sonnet-4-5", "content": [block]}
            self.link("assistant", message={**message, "usage": usage})
        return self

    def say(self, words: str) -> ClaudeLog:
        return self.reply({"type": "thinking", "thinking": "…", "signature": "s"}, {"type": "text", "text": words})

    def work(self, words: str, **results: str) -> ClaudeLog:
        """Call a tool for each result, in one reply."""
        calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}} for name in results]
        self.reply({"type": "text", "text": words}, *calls)
        for name, text in results.items():
            block = {"type": "tool_result", "tool_use_id": name, "content": text}
            self.link("user", message={"role": "user", "content": [block]}, toolUseResult={"stdout": text})
        return self

    def note(self, **entry: Any) -> ClaudeLog:
        self.entries.append({**entry, "sessionId": self.session})
        return self

    def text(self) -> str:
        return lines(self.entries)


def claude_log() -> ClaudeLog:
    """A session of two prompts, with parallel calls, a title and a cost."""
    log = ClaudeLog().note(type="queue-operation", operation="enqueue", content="Which berth is free?")
    log.ask("Which berth is free?").work("I look.", toolu_1="south.txt", toolu_2="12:00")
    log.say("The south berth is free.").note(type="cost-state", totalCostUSD=0.01)
    log.ask("Who works the crane?").say("Ada does.").note(type="cost-state", totalCostUSD=0.025)
    return log.note(type="ai-title", aiTitle="Berths and cranes")


def codex_rollout() -> str:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-09-02T10:00:00.000Z", "type": "response_item", "payload": payload}

    def said(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return item(type="message", role=role, content=[{"type": kind, "text": words}])

    def count(given: int, cached: int, out: int) -> dict[str, Any]:
        total = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": out}
        payload = {"type": "token_count", "info": {"total_token_usage": {**total, "reasoning_output_tokens": 2}}}
        return {"timestamp": "2026-09-02T10:00:01.000Z", "type": "event_msg", "payload": payload}

    meta: dict[str, Any] = {
        "id": "01a1-codex",
        "timestamp": "2026-09-02T10:00:00.000Z",
        "cwd": "/srv/harbour",
        "cli_version": "0.166.0",
    }
    meta |= {"git": {"branch": "tide"}, "base_instructions": {"text": "You are a coding agent."}}
    call = {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "ls"}', "call_id": "call_1"}
    return lines(
        [
            {"timestamp": "2026-09-02T10:00:00.000Z", "type": "session_meta", "payload": meta},
            {"timestamp": "2026-09-02T10:00:00.000Z", "type": "turn_context", "payload": {"model": "gpt-5"}},
            said("user", "<environment_context>\n  <cwd>/srv/harbour</cwd>\n</environment_context>"),
            said("user", "What is on the quay?"),
            item(type="reasoning", summary=[{"type": "summary_text", "text": "look"}], encrypted_content="x"),
            item(**call),
            item(type="function_call_output", call_id="call_1", output="crates\n"),
            count(100, 40, 10),
            count(100, 40, 10),
            said("assistant", "Crates."),
            count(250, 140, 15),
            said("user", "Take that back."),
            said("assistant", "Gone."),
            {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
            said("user", "And in the shed?"),
            said("assistant", "Ropes."),
            count(400, 240, 20),
        ]
    )


def codex_sub_agent(*, has_numbers: bool) -> str:
    """A sub-agent that begins with a copy of the thread that it works for, with that thread's figures.

    Newer rollouts number their lines and name the first of their own; in older ones the copies have older times.
    """
    spawn = {"parent_thread_id": "01a1-codex", "depth": 1, "agent_path": "/root/counter", "agent_nickname": "Heron"}
    meta: dict[str, Any] = {
        "id": "02b2-codex",
        "timestamp": "2026-09-02T11:00:00.000Z",
        "cwd": "/srv/harbour",
        "source": {"subagent": {"thread_spawn": spawn}},
        "parent_thread_id": "01a1-codex",
        "forked_from_id": "01a1-codex",
    }
    if has_numbers:
        meta |= {"history_mode": "paginated", "subagent_history_start_ordinal": 5}

    def said(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}

    def count(given: int, cached: int, out: int) -> dict[str, Any]:
        total = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": out}
        return {"type": "token_count", "info": {"total_token_usage": {**total, "reasoning_output_tokens": 0}}}

    own_usage = {"thread_id": "02b2-codex", "usage": {"input_tokens": 300, "output_tokens": 10}}
    told: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", meta),
        ("session_meta", {"id": "01a1-codex", "timestamp": "2026-09-02T10:00:00.000Z", "source": "cli"}),
        ("response_item", said("user", "# AGENTS.md instructions for /srv/harbour\n\nBe brief.")),
        ("response_item", said("user", "What is on the quay?")),
        ("event_msg", count(5_000_000, 4_900_000, 10_000)),
        ("response_item", said("user", "Count the cranes.")),
        ("token_usage_record", own_usage),
        ("event_msg", count(300, 200, 10)),
        ("response_item", said("assistant", "Three cranes.")),
        ("event_msg", count(700, 500, 25)),
    ]
    hours = ["11", *["11" if has_numbers else "10"] * 4, *["11"] * 5]
    return lines(
        [
            {
                "timestamp": f"2026-09-02T{hours[number]}:00:{number:02}.000Z",
                **({"ordinal": number} if has_numbers else {}),
                "type": kind,
                "payload": payload,
            }
            for number, (kind, payload) in enumerate(told)
        ]
    )


def pi_session() -> str:
    def usage(total: float) -> dict[str, Any]:
        return {"input": 10, "output": 4, "cacheRead": 30, "cacheWrite": 5, "cost": {"total": total}}

    def entry(ident: str, parent: str | None, **message: Any) -> dict[str, Any]:
        moment = "2026-09-03T10:00:00.000Z"
        return {"type": "message", "id": ident, "parentId": parent, "timestamp": moment, "message": message}

    call = {"type": "toolCall", "id": "tc1", "name": "read", "arguments": {"path": "tide.txt"}}
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    return lines(
        [
            {
                "type": "session",
                "version": 3,
                "id": "01a1-pi",
                "timestamp": "2026-09-03T10:00:00Z",
                "cwd": "/srv/harbour",
            },
            entry("a", None, role="user", content=[{"type": "text", "text": "When is high tide?"}, image]),
            entry("b", "a", role="assistant", content=[call], model="claude-sonnet-4-5", usage=usage(0.5)),
            entry("c", "b", role="toolResult", toolCallId="tc1", content=[{"type": "text", "text": "at six"}]),
            entry("d", "c", role="assistant", content=[{"type": "text", "text": "At five."}], usage=usage(0.25)),
            entry("e", "c", role="assistant", content=[{"type": "text", "text": "At six."}], usage=usage(0.25)),
            {"type": "session_info", "id": "f", "parentId": "e", "name": "Tides"},
        ]
    )


def cline_session() -> dict[str, Any]:
    inner = [{"query": "ls", "result": "nets", "success": True}]
    metrics = {"inputTokens": 90, "outputTokens": 6, "cacheReadTokens": 50, "cacheWriteTokens": 0, "cost": 0.002}
    model = {"modelInfo": {"id": "gpt-5"}, "metrics": metrics}
    use = {"type": "tool_use", "id": "cl1", "name": "run_commands", "input": {"commands": ["ls"]}}
    asked = '<user_input mode="act">What is in the shed?</user_input>'
    return {
        "version": 1,
        "agent": "lead",
        "sessionId": "1788_shed",
        "system_prompt": "You are Cline.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": asked}], "ts": 1_788_600_000_000},
            {"role": "assistant", "content": [use], "ts": 1_788_600_001_000, **model},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "cl1", "name": "run_commands", "content": inner}],
                "ts": 1_788_600_002_000,
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Nets."}], "ts": 1_788_600_003_000, **model},
        ],
    }


AIDER = """
# aider chat started at 2026-09-05 10:00:00

> Aider v0.86.2
> Main model: openai/gpt-4o with diff edit format

#### Write the list of ships.\x20\x20
#### Sort it.\x20\x20

Here it is.

```
ships.txt
```

#### What is next

> Tokens: 1.9k sent, 32 received. Cost: $0.0051 message, $0.0051 session.
> Applied edit to ships.txt

#### /tokens\x20\x20
#### Thanks!\x20\x20

You are welcome.

> Tokens: 2.0k sent, 10 received. Cost: $0.0052 message, $0.01 session.

# aider chat started at 2026-09-06 10:00:00

#### Is it sorted?\x20\x20

It is.
"""


def write_opencode(path: Path) -> None:
    """Write a database with a session and the session of a sub-agent."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT, version TEXT,"
            " revert TEXT, time_created INTEGER, time_updated INTEGER)"
        )
        columns = "id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT"
        raw.execute(f"CREATE TABLE message ({columns})")
        raw.execute(f"CREATE TABLE part (message_id TEXT, {columns})")
        raw.execute("INSERT INTO session VALUES ('s1', NULL, '/srv/harbour', 'Ropes', '1.18', NULL, 1788700000000, 9)")
        raw.execute("INSERT INTO session VALUES ('s2', 's1', '/srv/harbour', 'Look', '1.18', NULL, 1788700001000, 9)")
        add_opencode(raw, "s1", "m1", "user", [{"type": "text", "text": "Which rope holds?"}])
        state = {"status": "completed", "input": {"command": "ls"}, "output": "hemp"}
        tool = {"type": "tool", "tool": "bash", "callID": "o1", "state": state}
        said: list[dict[str, Any]] = [
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm"},
            tool,
            {"type": "step-start"},
        ]
        add_opencode(raw, "s1", "m2", "assistant", [*said, {"type": "text", "text": "Hemp does."}])
        add_opencode(raw, "s2", "m3", "user", [{"type": "text", "text": "Count the ropes."}])
        add_opencode(raw, "s2", "m4", "assistant", [{"type": "text", "text": "Nine."}])


def add_opencode(
    raw: sqlite3.Connection, session: str, ident: str, role: str, parts: Sequence[dict[str, Any]], at: int = 10
) -> None:
    told: dict[str, Any] = {"role": role, "time": {"created": 1_788_700_000_000 + at, "completed": 1_788_700_000_000}}
    if role == "assistant":
        tokens = {"input": 5, "output": 3, "reasoning": 1, "cache": {"read": 40, "write": 2}}
        told |= {"modelID": "claude-sonnet-4-5", "cost": 0.004, "tokens": tokens}
    raw.execute("INSERT INTO message VALUES (?,?,?,?,?)", (ident, session, at, at, json.dumps(told)))
    for number, part in enumerate(parts):
        row = (ident, f"{ident}-{number}", session, at, at, json.dumps(part))
        raw.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", row)


@dataclass
class ScanResult:
    """The outcome of one look into folders."""

    files: int
    changed: int
    outcomes: Counter[str]
    skipped: dict[str, str]


def scan(store: Store, folders: Sequence[LogFolder]) -> ScanResult:
    """Import logs whose clients have ended a minute ago."""
    own = {path for folder in folders if folder.is_own for path in folder.files()}
    logs = LogImport(store, is_own=own.__contains__, clock=lambda: time.time() + 60)
    skipped: list[dict[str, str]] = []
    found = {str(path): False for path in changed_logs(store, folders, skipped)}
    results = [result for _, result in import_files(logs, found, skipped, is_growing=True)]
    problems = {one["file"]: one["problem"] for one in skipped}
    return ScanResult(len(found), sum(map(bool, results)), sum(results, Counter[str]()), problems)
