"""Content blocks of the Anthropic format, and parts, calls and results of the OpenAI format, one at a time.

What the other format has no place for is kept under a private key that the way back reads: ``_anthropic`` on dicts in
the OpenAI format, ``_openai`` on dicts in the Anthropic format. Such a note describes a form, never content, so that a
message may be edited in between. Unknown blocks and parts (documents, thinking, audio, a server's tools) are passed on
unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import Any

from everlong.errors import TranscriptError
from everlong.model import Message, calls_of
from everlong.wire.text import parse_json

__all__ = [
    "ANTHROPIC",
    "INVALID",
    "OPENAI",
    "RESPONSES",
    "content_form",
    "notes_of",
    "rest_of",
    "restore_form",
    "result_from_tool",
    "to_block",
    "to_call",
    "to_part",
    "tool_from_result",
    "use_from_call",
    "with_notes",
]

ANTHROPIC = "_anthropic"
"""The key under which OpenAI-format dicts keep what only the Anthropic format has a place for."""

OPENAI = "_openai"
"""The key under which Anthropic-format dicts keep what only the OpenAI format has a place for."""

RESPONSES = "_responses"
"""The key under which OpenAI-format dicts keep what only the Responses API has a place for."""

INVALID = "INVALID_JSON"
"""The one key of an input whose arguments were no JSON object; the name that Anthropic's documentation uses."""

_DATA_URL = re.compile(r"data:([^;,]*);base64,(.+)", re.DOTALL)
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
