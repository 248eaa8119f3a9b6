"""Session files of Gemini CLI: one JSON object with messages, or the same as JSONL of records that change it.

In JSONL a later record with the id of a message takes its place, ``$set`` changes the facts or all messages, and
``$rewindTo`` takes back a message and those after it. A reply holds its tool calls and their results together; here
they are a message with calls and the messages that answer them. The files tell the hash of the project's folder and
not always the folder itself; they do not tell what a session cost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from everlong.model import Message, seconds_of
from everlong.wire.logs import (
    LogFacts,
    LogRun,
    LogUsage,
    answer_message,
    call_of,
    count_of,
    dicts_in,
    result_message,
    text_at,
    usage_at,
    value_at,
)

__all__ = ["is_gemini_line", "is_gemini_session", "read_gemini_lines", "read_gemini_session"]

_ENDED = ("success", "error", "cancelled")
_USAGE = {
    "input_tokens": "tokens.input",
    "output_tokens": "tokens.output",
    "cache_read_tokens": "tokens.cached",
    "reasoning_tokens": "tokens.thoughts",
}


def is_gemini_session(value: object) -> bool:
    """Return whether a JSON value is a session of Gemini CLI."""
    return isinstance(value, dict) and "sessionId" in value and "projectHash" in value


def is_gemini_line(entry: Mapping[str, Any]) -> bool:
    """Return whether the first line of JSONL begins a session of Gemini CLI."""
    return is_gemini_session(entry) and "messages" not in entry


def read_gemini_lines(entries: Iterable[Mapping[str, Any]]) -> list[LogRun]:
    """Return the conversation of a session in JSONL."""
    session: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for entry in entries:
        changes = entry.get("$set")
        back = entry.get("$rewindTo")
        if isinstance(changes, dict):
            if isinstance(changes.get("messages"), list):
                messages = {_id_of(one): one for one in changes["messages"] if isinstance(one, dict)}
            session.update({name: value for name, value in changes.items() if name != "messages"})
        elif isinstance(back, str):
            names = list(messages)
            gone = names[names.index(back) :] if back in messages else names
            for name in gone:
                del messages[name]
        elif isinstance(entry.get("id"), str) and isinstance(entry.get("type"), str):
            messages[entry["id"]] = entry
        elif "sessionId" in entry:
            session.update(entry)
    return [read_gemini_session({**session, "messages": list(messages.values())})]


def _id_of(message: Mapping[str, Any]) -> str:
    return str(message.get("id") or id(message))


def read_gemini_session(session: Mapping[str, Any]) -> LogRun:
    """Return the conversation of a session."""
    folders = session.get("directories")
    ident = text_at(session, "sessionId")
    run = LogRun(
        LogFacts(
            "gemini",
            ident,
            agent=ident if session.get("kind") == "subagent" else None,
            title=text_at(session, "summary"),
            folder=folders[0] if isinstance(folders, list) and folders and isinstance(folders[0], str) else None,
            started=seconds_of(session.get("startTime")),
        )
    )
    for one in dicts_in(session.get("messages")):
        time, kind = seconds_of(one.get("timestamp")), one.get("type")
        if kind == "user":
            content = _content(_without_results(one.get("content")))
            run.say(time, *([{"role": "user", "content": content}] if content else []))
        elif kind == "gemini":  # others are what the program told the person: no model saw it
            run.say(time, *_reply(one))
            run.learn(model=text_at(one, "model"))
            run.usage = run.usage.plus(_usage(one))
    return run


def _without_results(value: object) -> object:
    """Return what a person said: newer versions repeat the results of calls, which stand with the calls already."""
    if not isinstance(value, list):
        return value
    return [part for part in value if not (isinstance(part, dict) and "functionResponse" in part)]


def _usage(one: Mapping[str, Any]) -> LogUsage:
    used = usage_at(one, **_USAGE).without_cached_input()
    prompted, thought = count_of(value_at(one, "tokens.tool")), used.reasoning_tokens
    return used._replace(input_tokens=used.input_tokens + prompted, output_tokens=used.output_tokens + thought)


def _content(value: object) -> str | list[dict[str, Any]]:
    """Return what Gemini calls a list of parts as OpenAI's content."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [value]
    parts = [{"text": part} if isinstance(part, str) else part for part in value] if isinstance(value, list) else []
    made = [_part(part) for part in parts if isinstance(part, dict)]
    if len(made) == 1 and made[0].keys() == {"type", "text"}:
        return str(made[0]["text"])
    return made


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    data = part.get("inlineData")
    if isinstance(data, dict) and isinstance(data.get("data"), str):
        url = f"data:{data.get('mimeType') or 'application/octet-stream'};base64,{data['data']}"
        if str(data.get("mimeType")).startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"file_data": url}}
    return {"type": "text", "text": json.dumps(part, ensure_ascii=False)}


def _reply(one: Mapping[str, Any]) -> list[Message]:
    parts: list[dict[str, Any]] = []
    for thought in dicts_in(one.get("thoughts")):
        said = [text_at(thought, "subject"), text_at(thought, "description")]
        parts.append({"type": "thinking", "thinking": "\n".join(filter(None, said))})
    content = _content(one.get("content"))
    if content:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = dicts_in(one.get("toolCalls"))
    made = answer_message(parts, [call_of(call.get("id"), call.get("name"), call.get("args")) for call in calls])
    over = [call for call in calls if call.get("result") is not None or call.get("status") in _ENDED]
    return [*made, *map(_result, over)]


def _result(call: Mapping[str, Any]) -> Message:
    result = call.get("result")
    texts: list[Any] = []
    for answer in result if isinstance(result, list) else [result]:
        body = value_at(answer, "functionResponse.response")
        if isinstance(body, dict) and body.keys() <= {"output", "error"}:
            texts += body.values()
        else:
            texts.append(answer if body is None else body)
    content = _content([one if isinstance(one, dict | str) else {"text": str(one)} for one in texts if one is not None])
    return result_message(call.get("id"), content or "", is_error=call.get("status") in _ENDED[1:])
