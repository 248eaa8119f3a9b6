"""Session files of Gemini CLI: one JSON object with messages, or the same as JSONL of records that change it.

In JSONL a later record with the id of a message takes its place, ``$set`` changes the facts or all messages, and
``$rewindTo`` takes back a message and those after it. A reply holds its tool calls and their results together; here
they are a message with calls and the messages that answer them. The files tell the hash of the project's folder and
not always the folder itself; they do not tell what a session cost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from everlong.model import Message, seconds_of
from everlong.wire.logs.log import LogFacts, LogRun, LogUsage, count_of, dicts_in, text_field

__all__ = ["is_gemini_record", "is_gemini_session", "read_gemini_records", "read_gemini_session"]

CLIENT = "gemini"


def is_gemini_session(value: object) -> bool:
    """Return whether a JSON value is a session of Gemini CLI."""
    return isinstance(value, dict) and "sessionId" in value and "projectHash" in value


def is_gemini_record(entry: Mapping[str, Any]) -> bool:
    """Return whether the first line of JSONL begins a session of Gemini CLI."""
    return is_gemini_session(entry) and "messages" not in entry


def read_gemini_records(entries: Iterable[Mapping[str, Any]]) -> LogRun:
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
    return read_gemini_session({**session, "messages": list(messages.values())})


def _id_of(message: Mapping[str, Any]) -> str:
    return str(message.get("id") or id(message))


def read_gemini_session(session: Mapping[str, Any]) -> LogRun:
    """Return the conversation of a session."""
    folders = session.get("directories")
    ident = text_field(session, "sessionId")
    is_agent = session.get("kind") == "subagent"
    facts = LogFacts(
        CLIENT,
        ident,
        agent=ident if is_agent else None,
        title=text_field(session, "summary"),
        folder=folders[0] if isinstance(folders, list) and folders and isinstance(folders[0], str) else None,
        started=seconds_of(session.get("startTime")),
    )
    run = LogRun(facts, is_total=True)
    model = None
    for one in dicts_in(session.get("messages")):
        time, kind = seconds_of(one.get("timestamp")), one.get("type")
        if kind == "user":
            content = _content(_without_results(one.get("content")))
            made: list[Message] = [{"role": "user", "content": content}] if content else []
        elif kind == "gemini":
            made = _reply(one)
            model = text_field(one, "model") or model
            run.usage = run.usage.plus(_usage(one.get("tokens")))
        else:  # what the program told the person: no model saw it
            continue
        run.messages += made
        run.times += [time] * len(made)
    run.facts = replace(facts, model=model)
    return run


def _without_results(value: object) -> object:
    """Return what a person said: newer versions repeat the results of calls, which stand with the calls already."""
    if not isinstance(value, list):
        return value
    return [part for part in value if not (isinstance(part, dict) and "functionResponse" in part)]


def _usage(told: object) -> LogUsage:
    if not isinstance(told, dict):
        return LogUsage()
    cached, thoughts = count_of(told.get("cached")), count_of(told.get("thoughts"))
    return LogUsage(
        max(0, count_of(told.get("input")) - cached) + count_of(told.get("tool")),
        count_of(told.get("output")) + thoughts,
        cached,
        0,
        thoughts,
        1,
    )


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
        said = [text_field(thought, "subject"), text_field(thought, "description")]
        parts.append({"type": "thinking", "thinking": "\n".join(filter(None, said))})
    content = _content(one.get("content"))
    if content:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = dicts_in(one.get("toolCalls"))
    if not parts and not calls:
        return []
    is_plain = len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text"
    message: Message = {"role": "assistant", "content": parts[0]["text"] if is_plain else parts or None}
    if not calls:
        return [message]
    message["tool_calls"] = [
        {
            "id": str(call.get("id") or ""),
            "type": "function",
            "function": {
                "name": str(call.get("name") or ""),
                "arguments": json.dumps(call.get("args") or {}, ensure_ascii=False),
            },
        }
        for call in calls
    ]
    return [message, *(_result(call) for call in calls if _is_over(call))]


def _is_over(call: Mapping[str, Any]) -> bool:
    return call.get("result") is not None or text_field(call, "status") in {"success", "error", "cancelled"}


def _result(call: Mapping[str, Any]) -> Message:
    told = call.get("result")
    answers = told if isinstance(told, list) else [told]
    texts: list[Any] = []
    for answer in answers:
        response = answer.get("functionResponse") if isinstance(answer, dict) else None
        if not isinstance(response, dict):
            texts.append(answer)
            continue
        body = response.get("response")
        if isinstance(body, dict) and body.keys() <= {"output", "error"}:
            texts += [value for value in body.values() if value is not None]
        else:
            texts.append(body)
    content = _content([one if isinstance(one, dict | str) else {"text": str(one)} for one in texts if one is not None])
    message: Message = {"role": "tool", "tool_call_id": str(call.get("id") or ""), "content": content or ""}
    return {**message, "is_error": True} if text_field(call, "status") in {"error", "cancelled"} else message
