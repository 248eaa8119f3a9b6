"""Messages as plugins are given them, and whether the list that an engine returned can be sent.

Small damage is mended by the rules of the message protocol; what cannot be mended is said. Knows lists only.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from everlong.context.invariants import latest_user_index, repair_all
from everlong.errors import MessageError
from everlong.model import Message, checked_messages, leading_system_count, text_of

__all__ = ["TAG", "Checked", "Unusable", "as_given", "as_kept", "checked_output", "given_list"]

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
