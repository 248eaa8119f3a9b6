"""Task files of Cline: messages in the Anthropic format, with facts in a file beside them.

The command line keeps ``<id>.messages.json`` and ``<id>.json`` in a folder for each session, and a file of messages for
each sub-agent; the extension of VS Code keeps ``api_conversation_history.json`` and ``ui_messages.json`` in a folder
for each task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from everlong.model import seconds_of
from everlong.wire.anthropic import to_openai
from everlong.wire.logs import (
    LogFacts,
    LogRun,
    LogUsage,
    dicts_in,
    dollars_of,
    json_in,
    text_at,
    usage_at,
    value_at,
)

__all__ = ["is_cline_session", "is_cline_task", "read_cline_session", "read_cline_task"]

_INPUT = re.compile(r"<user_input mode=\"\w+\">(.*)</user_input>", re.DOTALL)
"""What the command line puts around a person's words in its file; it is not sent."""
_COUNTED = frozenset({"api_req_started", "deleted_api_reqs", "subagent_usage"})
_REQUEST_USAGE = {
    "input_tokens": "tokensIn",
    "output_tokens": "tokensOut",
    "cache_read_tokens": "cacheReads",
    "cache_write_tokens": "cacheWrites",
    "cost": "cost",
}
_USAGE = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
    "cost": "cost",
}


def is_cline_session(value: object) -> bool:
    """Return whether a JSON value is a file of messages of Cline's command line."""
    return isinstance(value, dict) and isinstance(value.get("messages"), list) and "sessionId" in value


def is_cline_task(value: object) -> bool:
    """Return whether a JSON value is the conversation of a task of the extension: messages with a time ``ts``."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return False
    return "role" in value[0] and any("ts" in one for one in value)


def read_cline_session(value: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> LogRun:
    """Return the conversation of a session of the command line.

    Args:
        value: The file of messages.
        beside: The file of the session's facts, if it is there.
    """
    about = beside or {}
    agent = text_at(value, "agent")
    is_agent = agent is not None and agent != "lead"
    parent = text_at(value, "origin.parentThreadId", "origin.parentSessionId") or text_at(about, "session_id")
    facts = LogFacts(
        "cline",
        text_at(value, "sessionId"),
        agent=agent if is_agent else None,
        works_for=parent if is_agent else None,
        title=None if is_agent else text_at(about, "metadata.title"),
        folder=text_at(about, "cwd", "workspace_root"),
        version=text_at(value, "origin.version"),
        started=None if is_agent else seconds_of(about.get("started_at")),
    )
    run = _read(facts, dicts_in(value.get("messages")), text_at(value, "system_prompt"))
    cost = 0.0 if is_agent else dollars_of(value_at(about, "metadata.totalCost"))
    run.usage = run.usage._replace(cost=cost or run.usage.cost)
    return run


def read_cline_task(
    ident: str | None, messages: Sequence[Any], shown: Sequence[Any] = (), facts: Mapping[str, Any] | None = None
) -> LogRun:
    """Return the conversation of a task of the extension.

    Args:
        ident: The name of the task's folder.
        messages: The conversation.
        shown: What the extension showed to the person, which has the tokens and the cost of each request.
        facts: The entry of the task in the extension's list, if it is there.
    """
    folder, title = text_at(facts, "cwdOnTaskInitialization"), text_at(facts, "task")
    run = _read(LogFacts("cline", ident, title=title, folder=folder), dicts_in(list(messages)), None)
    counted = [one for one in shown if text_at(one, "say") in _COUNTED]
    usage = LogUsage().plus(*(usage_at(json_in(one.get("text")), **_REQUEST_USAGE) for one in counted))
    run.usage = usage if usage.is_stated else run.usage
    return run


def _read(facts: LogFacts, told: Sequence[Mapping[str, Any]], prompt: str | None) -> LogRun:
    run = LogRun(facts)
    if prompt is not None:
        run.say(facts.started, {"role": "system", "content": prompt})
    for one in told:
        content = one.get("content")
        if text_at(one, "role") not in {"user", "assistant"}:
            continue
        run.learn(model=text_at(one, "modelInfo.id", "modelInfo.modelId"))
        run.usage = run.usage.plus(usage_at(one.get("metrics"), **_USAGE).without_cached_input())
        if isinstance(content, str | list) and content:
            run.say(seconds_of(one.get("ts")), *to_openai([{"role": one["role"], "content": _blocks(content)}]))
    return run


def _blocks(content: Any) -> Any:
    """Return blocks as Cline sends them: its file has the objects that its tools returned, and tags around words."""
    return [_block(block) for block in content] if isinstance(content, list) else content


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        wrapped = _INPUT.fullmatch(block["text"])
        return block if wrapped is None else {**block, "text": wrapped[1]}
    inner = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(inner, list):
        return block
    block = {name: value for name, value in block.items() if name != "name"}
    if all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in inner):
        return block
    return {**block, "content": json.dumps(inner, ensure_ascii=False, separators=(",", ":"))}
