"""Conversations from the Anthropic Messages format to the OpenAI format and back, without loss.

`to_openai` and `to_anthropic` are inverse to each other: what one format has no place for travels under a private key,
``_anthropic`` on dicts in the OpenAI format, ``_openai`` on dicts in the Anthropic format. Such a note describes a
form, never content, so that a message may be edited in between. `sendable` takes these keys out before anything goes
to an API. Unknown blocks and parts (documents, thinking, audio, a server's tools) are passed on unchanged.

An Anthropic body that the API would take comes back as it was. An OpenAI list comes back as it was, except that

- results stand directly after the message that called for them, and have the id of their call, as text;
- a leading system message without content, or with null, is one with empty content; one of several is left out;
- a picture given as a bare address is an object with a ``url``.

This module knows neither files nor networks, and does not judge whether a conversation makes sense.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias

from everlong.errors import MessageError, TranscriptError
from everlong.model import ADDED, Message, calls_of, checked_messages, find_groups, is_system, parts_of
from everlong.wire.text import parse_json

ANTHROPIC = "_anthropic"
"""The key under which OpenAI-format dicts keep what only the Anthropic format has a place for."""

OPENAI = "_openai"
"""The key under which Anthropic-format dicts keep what only the OpenAI format has a place for."""

RESPONSES = "_responses"
"""The key under which OpenAI-format dicts keep what only the Responses API has a place for."""

INVALID = "INVALID_JSON"
"""The one key of an input whose arguments were no JSON object; the name that Anthropic's documentation uses."""

_DATA_URL = re.compile(r"data:([^;,]*);base64,(.+)", re.DOTALL)
_USUAL_KEYS = frozenset({"role", "content", ANTHROPIC})
_RESULT_KEYS = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control", OPENAI})
_TOOL_KEYS = frozenset({"role", "tool_call_id", "content", "is_error", "cache_control", ANTHROPIC})


def notes_of(value: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the notes on a dict under a private key; empty if there are none."""
    notes = value.get(key)
    return notes if isinstance(notes, dict) else {}


def with_notes(value: dict[str, Any], key: str, notes: dict[str, Any]) -> dict[str, Any]:
    """Return the dict with the notes that say something, or unchanged if none does."""
    notes = {name: note for name, note in notes.items() if note is not None and note != {}}
    return {**value, key: notes} if notes else value


def rest_of(value: dict[str, Any], known: Set[str]) -> dict[str, Any]:
    """Return the entries of a dict except the known ones."""
    return {name: item for name, item in value.items() if name not in known}


def _extra(notes: dict[str, Any], name: str = "extra") -> dict[str, Any]:
    extra = notes.get(name)
    return extra if isinstance(extra, dict) else {}


# -- how content was written ------------------------------------------------------------------------------------------


def content_form(message: Message) -> str | None:
    """Return how content was written that turns into a list of blocks: string, empty list, null, or absent."""
    if "content" not in message:
        return "absent"
    content = message["content"]
    return "null" if content is None else "string" if isinstance(content, str) else "list" if not content else None


def restore_form(message: Message, form: object) -> Message:
    """Return a message with its content written in that form, if the content is still the same."""
    content = message.get("content")
    if not content:
        if form == "absent":
            return rest_of(message, {"content"})
        empty: dict[object, Any] = {"string": "", "null": None, "list": []}
        return {**message, "content": empty[form]} if form in empty else message
    if form == "string" and isinstance(content, list) and len(content) == 1:
        part = content[0]
        if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text":
            return {**message, "content": part["text"]}
    return message


# -- parts ------------------------------------------------------------------------------------------------------------


def to_part(block: Any) -> Any:
    """Return the OpenAI form of a content block: pictures become ``image_url``, all else stays."""
    if not isinstance(block, dict):
        return block
    notes = notes_of(block, OPENAI)
    if block.get("type") == "text" and notes.get("type") == "refusal":
        return {"type": "refusal", "refusal": block.get("text")}
    if block.get("type") == "image" and "image_url" not in block:
        url = _url_of(block.get("source"))
        if url is not None:
            image = {**_extra(notes, "image_url"), "url": url}
            return {"type": "image_url", "image_url": image, **rest_of(block, {"type", "source", OPENAI})}
    return block


def to_block(part: Any) -> Any:
    """Return the Anthropic form of a content part, the inverse of `to_part`."""
    if not isinstance(part, dict):
        return part
    if part.get("type") == "refusal" and part.keys() == {"type", "refusal"}:
        return {"type": "text", "text": part["refusal"], OPENAI: {"type": "refusal"}}
    if part.get("type") == "image_url" and "source" not in part:
        image = part.get("image_url")
        picture = image if isinstance(image, dict) else {"url": image}  # some clients give the bare address
        source = _source_of(picture.get("url"))
        if source is not None:
            block = {"type": "image", "source": source, **rest_of(part, {"type", "image_url"})}
            return with_notes(block, OPENAI, {"image_url": rest_of(picture, {"url"})})
    return part


def _url_of(source: Any) -> str | None:
    """Return the URL of a picture's source; None if a URL could not say it exactly."""
    if not isinstance(source, dict):
        return None
    url = source.get("url")
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    return url if isinstance(url, str) and _source_of(url) == source else None


def _source_of(url: Any) -> dict[str, Any] | None:
    if not isinstance(url, str) or not url:
        return None
    if data := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": data[1], "data": data[2]}
    return None if url.startswith("data:") else {"type": "url", "url": url}


# -- calls ------------------------------------------------------------------------------------------------------------


def to_call(block: Any) -> dict[str, Any] | None:
    """Return the OpenAI form of a ``tool_use`` block; None for other blocks, or without id, name or input."""
    if not isinstance(block, dict) or block.get("type") != "tool_use" or "input" not in block:
        return None
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
        return None
    notes = notes_of(block, OPENAI)
    if isinstance(notes.get("call"), dict):
        return dict(notes["call"])
    arguments = _arguments(block["input"], notes.get("arguments"))
    call = {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}
    if "cache_control" in block:
        call["cache_control"] = block["cache_control"]
    extra = rest_of(block, {"type", "id", "name", "input", "cache_control", OPENAI})
    bare = None if isinstance(block["input"], dict) else True
    return with_notes({**call, **_extra(notes)}, ANTHROPIC, {"extra": extra, "bare_input": bare})


def use_from_call(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the ``tool_use`` block for an entry of ``tool_calls``."""
    call = calls_of({"tool_calls": [entry]})[0]
    notes = notes_of(entry, ANTHROPIC)
    value = _input(call.arguments, bare=bool(notes.get("bare_input")))
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": value}
    if not _is_usual(entry):
        return with_notes(block, OPENAI, {"call": entry})
    if "cache_control" in entry:
        block["cache_control"] = entry["cache_control"]
    block.update(rest_of(_extra(notes), block.keys()))
    written = None if _arguments(value) == call.arguments else call.arguments
    extra = rest_of(entry, {"id", "type", "function", "cache_control", ANTHROPIC})
    return with_notes(block, OPENAI, {"arguments": written, "extra": extra})


def _is_usual(entry: dict[str, Any]) -> bool:
    body = entry.get("function")
    return (
        entry.get("type") == "function"
        and isinstance(entry.get("id"), str)
        and isinstance(body, dict)
        and body.keys() == {"name", "arguments"}
        and all(isinstance(text, str) for text in body.values())
    )


def _arguments(value: Any, written: Any = None) -> str:
    """Return an input as JSON text, the way it was once written if that still says the same."""
    text = _json_text(value)
    if isinstance(written, str) and _json_text(_input(written)) == text:
        return written
    if isinstance(value, dict) and value.keys() == {INVALID} and isinstance(value[INVALID], str):
        broken: str = value[INVALID]
        return broken if _input(broken) == value else text
    return text


def _input(arguments: str, *, bare: bool = False) -> Any:
    """Return the input that an arguments text stands for; text that is no JSON object is kept inside one."""
    if not arguments.strip():
        return {}
    try:
        value = parse_json(arguments, "the arguments")
    except TranscriptError:
        return {INVALID: arguments}
    return value if bare or isinstance(value, dict) else {INVALID: arguments}


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TranscriptError(
            f"the input of a tool call cannot be written as JSON ({error}); check how it was made"
        ) from error


# -- results ----------------------------------------------------------------------------------------------------------


def tool_from_result(block: Any) -> Message | None:
    """Return the ``tool`` message for a ``tool_result`` block; None for other blocks, or without an id.

    ``is_error`` and ``cache_control`` keep their names on the message.
    """
    if not isinstance(block, dict) or block.get("type") != "tool_result":
        return None
    content = block.get("content")
    if not isinstance(block.get("tool_use_id"), str) or not isinstance(content, str | list | None):
        return None
    notes = notes_of(block, OPENAI)
    message: Message = {"role": "tool", "tool_call_id": block["tool_use_id"]}
    message["content"] = [to_part(part) for part in content] if isinstance(content, list) else content or ""
    message.update({name: block[name] for name in ("is_error", "cache_control") if name in block})
    empty = None if content is not None or "content" in notes else "null" if "content" in block else "absent"
    message = restore_form({**message, **_extra(notes)}, notes.get("content"))
    return with_notes(message, ANTHROPIC, {"block": rest_of(block, _RESULT_KEYS), "content": empty})


def result_from_tool(message: Message, call_id: str = "") -> dict[str, Any]:
    """Return the ``tool_result`` block for a ``tool`` message; ``call_id`` is the fallback for a missing id."""
    notes = notes_of(message, ANTHROPIC)
    content = message.get("content")
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": str(message.get("tool_call_id") or call_id)}
    if isinstance(content, list):
        block["content"] = [to_block(part) for part in content]
    elif content or (content is not None and "content" not in notes):
        block["content"] = content
    elif notes.get("content") == "null":
        block["content"] = None
    form = content_form(message) if content is None else None
    block.update({name: message[name] for name in ("is_error", "cache_control") if name in message})
    block.update(rest_of(_extra(notes, "block"), block.keys()))
    return with_notes(block, OPENAI, {"extra": rest_of(message, _TOOL_KEYS), "content": form})


System: TypeAlias = str | list[Any] | None
"""The system prompt of an Anthropic body: text, blocks, or none."""

_REMINDER = ("<system-reminder>\n", "\n</system-reminder>")
"""Tags around instructions amid a conversation, for which older Anthropic models have no role."""


def to_openai(
    body_or_messages: Mapping[str, Any] | Sequence[Any], system: System = None, *, before: Message | None = None
) -> list[Message]:
    """Return the messages of an Anthropic body, or of its message list and system prompt, in the OpenAI format.

    ``before`` is the OpenAI-format message that these follow, if only the end of a conversation is given.
    """
    values: Any = body_or_messages
    if isinstance(body_or_messages, Mapping):
        values = body_or_messages.get("messages")
        system = body_or_messages.get("system") if system is None else system
    if not isinstance(system, str | list | None):
        raise TranscriptError(
            f"'system' must be text or a list of blocks, got {type(system).__name__}; correct the request"
        )
    try:
        messages = checked_messages(values)
    except MessageError as error:
        raise TranscriptError(f"{error}; correct the request") from error
    result = _system_messages(system)
    for message in messages:
        if message["role"] == "assistant":
            result.append(from_assistant(message))
        elif message["role"] == "user":
            result.extend(_from_user(message, result[-1] if result else before))
        elif is_system(message) or message["role"] == "tool":  # newer models take instructions amid the conversation
            result.append({**message, ANTHROPIC: {"role": message["role"]}})
        else:
            result.append(message)
    return result


def to_anthropic(messages: Sequence[Message]) -> tuple[System, list[dict[str, Any]]]:
    """Return the system prompt and the messages of an OpenAI-format conversation in the Anthropic format."""
    try:
        checked = checked_messages(messages)
    except MessageError as error:
        raise TranscriptError(f"{error}; correct the conversation") from error
    prompts = 0
    while prompts < len(checked) and is_system(checked[prompts]) and not _has_role(checked[prompts]):
        prompts += 1
    result: list[dict[str, Any]] = []
    before = ""
    for message, call_id in _order_results(checked[prompts:]):
        joins = notes_of(message, ANTHROPIC).get("joined") is True or before == message["role"] == "tool"
        if joins and before in ("tool", "user") and not notes_of(message, ANTHROPIC).get("apart"):
            if isinstance(result[-1]["content"], str):
                result[-1]["content"] = _blocks(result[-1]["content"])
            result[-1]["content"] += _joined_blocks(message, call_id)
        else:
            result.append(_to_message(message, call_id))
        before = "" if _has_role(message) else message["role"]
    return _system_prompt(checked[:prompts]), result


def sendable(messages: Sequence[Any]) -> list[Any]:
    """Return messages or blocks of either format without the private keys, which an API would refuse."""
    return [_without_notes(message, 2) for message in messages]


def _without_notes(value: Any, depth: int) -> Any:
    """Return a dict without notes, its own and those in its content, as deep as notes are made."""
    if not isinstance(value, dict):
        return value
    result = rest_of(value, {ANTHROPIC, OPENAI, RESPONSES, ADDED})
    for name in ("content", "tool_calls"):
        if depth and isinstance(result.get(name), list):
            result[name] = [_without_notes(entry, depth - 1) for entry in result[name]]
    return result


def _has_role(message: Message) -> bool:
    """Return whether a message had its role in the Anthropic format too."""
    return bool(notes_of(message, ANTHROPIC).get("role") == message["role"])


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [to_block(part) for part in content or ()]


# -- the system prompt ------------------------------------------------------------------------------------------------


def _system_messages(system: System) -> list[Message]:
    if system is None:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    found: list[tuple[dict[str, Any], list[Any]]] = []
    for block in system:
        begins = notes_of(block, OPENAI).get("begins") if isinstance(block, dict) else None
        if isinstance(begins, dict) and isinstance(begins.get("role"), str):
            found.append((begins, []))
            block = rest_of(block, {OPENAI})  # noqa: PLW2901 - the note has been read
        elif not found:
            found.append(({}, []))
        found[-1][1].append(block)
    if not found:
        return [{"role": "system", "content": []}]
    return [
        restore_form(
            {"role": notes.get("role", "system"), "content": parts, **_extra_fields(notes)}, notes.get("content")
        )
        for notes, parts in found
    ]


def _system_prompt(messages: Sequence[Message]) -> System:
    if not messages:
        return None
    first = messages[0]
    if len(messages) == 1 and first["role"] == "system" and first.keys() <= {"role", "content"}:
        content = first.get("content")
        return list(content) if isinstance(content, list) else content or ""
    blocks: list[Any] = []
    for message in messages:
        parts = parts_of(message)
        extra = rest_of(message, {"role", "content"})
        notes = {"role": message["role"], "content": content_form(message), "extra": extra}
        blocks += [{**part, OPENAI: {"begins": notes}} if at == 0 else part for at, part in enumerate(parts)]
    return blocks


# -- from Anthropic ---------------------------------------------------------------------------------------------------


def _extra_fields(notes: dict[str, Any]) -> dict[str, Any]:
    extra = notes.get("extra")
    return rest_of(extra, {"role"}) if isinstance(extra, dict) else {}


def from_assistant(message: dict[str, Any]) -> Message:
    """Return the OpenAI form of an assistant message."""
    notes = notes_of(message, OPENAI)
    result: Message = {"role": "assistant", "content": message.get("content")}
    if isinstance(message.get("content"), list):
        parts: list[Any] = []
        calls: list[tuple[int, dict[str, Any]]] = []
        for block in message["content"]:
            call = to_call(block)
            if call is None:
                parts.append(to_part(block))
            else:
                calls.append((len(parts), call))
        result["content"] = parts if parts or not calls else None
        if calls:
            # In the OpenAI format all content stands before the calls, so another order needs a note.
            result["tool_calls"] = [
                call if at == len(parts) else {**call, ANTHROPIC: {**notes_of(call, ANTHROPIC), "after": at}}
                for at, call in calls
            ]
    result = {**restore_form(result, notes.get("content")), **_extra_fields(notes)}
    return with_notes(result, ANTHROPIC, {"extra": rest_of(message, {"role", "content", OPENAI})})


def _from_user(message: dict[str, Any], before: Message | None) -> list[Message]:
    notes = notes_of(message, OPENAI)
    content = message.get("content")
    extra = rest_of(message, {"role", "content", OPENAI})
    role = notes.get("role")
    if isinstance(role, str) and role and isinstance(content, list):
        plain: Message = {
            "role": role,
            "content": [_unwrap_reminder(block) for block in content],
            **_extra_fields(notes),
        }
        return [restore_form(plain, notes.get("content"))]
    pieces: list[Message] = []
    for block in content if isinstance(content, list) else ():
        result = tool_from_result(block)
        if result is not None:
            pieces.append(result)
        elif pieces and pieces[-1]["role"] == "user":
            pieces[-1]["content"].append(to_part(block))
        else:
            pieces.append({"role": "user", "content": [to_part(block)]})
    if not pieces:
        pieces = [{"role": "user", "content": content}]
    for at in range(1, len(pieces)):
        if not pieces[at - 1]["role"] == pieces[at]["role"] == "tool":
            pieces[at] = _with_more_notes(pieces[at], {"joined": True})
    is_apart = pieces[0]["role"] == "tool" and before is not None and before["role"] == "tool"
    pieces[0] = _with_more_notes(pieces[0], {"extra": extra, "apart": True if is_apart else None})
    if len(pieces) == 1 and pieces[0]["role"] == "user":
        pieces[0] = restore_form({**pieces[0], **_extra_fields(notes)}, notes.get("content"))
    return pieces


def _with_more_notes(message: Message, notes: dict[str, Any]) -> Message:
    return with_notes(message, ANTHROPIC, {**notes_of(message, ANTHROPIC), **notes})


def _unwrap_reminder(block: Any) -> Any:
    before, after = _REMINDER
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if isinstance(text, str) and text.startswith(before) and text.endswith(after):
        return {**block, "text": text[len(before) : len(text) - len(after)]}
    return to_part(block)


# -- to Anthropic -----------------------------------------------------------------------------------------------------


def _order_results(messages: Sequence[Message]) -> list[tuple[Message, str]]:
    """Return the messages with each result directly after its call, and the id of the call that a result answers."""
    answers: dict[int, list[tuple[int, str]]] = {}
    moved: set[int] = set()
    for group in find_groups(messages).groups:
        answers[group.start] = [(answer.at, answer.call_id) for answer in group.answers]
        moved.update(answer.at for answer in group.answers)
    result: list[tuple[Message, str]] = []
    for index, message in enumerate(messages):
        if index not in moved:
            result.append((message, ""))
            result += [(messages[at], call_id) for at, call_id in answers.get(index, ())]
    return result


def _to_message(message: Message, call_id: str) -> dict[str, Any]:
    role = message["role"]
    notes = notes_of(message, ANTHROPIC)
    extra = {} if not isinstance(notes.get("extra"), dict) else rest_of(notes["extra"], {"role", "content"})
    if _has_role(message):
        return rest_of(message, {ANTHROPIC})
    if role == "assistant":
        return {**_to_assistant(message), **extra}
    if role == "tool":
        return {"role": "user", "content": [result_from_tool(message, call_id)], **extra}
    if is_system(message):
        return _to_reminder(message)
    if role != "user":  # the former role of tool results, or an unknown one
        return message
    content = message.get("content")
    result = {"role": "user", "content": content if isinstance(content, str) else _blocks(content), **extra}
    own = {"content": content_form(message) if content is None else None, "extra": rest_of(message, _USUAL_KEYS)}
    return with_notes(result, OPENAI, own)


def _joined_blocks(message: Message, call_id: str) -> list[Any]:
    """Return the blocks of a message that joins the one before it."""
    if message["role"] == "tool":
        return [result_from_tool(message, call_id)]
    return _blocks(message.get("content"))


def _to_assistant(message: Message) -> dict[str, Any]:
    content = message.get("content")
    calls = message.get("tool_calls")
    entries = [entry for entry in calls if isinstance(entry, dict)] if isinstance(calls, list) else []
    if not entries:
        result = {"role": "assistant", "content": content if isinstance(content, str) else _blocks(content)}
        form = content_form(message) if content is None else None
        return with_notes(result, OPENAI, {"content": form, "extra": rest_of(message, _USUAL_KEYS)})
    parts = _blocks(content)
    blocks: list[Any] = []
    taken = 0
    for entry in entries:
        after = notes_of(entry, ANTHROPIC).get("after")
        until = after if isinstance(after, int) and taken <= after <= len(parts) else len(parts)
        blocks += [*parts[taken:until], use_from_call(entry)]
        taken = until
    form = content_form(message)
    own = {"content": None if form == "null" else form, "extra": rest_of(message, {*_USUAL_KEYS, "tool_calls"})}
    return with_notes({"role": "assistant", "content": [*blocks, *parts[taken:]]}, OPENAI, own)


def _to_reminder(message: Message) -> dict[str, Any]:
    before, after = _REMINDER
    blocks = [
        {**block, "text": f"{before}{block['text']}{after}"}
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        else block
        for block in _blocks(message.get("content"))
    ]
    notes = {"role": message["role"], "content": content_form(message), "extra": rest_of(message, _USUAL_KEYS)}
    return with_notes({"role": "user", "content": blocks}, OPENAI, notes)
