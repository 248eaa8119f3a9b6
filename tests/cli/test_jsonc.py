"""JSON of clients, changed in one place; what is no JSON is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from everlong.cli.clients.formats import parse_json, remove_json, set_json
from tests.examples import examples

NAMES = st.text(alphabet='ab"\\/{}[],: é', min_size=1, max_size=4)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(alphabet='x"\\/*, \n', max_size=6))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3))
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def wanted(values: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    return {**values, path[0]: wanted(values.get(path[0], {}), path[1:], value)}


@settings(max_examples=examples(150), deadline=None)
@given(OBJECTS, st.lists(NAMES, min_size=1, max_size=3), VALUES, st.sampled_from([None, 2, "\t"]))
def test_setting_a_value_changes_only_that_value(values: Any, path: list[str], value: Any, indent: Any) -> None:
    text = json.dumps(values, indent=indent)
    assert parse_json(text) == values
    inner: Any = values
    for name in path[:-1]:
        inner = inner.get(name, {})
        if not isinstance(inner, dict):
            with pytest.raises(ValueError, match="is no object"):
                set_json(text, path, value)
            return
    fresh = set_json(text, path, value)
    assert json.loads(fresh) == wanted(values, path, value)
    if path[-1] not in inner and path[0] not in values:
        assert json.loads(remove_json(fresh, path[:1])) == values


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a" 1}', 1),
        ('{\n"a": 1\n"b": 2}', 3),
        ('{"a": tru}', 1),
        ('{"a": "x\n"}', 1),
        ("[1 2]", 1),
        ("{", 1),
        ('{"a": 1} x', 1),
        ("/* no end", 1),
        ("[" * 300, 1),
    ],
)
def test_what_is_no_json_is_an_error_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ValueError, match=f"^line {line}: "):
        parse_json(text)
