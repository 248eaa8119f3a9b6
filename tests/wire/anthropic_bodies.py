"""Hypothesis strategies for request bodies in the Anthropic format, as clients send them."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

Blocks: TypeAlias = st.SearchStrategy[dict[str, Any]]

WORDS = st.sampled_from(
    ["Run the tests.", "src/app.py", "请修复", "a\nb", "<system-reminder>late</system-reminder>", "ok "]
)
TEXTS: st.SearchStrategy[Any] = WORDS | st.text(st.characters(exclude_categories=()), min_size=1, max_size=4)
MARKER: Blocks = st.sampled_from(
    [{}, {}, {"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "x", "ttl": "1h"}}]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=2,
)


def marked(block: Blocks) -> Blocks:
    return st.builds(lambda value, marker: {**value, **marker}, block, MARKER)


TEXT = marked(st.builds(lambda text: {"type": "text", "text": text}, TEXTS))
IMAGE = marked(
    st.sampled_from(
        [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png?b=1,2"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        ]
    )
)
DOCUMENT = marked(
    st.sampled_from(
        [
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
            {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}},
            {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
        ]
    )
)
THINKING: Blocks = st.sampled_from(
    [
        {"type": "thinking", "thinking": "First look,  then act.\n", "signature": "c2lnbmF0dXJl+/="},
        {"type": "thinking", "thinking": "", "signature": "b25seQ=="},
        {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"},
    ]
)
SERVER: Blocks = st.sampled_from(
    [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
    ]
)
EMPTY: Blocks = st.sampled_from([{}, {"content": ""}, {"content": []}])
FAILED: Blocks = st.sampled_from([{}, {"is_error": False}, {"is_error": True}])
CALLER: Blocks = st.sampled_from([{}, {"caller": {"type": "direct"}}])
SYSTEM = st.sampled_from(["", "Be brief."]) | st.lists(TEXT, max_size=3)


# Made once, because making a strategy costs more than drawing from it.
RESULT_CONTENT: Blocks = EMPTY | st.builds(
    lambda value: {"content": value}, TEXTS | st.lists(TEXT | IMAGE | DOCUMENT, min_size=1, max_size=2)
)
THOUGHTS, WORDS_SAID = st.lists(THINKING, max_size=2), st.lists(TEXT | SERVER, max_size=2)
LATE, AFTER = st.lists(TEXT | THINKING, max_size=1), st.lists(TEXT | IMAGE, max_size=2)
INPUT = st.dictionaries(TEXTS, JSON, max_size=2)
ASKED = TEXTS | st.lists(TEXT | IMAGE | DOCUMENT, max_size=3)
INSTRUCTED = TEXTS | st.lists(TEXT, min_size=1, max_size=2)
KIND = st.sampled_from(["ask", "step", "step", "instruct"])
CHOICE, CALLS, TURNS = st.booleans(), st.integers(0, 3), st.integers(0, 4)


def _result(draw: st.DrawFn, call_id: str) -> dict[str, Any]:
    return {"tool_use_id": call_id, "type": "tool_result", **draw(RESULT_CONTENT), **draw(FAILED), **draw(MARKER)}


def _step(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = draw(THOUGHTS) + draw(WORDS_SAID)
    ids = [f"toolu_{number}_{place}" for place in range(draw(CALLS))]
    for call_id in ids:
        use = {"type": "tool_use", "id": call_id, "name": "read", "input": draw(INPUT)}
        blocks += [{**use, **draw(CALLER), **draw(MARKER)}, *draw(LATE)]
    if not ids:
        return [{"role": "assistant", "content": blocks or draw(TEXTS)}]
    results = [_result(draw, call_id) for call_id in ids]
    groups = [[*results, *draw(AFTER)]]
    if len(ids) > 1 and draw(CHOICE):
        groups = [results[:1], groups[0][1:]]
    return [{"role": "assistant", "content": blocks}, *({"role": "user", "content": group} for group in groups)]


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A body that the API takes."""
    messages: list[dict[str, Any]] = []
    for number in range(draw(TURNS)):
        kind = draw(KIND)
        if number == 0 or kind == "ask":
            messages.append({"role": "user", "content": draw(ASKED)})
        elif kind == "instruct":
            messages.append({"role": "system", "content": draw(INSTRUCTED)})
        messages += _step(draw, number)
    body = {"model": "m", "messages": messages, "tools": [{"name": "read", "input_schema": {"type": "object"}}]}
    return {**body, "system": draw(SYSTEM)} if draw(CHOICE) else body
