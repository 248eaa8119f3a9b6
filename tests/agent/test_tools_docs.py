"""Every tool is in docs/tools.md, every parameter has a description, and the example of the page is a tool."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everlong.agent.tools import Tool, builtin_tools

DOCS = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("one", builtin_tools(), ids=lambda one: one.name)
def test_every_tool_and_parameter_is_told_to_the_model(one: Tool) -> None:
    assert one.description
    assert [name for name, schema in one.parameters["properties"].items() if not schema.get("description")] == []


def test_the_page_lists_the_tools_and_which_of_them_ask_first() -> None:
    listed = re.findall(r"^\| `(\w+)` \|.*\| (yes|no) \|$", DOCS, re.MULTILINE)
    assert listed == [(one.name, "no" if one.effect == "reads" else "yes") for one in builtin_tools()]


def test_the_example_of_a_tool_is_one() -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "def moor" in block)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "docs/tools.md", "exec"), names)  # noqa: S102 - our own example
    made = names["moor"]
    assert isinstance(made, Tool)
    assert list(made.parameters["properties"]) == ["ship", "berth", "side"]
    assert made.effect == "writes"
