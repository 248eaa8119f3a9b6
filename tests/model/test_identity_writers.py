"""The quick way to write what identifies a block gives the same bytes as the standard library does."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from everlong.model import HashChain, Message
from everlong.model.identity import _canonical, _clean

TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["\x00\x1f\x7f\b\f", "“é”", "\u2028", "𝔘"])
VALUES = st.recursive(
    TEXT | st.booleans() | st.none() | st.integers() | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.sampled_from(["index", "_x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_both_writers_agree(value: object) -> None:
    told = json.dumps(_clean(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    assert _canonical(value) == told.encode("utf-8", "surrogatepass")


@given(VALUES)
def test_arguments_are_the_same_as_text_and_as_a_value(value: object) -> None:
    def call(arguments: object) -> Message:
        function = {"name": "tool", "arguments": arguments}
        return {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}

    chain = HashChain()
    assert chain.nodes([call(json.dumps(value))]) == chain.nodes(
        [call(json.dumps(value, ensure_ascii=False, indent=1))]
    )
