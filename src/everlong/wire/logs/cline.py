"""Task files of Cline: messages in the Anthropic format, with facts in a file beside them.

The command line keeps ``<id>.messages.json`` and ``<id>.json`` in a folder for each session, and a file of messages for
each sub-agent; the extension of VS Code keeps ``api_conversation_history.json`` and ``ui_messages.json`` in a folder
for each task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from everlong.model import seconds_of
from everlong.wire.anthropic import to_openai
from everlong.wire.logs.log import LogFacts, LogRun, LogUsage, count_of, dicts_in, dollars_of, text_field

__all__ = ["is_cline_session", "is_cline_task", "read_cline_session", "read_cline_task"]

CLIENT = "cline"
_INPUT = re.compile(r"<user_input mode=\"\w+\">(.*)</user_input>", re.DOTALL)
"""What the command line puts around a person's words in its file; it is not sent."""
_COUNTED = frozenset({"api_req_started", "deleted_api_reqs", "subagent_usage"})
_REQUEST = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")


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
    told = beside or {}
    ident, agent = text_field(value, "sessionId"), text_field(value, "agent")
    origin = value.get("origin")
    parent = text_field(origin, "parentThreadId", "parentSessionId") if isinstance(origin, dict) else None
    is_agent = agent is not None and agent != "lead"
    if is_agent and parent is None:
        parent = text_field(told, "session_id")
    metadata = told.get("metadata")
    about: Mapping[str, Any] = metadata if isinstance(metadata, dict) and not is_agent else {}
    facts = LogFacts(
        CLIENT,
        ident,
        agent=agent if is_agent else None,
        works_for=parent if is_agent else None,
        title=text_field(about, "title"),
        folder=text_field(told, "cwd", "workspace_root"),
        version=text_field(origin, "version") if isinstance(origin, dict) else None,
        started=None if is_agent else seconds_of(told.get("started_at")),
    )
    run = _read(facts, dicts_in(value.get("messages")), text_field(value, "system_prompt"))
    cost = about.get("totalCost")
    if dollars_of(cost):
        run.usage = run.usage._replace(cost=dollars_of(cost))
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
    told = facts or {}
    folder = text_field(told, "cwdOnTaskInitialization")
    title = text_field(told, "task")
    run = _read(LogFacts(CLIENT, ident, title=title, folder=folder), messages, None)
    usage = LogUsage()
    for one in shown:
        if isinstance(one, dict) and text_field(one, "say") in _COUNTED:
            usage = usage.plus(_request(one.get("text")))
    if usage.is_told:
        run.usage = usage
    return run


def _request(text: object) -> LogUsage:
    try:
        told = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return LogUsage()
    if not isinstance(told, dict) or "tokensIn" not in told:
        return LogUsage()
    given, said, read, written = (count_of(told.get(name)) for name in _REQUEST)
    return LogUsage(given, said, read, written, 0, 1, dollars_of(told.get("cost")))


def _read(facts: LogFacts, told: Sequence[Any], prompt: str | None) -> LogRun:
    run = LogRun(facts, is_total=True)
    if prompt is not None:
        run.messages.append({"role": "system", "content": prompt})
        run.times.append(facts.started)
    model = None
    for one in told:
        if not isinstance(one, dict) or text_field(one, "role") not in {"user", "assistant"}:
            continue
        info, metrics = one.get("modelInfo"), one.get("metrics")
        if isinstance(info, dict):
            model = text_field(info, "id", "modelId") or model
        if isinstance(metrics, dict):
            run.usage = run.usage.plus(_metrics(metrics))
        content = one.get("content")
        if not isinstance(content, str | list) or not content:
            continue
        made = to_openai([{"role": one["role"], "content": _blocks(content)}])
        run.messages += made
        run.times += [seconds_of(one.get("ts"))] * len(made)
    if model is not None:
        run.facts = replace(facts, model=model)
    return run


def _metrics(told: Mapping[str, Any]) -> LogUsage:
    tokens = told.get("tokens")
    some: Mapping[str, Any] = tokens if isinstance(tokens, dict) else told
    read = count_of(some.get("cacheReadTokens", some.get("cached")))
    written = count_of(some.get("cacheWriteTokens"))
    given = count_of(some.get("inputTokens", some.get("prompt")))
    said = count_of(some.get("outputTokens", some.get("completion")))
    return LogUsage(max(0, given - read - written), said, read, written, 0, 1, dollars_of(told.get("cost")))


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
