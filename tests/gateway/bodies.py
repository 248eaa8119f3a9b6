"""Bodies of Claude's API as no serializer writes them: odd spaces, escapes, numbers, and fields that nobody knows."""

from __future__ import annotations

import json
import random
import re
from array import array
from typing import Any

from hypothesis import strategies as st

from everlong.config import PromptCachingSettings
from everlong.gateway.body import Draft, draft_of, read_body
from everlong.gateway.conversations import LiveConversation
from everlong.store import Branch

__all__ = ["REQUESTS", "Spelled", "draft", "line", "odd", "settings", "unmarked"]

_MARKER = rb'"cache_control":\{"type":"ephemeral"(?:,"ttl":"1h")?\}'
_WRAPPED = re.compile(rb'\[\{"type":"text","text":("(?:[^"\\]|\\.)*"),' + _MARKER + rb"\}\]")
_ADDED = re.compile(rb",?" + _MARKER)


class Spelled(str):
    """JSON that is written as it stands here."""

    __slots__ = ()


def odd(value: Any, rng: random.Random) -> str:
    """A value as JSON, each time in another spelling; lists and objects always begin with a space."""
    if isinstance(value, Spelled):
        return str(value)
    if isinstance(value, dict):
        inner = [f"{_text(name, rng)}{_gap(rng)}:{_gap(rng)}{odd(one, rng)}" for name, one in value.items()]
        return "{ " + f"{_gap(rng)},{_gap(rng)}".join(inner) + _gap(rng) + "}"
    if isinstance(value, list):
        return "[ " + f"{_gap(rng)},{_gap(rng)}".join(odd(one, rng) for one in value) + _gap(rng) + "]"
    return _text(value, rng) if isinstance(value, str) else json.dumps(value)


def _gap(rng: random.Random) -> str:
    return rng.choice(["", "", " ", "\n\t", "  \r\n"])


def _text(text: str, rng: random.Random) -> str:
    if text == "role" or not rng.randrange(3):
        return json.dumps(text, ensure_ascii=False)
    return '"' + "".join(f"\\u{ord(one):04x}" if one in "aeü/" else json.dumps(one)[1:-1] for one in text) + '"'


_WORDS = st.sampled_from(
    ["", "  ", "a word", 'say "no" \\ / ', "über 日本 😀\n", "]},{[", "<system-reminder>x</system-reminder>"]
)
_ODD = st.sampled_from(
    [
        Spelled(one)
        for one in ("1.0", "1e3", "-0", "123456789012345678901234567890", "0.10", '{"x":1, "x" :2}', "[ ]", "{}")
    ]
    + [None, True, "12345678901234567890"]
)
_EXTRA = st.dictionaries(st.sampled_from(["x", "type_of", "ünknown", "id"]), _ODD, max_size=2)


def _with(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda known, more: {**known, **more}, st.fixed_dictionaries(fields), _EXTRA)


_TEXT = _with({"type": st.just("text"), "text": _WORDS})
_BLOCK = st.one_of(
    _TEXT,
    st.fixed_dictionaries({"text": _WORDS, "type": st.just("text")}),
    _with({"type": st.just("tool_use"), "id": st.just("t1"), "name": st.just("look"), "input": _EXTRA}),
    _with(
        {"type": st.just("tool_result"), "tool_use_id": st.just("t1"), "content": _WORDS | st.lists(_TEXT, max_size=2)}
    ),
    _with({"type": st.just("thinking"), "thinking": _WORDS, "signature": st.just("c2ln")}),
    _with({"type": st.just("hologram"), "data": _ODD}),
)
_MESSAGE = _with({"role": st.sampled_from(["user", "assistant"]), "content": _WORDS | st.lists(_BLOCK, max_size=4)})
_TOOL = _with({"name": st.sampled_from(["look", "run"]), "input_schema": _EXTRA})
_LONG = st.just("a long prompt " * 300)
_QUESTION = {"role": "user", "content": "a long question " * 150}
"""Enough for a prompt to be cached, whatever else it says."""

REQUESTS = st.builds(
    lambda first, messages, last, order: {
        name: value
        for name, value in order.sample([*{**first, "messages": messages, **last}.items()], len(first) + len(last) + 1)
        if value is not None
    },
    st.fixed_dictionaries(
        {"model": st.just("claude-opus-5"), "system": _LONG | st.lists(_TEXT, max_size=2) | st.none(), "seed": _ODD}
    ),
    st.lists(_MESSAGE, min_size=1, max_size=6).map(lambda messages: [_QUESTION, *messages]),
    st.fixed_dictionaries({"tools": st.lists(_TOOL, max_size=3) | st.none(), "metadata": _EXTRA}),
    st.randoms(use_true_random=False),
)


def draft(body: bytes) -> Draft:
    """A body as it is read when it comes in."""
    read = read_body(body, "messages")
    return draft_of(body, read, [entry.end for entry in read.entries])


def line(lead: int = 0, ends: list[int] | None = None) -> LiveConversation:
    """A conversation of which nothing is known."""
    read = read_body(b'{"messages":[]}', "messages")
    return LiveConversation(read, lead, array("Q", ends or []), array("Q"), Branch(1, b"", 0), None)


def settings(strategy: str) -> PromptCachingSettings:
    """Those of a caching strategy."""
    return PromptCachingSettings.model_validate({"strategy": strategy})


def unmarked(body: bytes) -> bytes:
    """A body of `odd` without what was put into it; what `odd` writes never looks like that."""
    return _ADDED.sub(b"", _WRAPPED.sub(rb"\1", body))
