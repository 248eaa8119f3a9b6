"""JSON of clients, changed in one place; what is no JSON is an error."""

from __future__ import annotations

import json

import pytest

from everlong.cli.clients.formats import parse_json, remove_json, set_json


def test_setting_a_value_keeps_the_others_the_indent_and_the_line_ends() -> None:
    text = '{\r\n\t"a": [1, 2],\r\n\t"é": {"x": null}\r\n}'
    fresh = set_json(text, ["é", "y", "z"], "new")
    assert json.loads(fresh) == {"a": [1, 2], "é": {"x": None, "y": {"z": "new"}}}
    assert fresh.startswith('{\r\n\t"a": [')
    assert json.loads(remove_json(fresh, ["é", "y"])) == json.loads(text)
    with pytest.raises(ValueError, match="is no object"):
        set_json(text, ["a", "b"], 1)


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
