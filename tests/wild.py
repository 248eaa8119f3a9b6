"""Hypothesis strategies for anything that a client could send: broken pairing, odd types, huge and unprintable texts,
leftovers of earlier compactions. `everlong.testing.strategies` has what a correct agent would send.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, SUMMARY_PREFIX
from everlong.model import Message, text_of
from everlong.testing.strategies import arguments, conversations, messages, texts

_PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_THINKING: dict[str, Any] = {"type": "thinking", "thinking": "Let me look at the file first.", "signature": "c2ln"}
_TOOLS = ("read_file", "terminal", "search", "write_file")
_HUGE = 1_000_000
_LINE = "ERROR 2024-05-01 12:00:00 connection refused (10.0.0.7:5432)\n"
_STRANGE = ("", " ", "\n\n", "\x00", "\ud800", "ok\udfffok", "\u202etxet", "## Goal\n- none", "<|im_end|>", "```")
_OLD_PREFIXES = (f"{SUMMARY_PREFIX}\n\n", "[CONTEXT COMPACTION] Earlier turns:\n", "[CONTEXT SUMMARY]: ")
_LEFTOVERS = (
    *(f"{prefix}## Goal\n- keep the tests green" for prefix in _OLD_PREFIXES),
    COMPACTION_NOTE,
    ACKNOWLEDGEMENT,
)

_some = cache(st.sampled_from)
_whole = cache(st.integers)


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_IDS: tuple[Any, ...] = ("a", "b", "c", "", None)


@cache
def _wild_texts() -> st.SearchStrategy[str]:
    surrogates = st.text(st.characters(), max_size=8)
    huge = st.sampled_from((_HUGE // 10, _HUGE)).map(lambda size: _LINE * (size // len(_LINE)))
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
