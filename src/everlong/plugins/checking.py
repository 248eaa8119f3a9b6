"""Messages as plugins are given them, and whether the list that an engine returned can be sent.

Small damage is mended by the rules of the message protocol; what cannot be mended is said. Knows lists only.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from everlong.context.invariants import latest_user_index, repair_all
from everlong.errors import MessageError
from everlong.model import Message, checked_messages, leading_system_count, text_of

__all__ = [
    "CONSEQUENCES",
    "FIGURES",
    "TAG",
    "Checked",
    "EngineFault",
    "FaultKind",
    "Unusable",
    "as_flag",
    "as_given",
    "as_kept",
    "as_schemas",
    "as_status",
    "as_text",
    "checked_output",
    "figures_of",
    "given_list",
    "name_of",
    "wanted_arguments",
]

TAG = "_node"
"""The key by which the store knows messages again (`everlong.store.views.TAG`; a test holds the two together)."""

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Unusable(Exception):  # noqa: N818 - reads as the fact that it states
    """A result that cannot be mended; the message goes on after "compress() "."""


class Checked(NamedTuple):
    """A list that can be sent, and what had to be mended in it."""

    messages: list[Message]
    repairs: list[str]


def checked_output(source: Sequence[Message], output: Any) -> Checked:
    """What an engine made of ``source``, mended where that is possible; what needs no mending is the same object.

    Raises:
        Unusable: there is nothing to be mended.
    """
    messages = _as_messages(source, output)
    repairs: list[str] = []
    prompts = leading_system_count(source)
    if prompts and not leading_system_count(messages):
        messages = [*source[:prompts], *messages]
        repairs.append("dropped the system prompt")
    mended = _with_latest_request(source, messages)
    if mended is not messages:
        messages = mended
        repairs.append("dropped the user's latest message")
    paired = repair_all(messages)
    if paired != messages:
        messages = paired
        if repair_all(list(source)) == list(source):  # what was broken before is not the engine's doing
            repairs.append("returned calls and results that do not belong together")
    return Checked(messages, repairs)


def _as_messages(source: Sequence[Message], output: Any) -> list[Message]:
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


def _with_latest_request(source: Sequence[Message], messages: list[Message]) -> list[Message]:
    """The list with the request in force in it; the very same list where it is there already."""
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


def as_given(message: Message) -> Message:
    """A copy of a message as plugins know it: without our mark, and words in several parts as one text.

    Recalled memories and what hooks add are parts of their own; plugins of other hosts take the content for a text.
    """
    given: Message = {key: copy.deepcopy(value) for key, value in message.items() if key != TAG}
    content = given.get("content")
    if isinstance(content, list) and content and all(map(_is_plain_text, content)):
        given["content"] = text_of(given)
    return given


def given_list(messages: Sequence[Message]) -> list[Message]:
    """Messages as plugins are given them."""
    return [as_given(message) for message in messages]


def as_kept(message: Message, origin: Message | None) -> Message:
    """A copy of a message that came back: with the mark and the parts of the one that it was made of, if any."""
    kept = copy.deepcopy(message)
    if origin is None:
        return kept
    if "content" in origin and kept.get("content") == as_given(origin).get("content"):
        kept["content"] = copy.deepcopy(origin["content"])
    return {**kept, TAG: origin[TAG]} if origin.get(TAG) is not None else kept


def _is_plain_text(part: Any) -> bool:
    """Whether a part is words and nothing else; a cache mark, for one, would get lost in a text."""
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


_COUNTS = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "compression_count")
_LIMITS = ("threshold_tokens", "context_length", "protect_first_n", "protect_last_n")
FIGURES = (*_COUNTS, *_LIMITS, "threshold_percent")


def figures_of(engine: object) -> tuple[dict[str, Any], dict[str, Exception]]:
    """The figures that make sense, and what was raised where one was read; one that is no number is left out."""
    found: dict[str, Any] = {}
    raised: dict[str, Exception] = {}
    for name in FIGURES:
        try:
            value = getattr(engine, name, None)
        except Exception as error:  # noqa: BLE001 - told by whoever asked; the usual figure counts
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
    """The engine's name; that of its class where it has none that can be shown."""
    name = getattr(engine, "name", None)
    return name if isinstance(name, str) and name.strip() else type(engine).__name__


def wanted_arguments(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a function takes; all of them where it takes any, or does not say."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(options)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known):
        return dict(options)
    return {one.name: options[one.name] for one in known if one.name in options and one.kind is not one.POSITIONAL_ONLY}


def as_flag(value: object) -> bool:
    """Yes or no."""
    if not isinstance(value, bool | int):
        raise Unusable(f"returned {type(value).__name__}, not true or false")
    return bool(value)


def as_schemas(value: Any) -> list[dict[str, Any]]:
    """Schemas that have a name."""
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
    """A text; anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def as_status(value: Any) -> dict[str, Any]:
    """A mapping, copied."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unusable(f"returned {type(value).__name__}, not a mapping")
    return {str(key): copy.deepcopy(one) for key, one in value.items()}


FaultKind = Literal["raised", "time", "type", "list", "repaired", "growth", "full"]
"""It raised; it took too long; it returned a wrong type; no usable list; a list that had to be mended; a longer one;
one that leaves the window full."""


@dataclass(frozen=True, slots=True)
class EngineFault:
    """One thing that an engine did wrong, and where."""

    kind: FaultKind
    method: str
    text: str
    traceback: str = ""


CONSEQUENCES: dict[FaultKind, str] = {
    "raised": "the conversation goes on, with the built-in compressor in its place where one is needed",
    "time": "it is off for the rest of this session, and the built-in compressor takes over",
    "type": "the built-in compressor's answer counts instead",
    "list": "the built-in compressor did it instead",
    "growth": "the built-in compressor did it instead",
    "full": "the built-in compressor did it instead",
    "repaired": "that was mended",
}
"""How the warning about each kind ends."""
