"""Hypothesis strategies for conversations in the OpenAI format, from well-behaved to wild.

`conversations` generates what a correct agent would send, `wild_conversations` anything that a client could send:
broken pairing, odd types, huge and unprintable texts, leftovers of earlier compactions. Needs
``everlong[testing]``.

Examples are small and shrink well. Strategies are made once and kept, because making one costs more than drawing from
it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, SUMMARY_PREFIX
from everlong.model import Message, text_of

__all__ = [
    "arguments",
    "contents",
    "conversations",
    "messages",
    "texts",
    "tool_calls",
    "wild_conversations",
    "wild_messages",
]

_WORDS = (
    "fix the login test",
    "src/app/main.py",
    "def handler(event):\n    return event['id']",
    "ERROR 2024-05-01 12:00:00 connection refused (10.0.0.7:5432)",
    '{"status": "ok", "items": [1, 2, 3]}',
    "请修复登录页面的错误",
    "Привет, мир",
    "שלום עולם",
    "🚀👩‍👩‍👧‍👦",
    "line one\nline two\nline three",
    "decided to use SQLite because it needs no server",
)
_STRANGE = ("", " ", "\n\n", "\x00", "\ud800", "ok\udfffok", "\u202etxet", "## Goal\n- none", "<|im_end|>", "```")
_OLD_PREFIXES = (f"{SUMMARY_PREFIX}\n\n", "[CONTEXT COMPACTION] Earlier turns:\n", "[CONTEXT SUMMARY]: ")
_LEFTOVERS = (
    *(f"{prefix}## Goal\n- keep the tests green" for prefix in _OLD_PREFIXES),
    COMPACTION_NOTE,
    ACKNOWLEDGEMENT,
)
_PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_THINKING: dict[str, Any] = {"type": "thinking", "thinking": "Let me look at the file first.", "signature": "c2ln"}
_TOOLS = ("read_file", "terminal", "search", "write_file")
_HUGE = 1_000_000

_some = cache(st.sampled_from)
"""A strategy for one of a tuple's values."""
_whole = cache(st.integers)
"""A strategy for a whole number from one to another."""


@cache
def texts(max_chars: int = 20_000) -> st.SearchStrategy[str]:
    """Generate texts of every kind of up to about ``max_chars`` characters; long ones repeat a short one."""
    repeated = st.builds(_repeated, st.sampled_from(_WORDS), st.integers(1, 300) | st.integers(1, max_chars))
    return st.one_of(st.sampled_from(_WORDS), repeated, st.text(max_size=12))


def _repeated(unit: str, length: int) -> str:
    """Return a text of about so many characters, in lines of one unit."""
    return f"{unit}\n" * (length // (len(unit) + 1) + 1)


@cache
def arguments() -> st.SearchStrategy[str]:
    """Generate the JSON text of a call's arguments."""
    names = st.sampled_from(("path", "command", "query"))
    return st.dictionaries(names, texts(200) | st.integers(), max_size=2).map(
        lambda value: json.dumps(value, ensure_ascii=False)
    )


@cache
def tool_calls() -> st.SearchStrategy[dict[str, Any]]:
    """Generate calls of a function; the caller replaces the id if it must match a result."""
    body = st.fixed_dictionaries({"name": st.sampled_from(_TOOLS), "arguments": arguments()})
    return body.map(lambda value: {"id": "call_0", "type": "function", "function": value})


@cache
def contents() -> st.SearchStrategy[str | list[dict[str, Any]]]:
    """Generate content as a string or as parts, pictures among them."""
    part = texts().map(_text_part) | st.just(_PICTURE)
    return st.one_of(texts(), texts(), st.lists(part, min_size=1, max_size=3))


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@cache
def messages(role: str) -> st.SearchStrategy[Message]:
    """Generate messages of one role, without calls; an assistant's may carry its thinking."""
    content: st.SearchStrategy[Any] = contents() if role == "user" else texts()
    plain: st.SearchStrategy[Message] = st.fixed_dictionaries({"role": st.just(role), "content": content})
    if role != "assistant":
        return plain
    with_field = st.builds(lambda message, thought: {**message, "reasoning_content": thought}, plain, texts(500))
    with_part = plain.map(lambda message: {**message, "content": [_THINKING, _text_part(message["content"])]})
    return st.one_of(plain, plain, with_field, with_part)


def _step(draw: st.DrawFn, number: int) -> list[Message]:
    """Generate an assistant message with up to four parallel calls and their results in any order."""
    count = draw(_whole(0, 4))
    assistant = dict(draw(messages("assistant")))
    if not count:
        return [assistant]
    calls = [{**draw(tool_calls()), "id": f"call_{number}_{place}"} for place in range(count)]
    assistant["tool_calls"] = calls
    if draw(_some((False, True))):
        assistant["content"] = None
    results: list[Message] = [{"role": "tool", "tool_call_id": call["id"], "content": draw(texts())} for call in calls]
    turned = draw(_whole(0, count - 1))
    return [assistant, *results[turned:], *results[:turned]]


@st.composite
def _conversations(draw: st.DrawFn, max_turns: int) -> list[Message]:
    conversation: list[Message] = [draw(messages("system"))] if draw(_some((True, False))) else []
    for number in range(draw(_whole(1, max_turns))):
        kind = draw(_some(("ask", "step", "step", "step", "instruct")))
        if number == 0 or kind == "ask":
            conversation.append(draw(messages("user")))
        elif kind == "instruct":
            conversation.append({"role": "developer", "content": draw(texts(300))})
        conversation.extend(_step(draw, number))
    return conversation


@cache
def conversations(max_turns: int = 9) -> st.SearchStrategy[list[Message]]:
    """Generate well-formed agent conversations: every call answered, roles in order."""
    return _conversations(max_turns)


# -- anything that a client could send ---------------------------------------------------------------------------------

_IDS: tuple[Any, ...] = ("a", "b", "c", "", None)


@cache
def _wild_texts() -> st.SearchStrategy[str]:
    surrogates = st.text(st.characters(), max_size=8)
    huge = st.builds(_repeated, st.sampled_from(_WORDS), st.sampled_from((_HUGE // 10, _HUGE)))
    return st.one_of(texts(), texts(), texts(), st.sampled_from((*_STRANGE, *_LEFTOVERS)), surrogates | huge)


@cache
def _wild_contents() -> st.SearchStrategy[Any]:
    text = _wild_texts()
    part = st.one_of(
        text.map(_text_part),
        text.map(lambda value: {**_text_part(value), "cache_control": {"type": "ephemeral"}}),
        st.sampled_from((_PICTURE, _THINKING, {"type": "text"}, {}, {"type": "input_audio", "input_audio": {}})),
        text,
    )
    return st.one_of(text, text, st.none(), st.lists(part, max_size=3))


@cache
def _wild_calls() -> st.SearchStrategy[dict[str, Any]]:
    deep = st.integers(1, 5_000).map(lambda depth: "[" * depth + "]" * depth)
    odd: st.SearchStrategy[Any] = st.sampled_from(("{broken", "", None, {"path": "a.py"}, {"a": {"b": []}}, ["x"]))
    names = st.sampled_from((*_TOOLS, "", None))
    ids = st.sampled_from(_IDS)
    body = st.fixed_dictionaries({"name": names, "arguments": st.one_of(arguments(), odd, deep, _wild_texts())})
    function = st.fixed_dictionaries({"id": ids, "type": st.just("function"), "function": body})
    custom_body = st.fixed_dictionaries({"name": names, "input": texts(200)})
    custom = st.fixed_dictionaries({"id": ids, "type": st.just("custom"), "custom": custom_body})
    bare = st.fixed_dictionaries({"id": ids, "function": st.none()})
    return st.one_of(function, function, function, custom, bare)


@cache
def _carried(role: str) -> st.SearchStrategy[Message]:
    """Generate what a message of a role may have besides its content."""
    if role == "assistant":
        calls = st.lists(_wild_calls(), min_size=1, max_size=4).map(lambda value: {"tool_calls": value})
        legacy = arguments().map(lambda value: {"function_call": {"name": "search", "arguments": value}})
        thinks = texts(500).map(lambda value: {"reasoning_content": value})
        return st.one_of(
            calls, calls, calls, st.sampled_from(({}, {"tool_calls": []}, {"tool_calls": None})), legacy, thinks
        )
    if role == "tool":
        return st.sampled_from((*({"tool_call_id": call_id} for call_id in _IDS), {}))
    return st.just({"name": "search"} if role == "function" else {})


@cache
def wild_messages() -> st.SearchStrategy[Message]:
    """Generate any one message, with the oddities of real clients."""
    extras: tuple[Message, ...] = (
        {},
        {},
        {},
        {"cache_control": {"type": "ephemeral"}},
        {"x_client": {"seen": [1, None]}},
    )

    def of(role: str) -> st.SearchStrategy[Message]:
        content: st.SearchStrategy[Message] = _wild_contents().map(lambda value: {"content": value}) | st.just({})
        return st.builds(
            lambda *parts: {key: value for part in parts for key, value in part.items()},
            st.just({"role": role}),
            content,
            _carried(role),
            st.sampled_from(extras),
        )

    common = [of(role) for role in ("user", "assistant", "tool")]
    return st.one_of(*common, *common, *(of(role) for role in ("system", "developer", "function")))


@cache
def _tangled() -> st.SearchStrategy[list[Message]]:
    """Generate calls and results that share a few ids in every wrong order, with little in between."""
    ids = st.sampled_from(_IDS)
    body = {"name": "read_file", "arguments": "{}"}
    call = ids.map(lambda call_id: {"id": call_id, "type": "function", "function": body})
    calls = st.lists(call, min_size=1, max_size=4)
    asks = st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | texts(300), "tool_calls": calls})
    result = st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": ids, "content": texts(2_000)})
    talk = st.sampled_from(("user", "assistant", "system")).flatmap(messages)
    return st.lists(st.one_of(asks, result, result, talk), max_size=24)


@st.composite
def _damaged(draw: st.DrawFn) -> list[Message]:
    """Generate a well-formed conversation with messages dropped, repeated, moved and inserted."""
    conversation = draw(conversations())
    for _ in range(draw(_whole(0, 6))):
        if not conversation:
            break
        place = draw(_whole(0, len(conversation) - 1))
        damage = draw(_some(("drop", "repeat", "move", "insert", "cut")))
        if damage == "drop":
            del conversation[place]
        elif damage == "repeat":
            conversation.insert(draw(_whole(0, len(conversation))), dict(conversation[place]))
        elif damage == "move":
            conversation.insert(draw(_whole(0, len(conversation) - 1)), conversation.pop(place))
        elif damage == "insert":
            conversation.insert(place, draw(wild_messages()))
        else:
            conversation = conversation[: place + 1]
    return conversation


@cache
def _summaries() -> st.SearchStrategy[Message]:
    body = texts(2_000) | st.sampled_from(("## Goal\n- ship it\n\n## Next Steps\n- run the tests", "", "no headings"))
    content = st.tuples(st.sampled_from(_OLD_PREFIXES), body).map("".join)
    return st.builds(lambda role, text: {"role": role, "content": text}, _some(("user", "assistant")), content)


@st.composite
def _compacted(draw: st.DrawFn) -> list[Message]:
    """Generate a conversation that an earlier compaction, of this version or an older one, has changed."""
    conversation = draw(_any_pairing())
    if conversation and conversation[0]["role"] == "system" and draw(_some((False, True))):
        blocks = [_text_part(text_of(conversation[0])), _text_part(COMPACTION_NOTE)]
        conversation[0] = {**conversation[0], "content": blocks}
    for _ in range(draw(_whole(1, 2))):
        place = draw(_whole(0, len(conversation)))
        acknowledged: list[Message] = [{"role": "assistant", "content": ACKNOWLEDGEMENT}]
        conversation[place:place] = [draw(_summaries()), *(acknowledged if draw(_some((False, True))) else [])]
    return conversation


@cache
def _any_pairing() -> st.SearchStrategy[list[Message]]:
    return conversations() | _damaged()


@cache
def wild_conversations() -> st.SearchStrategy[list[Message]]:
    """Generate any list that a client could send; only its outer shape need make sense."""
    anything = st.lists(wild_messages(), max_size=24)
    return st.one_of(anything, anything, _tangled(), _damaged(), _compacted(), conversations())
