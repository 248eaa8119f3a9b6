"""Session logs of Claude Code as they grow: each line is appended to the conversation if it follows its end.

`everlong.wire.claude_code` explains the format and reads whole logs as the trees that they are. Nearly all logs are a
single path, and nearly all growth of any log is: this reader follows a path without keeping the lines. A line that goes
back to an earlier one, or a sub-agent's line amid the main conversation, is the other's business (`NeedsWhole`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from everlong.model import Message, added_parts, seconds_of
from everlong.wire.anthropic import to_openai
from everlong.wire.blocks import INVALID
from everlong.wire.claude_code import LoggedConversation, read_log
from everlong.wire.logs.log import (
    LogFacts,
    LogReader,
    LogRun,
    LogUsage,
    NeedsWhole,
    count_of,
    dollars_of,
    parse_line,
    text_field,
)

__all__ = ["ClaudeCodeReader", "is_claude_code_line", "read_claude_code_log"]

CLIENT = "claude-code"
_MOST_ENDS = 64
"""The most lines at the end of a log that a later reader is told."""
_SAID = frozenset({"user", "assistant"})
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}

_REQUESTS = (b'{"type":"api-request', b'{"type": "api-request')
"""The beginnings of lines that note requests: long, many, and nothing but repetitions of other lines."""
_BESIDE = frozenset({*_TITLES, "cost-state"})


def is_claude_code_line(entry: Mapping[str, Any]) -> bool:
    """Return whether a line is one of a session log."""
    if "role" in entry or "messages" in entry or not isinstance(entry.get("type"), str):
        return False
    return "parentUuid" in entry or "sessionId" in entry or "leafUuid" in entry or "parent_tool_use_id" in entry


class ClaudeCodeReader(LogReader):
    """The reader of a session log that is one path."""

    client = CLIENT

    def __init__(self, carried: Mapping[str, Any] | None = None, offset: int = 0, *, is_whole: bool = False) -> None:
        super().__init__(carried, offset, is_whole=is_whole)
        told = carried or {}
        ends = told.get("ends")
        self._ends: set[str] = set(ends) if isinstance(ends, list) else set()
        """The lines that the next one may follow."""
        self._last_end: str | None = None
        self._reply_id: str | None = told.get("reply") if isinstance(told.get("reply"), str) else None
        """The id of the newest reply."""
        self._reply: list[Any] = []
        """The content of its lines."""
        self._reply_time: float | None = None
        self._usage: Mapping[str, Any] | None = None
        self._cost = 0.0
        self._calls: set[str] = set()
        """Its calls without a result."""
        self._own_calls: set[str] = set()
        self._answers: list[dict[str, Any]] = []
        self._others: list[dict[str, Any]] = []
        self._after: list[tuple[Any, float | None]] = []
        """What was said while calls had no result."""
        self._before: Message | None = None
        self._total_cost = dollars_of(told.get("cost"))
        self._title_rank = 0
        self._told: tuple[Any, ...] = ()

    def state(self) -> dict[str, Any]:
        """Return the lines at the end, and the newest reply."""
        ends = list(self._ends) if len(self._ends) <= _MOST_ENDS else [one for one in (self._last_end,) if one]
        return {"ends": ends, "reply": self._reply_id, "cost": self._total_cost}

    def feed(self, line: bytes, offset: int) -> None:
        """Read the next line."""
        entry = None if line.startswith(_REQUESTS) else parse_line(line)
        if not isinstance(entry, dict):
            return
        kind = text_field(entry, "type") or ""
        if kind in _BESIDE:
            self._read_beside(kind, entry)
            return
        uuid = entry.get("uuid")
        message = entry.get("message")
        if kind not in _SAID or not isinstance(message, dict):
            message = {}
        content = message.get("content")
        if entry.get("isApiErrorMessage") or not content or not isinstance(content, str | list):
            if isinstance(uuid, str) and self._follows(entry):
                self._note_end(uuid)
            return
        self._check_thread(entry)
        if not self._follows(entry):
            raise NeedsWhole
        if kind == "assistant":
            self._read_reply(entry, message, content, offset)
        elif entry.get("isCompactSummary") and (self._is_begun or self._reply):
            pass  # of turns that are here themselves
        else:
            self._read_user(entry, content, offset)
        if isinstance(uuid, str):
            self._note_end(uuid)

    def finish(self) -> None:
        """Tell the reply that is being read, and the results that it has so far; thoughts alone are no reply yet."""
        if any(not _is_thinking(content) for content in self._reply):
            self._count_reply()
            self._say_reply()

    # -- the path ------------------------------------------------------------------------------------------------------

    def _follows(self, entry: Mapping[str, Any]) -> bool:
        parent = entry.get("parentUuid")
        if isinstance(parent, str):
            return parent in self._ends
        if entry.get("subtype") == "compact_boundary" or entry.get("isCompactSummary"):
            logical = entry.get("logicalParentUuid")
            return not isinstance(logical, str) or logical in self._ends
        return "parentUuid" not in entry or not (self._is_begun or self._reply)

    def _note_end(self, uuid: str) -> None:
        self._ends.add(uuid)
        self._last_end = uuid

    def _check_thread(self, entry: Mapping[str, Any]) -> None:
        get = entry.get
        thread = (get("isSidechain"), get("agentId"), get("parent_tool_use_id"), get("sessionId"), get("session_id"))
        told = (*thread, get("cwd"), get("gitBranch"), get("version"))
        if self._is_begun and told == self._told:
            return
        is_side = bool(entry.get("isSidechain") or entry.get("parent_tool_use_id"))
        agent = text_field(entry, "agentId", "parent_tool_use_id") if is_side else None
        session = text_field(entry, "sessionId", "session_id")
        if not (self._is_begun or self._reply):
            if is_side and agent is None:
                raise NeedsWhole
            self.facts = LogFacts(
                CLIENT,
                session,
                agent=agent,
                works_for=session if is_side else None,
                title=self.facts.title,
                started=seconds_of(entry.get("timestamp")),
            )
        elif agent != self.facts.agent or (is_side and agent is None):
            raise NeedsWhole
        self._told = told
        self.learn(
            folder=text_field(entry, "cwd"),
            git_branch=text_field(entry, "gitBranch"),
            version=text_field(entry, "version"),
        )

    def _read_cost(self, entry: Mapping[str, Any]) -> None:
        """Add what the session has cost since it last said so; later versions say it with each turn."""
        total = dollars_of(entry.get("totalCostUSD"))
        if total < self._total_cost:  # another process has begun to count anew
            self._total_cost = 0.0
        if total > self._total_cost:
            self.count(LogUsage(cost=total - self._total_cost))
            self._total_cost = total

    def _read_beside(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Read a title, or what the session has cost."""
        if kind == "cost-state":
            self._read_cost(entry)
            return
        rank = 3 - list(_TITLES).index(kind)
        title = text_field(entry, _TITLES[kind])
        if title is not None and rank >= self._title_rank:
            self._title_rank = rank
            self.learn(title=title)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _read_reply(self, entry: Mapping[str, Any], message: Mapping[str, Any], content: Any, offset: int) -> None:
        ident = str(message.get("id") or entry.get("uuid") or offset)
        if ident != self._reply_id or not self._reply:
            if ident == self._reply_id and self._is_begun:
                raise NeedsWhole  # the rest of a reply whose beginning was taken
            is_open = bool(self._calls)
            self._end_reply()
            if not is_open:
                self.settle(offset)
            self._reply_id = ident
            self._reply_time = seconds_of(entry.get("timestamp"))
            self._ends.clear()
        self._reply.append(content)
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        self._cost = dollars_of(entry.get("costUSD")) or self._cost
        model = message.get("model")
        if isinstance(model, str) and model and not model.startswith("<") and model != self.facts.model:
            self.learn(model=model)
        if isinstance(content, list):
            for block in content:
                if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                    self._own_calls.add(block["id"])
                    self._calls.add(block["id"])

    def _read_user(self, entry: Mapping[str, Any], content: Any, offset: int) -> None:
        content = added_parts(content) if entry.get("isMeta") else content
        answered = _answered(content) if self._reply and isinstance(content, list) else []
        if answered and not self._own_calls.isdisjoint(answered):
            for block in content:
                is_result = isinstance(block, dict) and block.get("type") == "tool_result"
                (self._answers if is_result else self._others).append(block)
            self._calls.difference_update(answered)
            return
        time = seconds_of(entry.get("timestamp"))
        if self._calls:
            self._after.append((content, time))
            return
        self._end_reply()
        self.settle(offset)
        self._ends.clear()
        self._say({"role": "user", "content": content}, time)

    def _end_reply(self) -> None:
        if not self._reply:
            return
        self._count_reply()
        self._say_reply()
        self._reply, self._usage, self._cost = [], None, 0.0
        self._calls.clear()
        self._own_calls.clear()
        self._answers, self._others, self._after = [], [], []

    def _say_reply(self) -> None:
        content = self._reply[0] if len(self._reply) == 1 else _joined(self._reply)
        self._say({"role": "assistant", "content": content}, self._reply_time)
        blocks = [*self._answers, *self._others]
        if blocks:
            self._say({"role": "user", "content": blocks}, self._reply_time)
        for more, time in self._after:
            self._say({"role": "user", "content": more}, time)

    def _say(self, message: dict[str, Any], time: float | None) -> None:
        for made in _plain(message, self._before) or to_openai([message], before=self._before):
            self.say(made, time)
            self._before = made

    def _count_reply(self) -> None:
        if self._usage is not None:
            self.count(usage_of(self._usage, self._cost))


def usage_of(told: Mapping[str, Any], cost: float = 0.0) -> LogUsage:
    """Return the usage of one reply, in Anthropic's names."""
    details = told.get("output_tokens_details")
    thought = count_of(details.get("thinking_tokens")) if isinstance(details, dict) else 0
    given, said = count_of(told.get("input_tokens")), count_of(told.get("output_tokens"))
    read, written = count_of(told.get("cache_read_input_tokens")), count_of(told.get("cache_creation_input_tokens"))
    calls = 1 if given or said or read or written or thought or cost else 0
    return LogUsage(given, said, read, written, thought, calls, cost)


_THOUGHTS = ("thinking", "redacted_thinking")
_CALL = frozenset({"type", "id", "name", "input"})
_RESULT = frozenset({"type", "tool_use_id", "content", "is_error"})
_TEXT = frozenset({"type", "text"})


def _plain(message: dict[str, Any], before: Message | None) -> list[Message] | None:
    """Return what `to_openai` returns for the messages that nearly all are; None for others."""
    content = message["content"]
    if isinstance(content, str):
        return [message]
    if message["role"] == "assistant":
        return _plain_reply(content)
    if before is None or before["role"] != "assistant":
        return None
    made: list[Message] = []
    for block in content:
        if type(block) is not dict or block.get("type") != "tool_result" or not block.keys() <= _RESULT:
            return None
        if type(block.get("content")) is not str or type(block.get("tool_use_id")) is not str:
            return None
        result: Message = {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
        if "is_error" in block:
            result["is_error"] = block["is_error"]
        made.append(result)
    return made


def _plain_reply(content: list[Any]) -> list[Message] | None:
    parts: list[Any] = []
    calls: list[Any] = []
    for block in content:
        kind = block.get("type") if type(block) is dict else None
        if kind == "tool_use" and block.keys() == _CALL and type(block["input"]) is dict:
            if type(block["id"]) is not str or type(block["name"]) is not str or INVALID in block["input"]:
                return None
            function = {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}
            calls.append({"id": block["id"], "type": "function", "function": function})
        elif calls or kind not in ("text", "thinking") or (kind == "text" and block.keys() != _TEXT):
            return None
        else:
            parts.append(block)
    made: Message = {"role": "assistant", "content": parts if parts or not calls else None}
    if calls:
        made["tool_calls"] = calls
    return [made]


def _is_thinking(content: Any) -> bool:
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else [{}]
    return all(block.get("type") in _THOUGHTS for block in blocks)


def _answered(content: list[Any]) -> list[str]:
    return [
        block["tool_use_id"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
    ]


def _joined(contents: Iterable[Any]) -> list[Any]:
    """Return the blocks of a reply's lines; some versions write all blocks so far on each line."""
    blocks: dict[bytes, Any] = {}
    for content in contents:
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            try:
                key = orjson.dumps(block, option=orjson.OPT_SORT_KEYS)
            except (TypeError, ValueError):
                key = repr(block).encode("utf-8", "surrogatepass")
            blocks.setdefault(key, block)
    return list(blocks.values())


_MOST_ABANDONED = 100
"""Branches of one log that are kept beside the one on which it ended."""


# -- whole logs --------------------------------------------------------------------------------------------------------


def read_claude_code_log(lines: Iterable[bytes]) -> tuple[list[LogRun], dict[str, Any]]:
    """Return the conversations of a whole log, whatever its shape, the main one first.

    Returns:
        The conversations, and what a `ClaudeCodeReader` needs that goes on with the main one after the last line.

    Raises:
        TranscriptError: It has no messages.
    """
    entries = []
    for line in lines:
        try:
            entry = parse_line(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    log = read_log(entries, most_abandoned=_MOST_ABANDONED)
    runs = [_run_of(one, entries) for one in log.conversations]
    runs += [_abandoned_run(one, entries) for one in log.abandoned]
    last = next((entry["uuid"] for entry in reversed(entries) if isinstance(entry.get("uuid"), str)), None)
    replies = (entry.get("message") for entry in reversed(entries) if entry.get("type") == "assistant")
    reply = next((one.get("id") for one in replies if isinstance(one, dict)), None)
    facts = {name: value for name, value in runs[0].facts.to_dict().items() if name != "title"}
    return runs, {"facts": facts, "is_begun": True, "ends": [] if last is None else [last], "reply": reply}


def _run_of(one: LoggedConversation, entries: list[dict[str, Any]]) -> LogRun:
    own = [entry for entry in entries if _is_of(entry, one.agent)]
    facts: dict[str, Any] = {}
    for entry in own:
        for name, key in (("folder", "cwd"), ("git_branch", "gitBranch"), ("version", "version")):
            if (value := text_field(entry, key)) is not None:
                facts[name] = value
    title = None
    for kind, key in reversed(_TITLES.items()):
        titles = [text_field(entry, key) for entry in entries if entry.get("type") == kind]
        title = next((value for value in reversed(titles) if value), title)
    is_agent = one.agent is not None
    started = next((time for time in one.times if time is not None), None)
    run = LogRun(
        LogFacts(
            CLIENT,
            one.session,
            agent=one.agent,
            works_for=one.session if is_agent else None,
            title=None if is_agent else title,
            model=one.model,
            started=started,
            **facts,
        ),
        is_total=True,
    )
    for message, time in zip(one.messages, one.times, strict=True):
        made = to_openai([message], before=run.messages[-1] if run.messages else None)
        run.messages += made
        run.times += [time] * len(made)
    usages: dict[str, LogUsage] = {}
    for entry in own:
        told = entry.get("message")
        if entry.get("type") == "assistant" and isinstance(told, dict) and isinstance(told.get("usage"), dict):
            ident = str(told.get("id") or entry.get("uuid"))
            usages[ident] = usage_of(told["usage"], dollars_of(entry.get("costUSD")))
    run.usage = LogUsage().plus(*usages.values())
    costs = [dollars_of(entry.get("totalCostUSD")) for entry in entries if entry.get("type") == "cost-state"]
    if costs and not is_agent:
        run.usage = run.usage._replace(cost=sum(max(0.0, one) for one in _growth(costs)))
    return run


def _abandoned_run(one: LoggedConversation, entries: list[dict[str, Any]]) -> LogRun:
    """Return a branch that was left; what it used counts in the one that was gone on with."""
    run = _run_of(one, entries)
    run.facts = replace(run.facts, title=None)
    run.usage, run.is_abandoned = LogUsage(), True
    return run


def _growth(totals: list[float]) -> Iterable[float]:
    """Yield by how much a total has grown each time; it begins anew where it falls."""
    before = 0.0
    for total in totals:
        yield total if total < before else total - before
        before = total


def _is_of(entry: Mapping[str, Any], agent: str | None) -> bool:
    is_side = bool(entry.get("isSidechain") or entry.get("parent_tool_use_id"))
    if agent is None:
        return not is_side
    return is_side and text_field(entry, "agentId", "parent_tool_use_id", "uuid") == agent
