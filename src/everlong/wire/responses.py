"""Items of OpenAI's Responses API as messages of the OpenAI format, and back.

One step of a model (reasoning, texts, calls) is several items there and one message here, so that a step is kept or
dropped whole. What messages have no place for is kept under a private key, as in `everlong.wire.anthropic`. The ``id``
and ``status`` of items are left out: an API that stores nothing does not know them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from everlong.errors import TranscriptError
from everlong.model import Message, is_reasoning, parts_of
from everlong.wire.anthropic import ANTHROPIC, OPENAI, RESPONSES, notes_of, rest_of, with_notes

__all__ = ["Item", "from_items", "message_of_answer", "to_items"]

Item: TypeAlias = dict[str, Any]

_FORGOTTEN = frozenset({"id", "status"})
_SILENT = frozenset({"compaction_trigger"})
"""Items that ask for something and say nothing."""
_USER_ITEMS = frozenset({"mcp_approval_response", "additional_tools", "configuration_update", "item_reference"})
"""Items that are no answer of a model and have no role."""
_TEXTS = frozenset({"input_text", "output_text", "summary_text"})


# -- from items --------------------------------------------------------------------------------------------------------


def from_items(items: Sequence[Any]) -> list[list[Message]]:
    """Return the messages of items, for each item those that end with it.

    The message of a model's step stands at the last item of the step; the items before it have none.

    Raises:
        TranscriptError: something in the list is no item.
    """
    found: list[list[Message]] = []
    step: list[Item] = []
    for item in items:
        kind = _kind_of(item)
        if _is_said(item, kind):
            step.append(item)
            found.append([])
            continue
        if step:
            found[-1].append(message_of_answer(step))
            step = []
        found.append([] if kind in _SILENT else [_other_message(item, kind)])
    if step:
        found[-1].append(message_of_answer(step))
    return found


def message_of_answer(items: Sequence[Item]) -> Message:
    """Return the items of one answer of a model as one message: its texts and reasoning, and its calls."""
    parts: list[Any] = []
    calls: list[Any] = []
    order = ""
    for item in items:
        kind = _kind_of(item)
        if isinstance(item.get("call_id"), str) and kind.endswith("_call"):
            calls.append(_call(item, kind))
            order += "c"
            continue
        own = _said_parts(item, kind)
        parts += own
        order += "p" * len(own)
    is_plain = len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text"
    message: Message = {"role": "assistant", "content": parts[0]["text"] if is_plain else parts or None}
    if calls:
        message["tool_calls"] = calls
    return with_notes(message, RESPONSES, {"order": order if "cp" in order else None})


def _kind_of(item: Any) -> str:
    if not isinstance(item, dict):
        raise TranscriptError(f"an item of the Responses API is an object, and this is {type(item).__name__}")
    kind = item.get("type", "message")
    if kind == "message" and not isinstance(item.get("role"), str):
        raise TranscriptError("a message of the Responses API has a role, and this one has none")
    return str(kind)


def _is_said(item: Item, kind: str) -> bool:
    """Return whether an item is part of what a model says."""
    if kind == "message":
        return bool(item["role"] == "assistant")
    return not kind.endswith("_output") and kind not in _USER_ITEMS and kind not in _SILENT


def _said_parts(item: Item, kind: str) -> list[Any]:
    """Return the parts of an item that is no call: texts, reasoning as it is, or the whole item as a part."""
    if kind == "reasoning":
        return [item]
    if kind != "message":
        return [_item_part(item)]
    content = item.get("content")
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts = [_part(part) for part in given if isinstance(part, dict)] if isinstance(given, list) else []
    rest = _rest(item, {"type", "role", "content", *_FORGOTTEN})
    return [with_notes(parts[0], RESPONSES, {"message": rest}), *parts[1:]] if parts else []


def _part(part: Item) -> Item:
    kind = part.get("type")
    if isinstance(kind, str) and kind in _TEXTS:
        rest = {name: value for name, value in part.items() if name not in {"type", "text"} and value}
        return {"type": "text", "text": part.get("text"), **rest}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    return part


def _call(item: Item, kind: str) -> Item:
    ident, name = item["call_id"], item.get("name")
    if kind == "custom_tool_call":
        body = {"type": "custom", "custom": {"name": name, "input": item.get("input")}}
        return with_notes({"id": ident, **body}, RESPONSES, {"call": _rest(item, {*_CALL_FIELDS, "input"})})
    if kind == "function_call":
        body = {"type": "function", "function": {"name": name, "arguments": item.get("arguments")}}
        return with_notes({"id": ident, **body}, RESPONSES, {"call": _rest(item, {*_CALL_FIELDS, "arguments"})})
    rest = _rest(item, {"type", "call_id", *_FORGOTTEN})
    body = {"type": "function", "function": {"name": name or kind, "arguments": json.dumps(rest, ensure_ascii=False)}}
    return with_notes({"id": ident, **body}, RESPONSES, {"kind": kind})


_CALL_FIELDS = frozenset({"type", "call_id", "name", *_FORGOTTEN})


def _other_message(item: Item, kind: str) -> Message:
    """Return the message of an item that no model says."""
    if kind == "message":
        content = item.get("content")
        said = [_part(part) for part in content if isinstance(part, dict)] if isinstance(content, list) else content
        rest = _rest(item, {"type", "role", "content", *_FORGOTTEN})
        return with_notes({"role": item["role"], "content": said}, RESPONSES, {"message": rest})
    if isinstance(item.get("call_id"), str):
        output = item.get("output")
        rest = _rest(item, {"type", "call_id", "output", *_FORGOTTEN})
        notes: Item = {"kind": None if kind == "function_call_output" else kind, "output": rest}
        if isinstance(output, list) and all(_is_content(part) for part in output):
            output = [_part(part) for part in output]
        elif not isinstance(output, str):
            output, notes["is_json"] = json.dumps(output, ensure_ascii=False), True
        return with_notes({"role": "tool", "tool_call_id": item["call_id"], "content": output}, RESPONSES, notes)
    return {"role": "user", "content": [_item_part(item)]}


def _item_part(item: Item) -> Item:
    """Return an item that messages have no form for as a part; its name and state do not identify it."""
    own = {name: item[name] for name in _FORGOTTEN if item.get(name) is not None}
    return with_notes(_rest(item, _FORGOTTEN), RESPONSES, {"is_item": True, "own": own})


def _part_item(part: Item) -> Item:
    """Return the item that stands as a part."""
    return {**rest_of(part, {RESPONSES}), **notes_of(part, RESPONSES).get("own", {})}


def _is_content(part: Any) -> bool:
    return isinstance(part, dict) and str(part.get("type")).startswith("input_")


def _rest(item: Item, known: frozenset[str] | set[str]) -> Item:
    return {name: value for name, value in item.items() if name not in known and value is not None}


# -- to items ----------------------------------------------------------------------------------------------------------


def to_items(messages: Sequence[Message]) -> list[Item]:
    """Return messages as items, as a request that stores nothing may send them.

    Reasoning goes along only where it is encrypted, because only then an API can read it again.
    """
    items: list[Item] = []
    kinds: dict[str, str] = {}
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            made = list(_step_items(message))
            kinds |= {item["call_id"]: item["type"] for item in made if "call_id" in item}
            items += made
        elif role == "tool":
            items.append(_output_item(message, kinds))
        else:
            items += _message_items(message)
    return items


def _step_items(message: Message) -> Iterator[Item]:
    parts = [_bare(part) for part in parts_of(message) if not _is_lost(part)]
    calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    order = notes_of(message, RESPONSES).get("order")
    if not isinstance(order, str) or (order.count("p"), order.count("c")) != (len(parts), len(calls)):
        order = "p" * len(parts) + "c" * len(calls)
    content: list[Item] = []
    is_open = False
    for kind in order:
        if kind == "c":
            yield _call_item(calls.pop(0))
            is_open = False
            continue
        part = parts.pop(0)
        notes = notes_of(part, RESPONSES)
        if is_reasoning(part) or notes.get("is_item"):
            yield _part_item(part)
            is_open = False
        elif is_open and "message" not in notes:
            content.append(_output_part(part))
        else:
            content = [_output_part(part)]
            yield {"type": "message", "role": "assistant", "content": content, **notes.get("message", {})}
            is_open = True


def _is_lost(part: Item) -> bool:
    """Return whether a part is thinking that this API cannot read again."""
    return is_reasoning(part) and not (part.get("type") == "reasoning" and part.get("encrypted_content"))


def _call_item(call: Item) -> Item:
    notes = notes_of(call, RESPONSES)
    custom, function = call.get("custom"), call.get("function")
    ident = str(call.get("id") or "")
    if isinstance(custom, dict):
        own = {"type": "custom_tool_call", "call_id": ident, "name": custom.get("name"), "input": custom.get("input")}
        return {**own, **notes.get("call", {})}
    body: Mapping[str, Any] = function if isinstance(function, dict) else {}
    arguments = body.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    if isinstance(notes.get("kind"), str) and (rest := _object(text)) is not None:
        return {"type": notes["kind"], "call_id": ident, **rest}
    own = {"type": "function_call", "call_id": ident, "name": str(body.get("name") or ""), "arguments": text}
    return {**own, **notes.get("call", {})}


def _output_item(message: Message, kinds: Mapping[str, str]) -> Item:
    notes = notes_of(message, RESPONSES)
    ident, content = str(message.get("tool_call_id") or ""), message.get("content")
    kind = f"{kinds[ident]}_output" if ident in kinds else notes.get("kind") or "function_call_output"
    output: Any = [_input_part(_bare(part)) for part in content] if isinstance(content, list) else content or ""
    if notes.get("is_json") and isinstance(content, str):
        try:
            output = json.loads(content)
        except ValueError:
            output = content  # it was shortened
    return {"type": kind, "call_id": ident, "output": output, **notes.get("output", {})}


def _message_items(message: Message) -> Iterator[Item]:
    content = message.get("content")
    own = notes_of(message, RESPONSES).get("message", {})
    if not isinstance(content, list):
        yield {"type": "message", "role": message["role"], "content": content or "", **own}
        return
    parts = [_bare(part) for part in content if isinstance(part, dict) and not is_reasoning(part)]
    said = [_input_part(part) for part in parts if not notes_of(part, RESPONSES).get("is_item")]
    if said:
        yield {"type": "message", "role": message["role"], "content": said, **own}
    yield from (_part_item(part) for part in parts if notes_of(part, RESPONSES).get("is_item"))


def _bare(part: Any) -> Item:
    """Return a part without what only other formats read, and without their cache markers."""
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    return rest_of(part, {ANTHROPIC, OPENAI, "cache_control"})


def _output_part(part: Item) -> Item:
    if part.get("type") == "text":
        return {**rest_of(part, {RESPONSES}), "type": "output_text"}
    return rest_of(part, {RESPONSES})


def _input_part(part: Item) -> Item:
    kind = part.get("type")
    if kind == "text":
        return {**rest_of(part, {RESPONSES}), "type": "input_text"}
    if kind == "image_url" and isinstance(part.get("image_url"), dict):
        picture = part["image_url"]
        detail = {"detail": picture["detail"]} if picture.get("detail") else {}
        return {"type": "input_image", "image_url": picture.get("url"), **detail}
    if kind == "image" and isinstance(part.get("source"), dict):
        source = part["source"]
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "input_image", "image_url": url}
    return rest_of(part, {RESPONSES})


def _object(text: str) -> Item | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
