"""Checks of what engines return, and the copies of messages that plugins are given.

The rules of the message protocol mend small damage; anything worse raises `Unusable`.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from everlong.context.invariants import latest_user_index, repair_all
from everlong.errors import MessageError
from everlong.model import Message, checked_messages, leading_system_count, text_of

__all__ = [
    "CONSEQUENCES",
    "FIGURES",
    "TAG",
    "Checked",
    "FaultKind",
    "Unusable",
    "as_flag",
    "as_schemas",
    "as_status",
    "as_text",
    "check_output",
    "copy_for_plugin",
    "copy_message_for_plugin",
    "figures_of",
    "name_of",
    "restore_marks",
    "wanted_arguments",
]

TAG = "_node"
"""The key by which the store recognizes its messages; the same as `everlong.store.views.TAG`."""

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Unusable(Exception):  # noqa: N818 - reads as the fact that it states
    """A result that cannot be mended; the message continues a sentence that starts with the method's name."""


class Checked(NamedTuple):
    """A list that can be sent, and the damage that was mended in it."""

    messages: list[Message]
    repairs: list[str]


def check_output(source: Sequence[Message], output: Any) -> Checked:
    """Return the list that an engine made of ``source``, mended if need be; sound messages stay the same objects.

    Raises:
        Unusable: it cannot be mended.
    """
    messages = _check_messages(source, output)
    repairs: list[str] = []
    prompts = leading_system_count(source)
    if prompts and not leading_system_count(messages):
        messages = [*source[:prompts], *messages]
        repairs.append("dropped the system prompt")
    mended = _put_back_request(source, messages)
    if mended is not messages:
        messages = mended
        repairs.append("dropped the user's latest message")
    paired = repair_all(messages)
    if paired != messages:
        messages = paired
        if repair_all(list(source)) == list(source):  # damage that was there before is not the engine's fault
            repairs.append("returned calls and results that do not belong together")
    return Checked(messages, repairs)


def _check_messages(source: Sequence[Message], output: Any) -> list[Message]:
    try:
        messages = checked_messages(output)
    except MessageError as error:
        raise Unusable(f"returned something that is no list of messages ({error})") from error
    if source and not any(message["role"] not in {"system", "developer"} for message in messages):
        raise Unusable(f"returned {len(messages)} messages, none of them of the conversation")
    for index, message in enumerate(messages):
        if message["role"] not in _ROLES:
            raise Unusable(f"returned a message with the role {message['role']!r} (message {index})")
    try:
        json.dumps(messages)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable(f"returned messages that are no JSON ({error})") from error
    return messages


def _put_back_request(source: Sequence[Message], messages: list[Message]) -> list[Message]:
    """Return the list with the user's latest message in it; the same list if it is there already."""
    at = latest_user_index(source)
    if at is None:
        return messages
    latest, text = source[at], text_of(source[at])
    for message in messages:
        if message == latest or (text.strip() and message["role"] == "user" and text in text_of(message)):
            return messages
    later = [message for message in source[at + 1 :] if message["role"] != "tool"]
    place = next((index for index, message in enumerate(messages) if message in later), len(messages))
    return [*messages[:place], latest, *messages[place:]]


def copy_message_for_plugin(message: Message) -> Message:
    """Return a copy of a message as plugins know it: without the store's mark, and several text parts as one text.

    Recalled memories are parts of their own, but many plugins expect the content to be a text.
    """
    given: Message = {key: copy.deepcopy(value) for key, value in message.items() if key != TAG}
    content = given.get("content")
    if isinstance(content, list) and content and all(map(_is_plain_text, content)):
        given["content"] = text_of(given)
    return given


def copy_for_plugin(messages: Sequence[Message]) -> list[Message]:
    """Return copies of messages as plugins know them."""
    return [copy_message_for_plugin(message) for message in messages]


def restore_marks(message: Message, origin: Message | None) -> Message:
    """Return a copy of a returned message, with the mark and the parts of its origin, if it has one."""
    kept = copy.deepcopy(message)
    if origin is None:
        return kept
    if "content" in origin and kept.get("content") == copy_message_for_plugin(origin).get("content"):
        kept["content"] = copy.deepcopy(origin["content"])
    return {**kept, TAG: origin[TAG]} if origin.get(TAG) is not None else kept


def _is_plain_text(part: Any) -> bool:
    """Return whether a part is nothing but text; joining texts would lose, for example, a cache marker."""
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


_COUNTS = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "compression_count")
_LIMITS = ("threshold_tokens", "context_length", "protect_first_n", "protect_last_n")
FIGURES = (*_COUNTS, *_LIMITS, "threshold_percent")
"""Attributes of an engine that the host reads."""


def figures_of(engine: object) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Return the engine's valid figures by name, and the errors of those that could not be read."""
    found: dict[str, Any] = {}
    raised: dict[str, Exception] = {}
    for name in FIGURES:
        try:
            value = getattr(engine, name, None)
        except Exception as error:  # noqa: BLE001 - the caller reports it; the usual figure counts
            raised[name] = error
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
            continue
        if name in _COUNTS:
            found[name] = max(0, int(value))  # some hosts write -1 for "not known yet"
        elif value > 0:
            found[name] = value if name == "threshold_percent" else int(value)
    return found, raised


def name_of(engine: object) -> str:
    """Return the engine's name; that of its class where it has none."""
    name = getattr(engine, "name", None)
    return name if isinstance(name, str) and name.strip() else type(engine).__name__


def wanted_arguments(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a function takes; all of them if it takes any, or its signature is unknown."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(options)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known):
        return dict(options)
    return {one.name: options[one.name] for one in known if one.name in options and one.kind is not one.POSITIONAL_ONLY}


def as_flag(value: object) -> bool:
    """Return a flag; raises `Unusable` for anything else."""
    if not isinstance(value, bool | int):
        raise Unusable(f"returned {type(value).__name__}, not true or false")
    return bool(value)


def as_schemas(value: Any) -> list[dict[str, Any]]:
    """Return a copy of a list of tool schemas, each with a name; raises `Unusable` for anything else."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise Unusable(f"returned {type(value).__name__}, not a list of schemas")
    found: list[dict[str, Any]] = []
    for schema in value:
        body = schema.get("function", schema) if isinstance(schema, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(body.get("name"), str):
            raise Unusable(f"returned a schema without a name: {schema!r:.80}")
        found.append(copy.deepcopy(dict(schema)))
    return found


def as_text(value: Any) -> str:
    """Return a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def as_status(value: Any) -> dict[str, Any]:
    """Return a copy of a mapping; raises `Unusable` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unusable(f"returned {type(value).__name__}, not a mapping")
    return {str(key): copy.deepcopy(one) for key, one in value.items()}


FaultKind = Literal["raised", "time", "type", "list", "repaired"]
"""Kinds of faults: the engine raised, took too long, or returned a wrong type, a useless list, or one to be mended."""


CONSEQUENCES: dict[FaultKind, str] = {
    "raised": "the conversation goes on, with the built-in compressor in its place where one is needed",
    "time": "it is off for the rest of this session, and the built-in compressor takes over",
    "type": "the built-in compressor's answer counts instead",
    "list": "the built-in compressor did it instead",
    "repaired": "that was mended",
}
"""The end of the warning about each kind of fault."""
