"""Every tool, every parameter and every exported name is in docs/tools.md, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everlong.agent.tools
from everlong.agent.tools import Tool, builtin_tools

DOCS = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("one", builtin_tools(), ids=lambda one: one.name)
def test_every_built_in_tool_is_documented_with_its_parameters_and_told_to_the_model(one: Tool) -> None:
    found = re.search(rf"^### {one.name}\n\n(.*?)(?=^##)", DOCS, re.MULTILINE | re.DOTALL)
    assert found, f"{one.name} is missing"
    assert [name for name in one.parameters["properties"] if f"`{name}`" not in found[1]] == []
    assert ("Asks first." in found[1]) == (one.effect != "reads")
    assert one.description
    assert [name for name, schema in one.parameters["properties"].items() if not schema.get("description")] == []


def test_no_tool_is_documented_that_there_is_not() -> None:
    section = DOCS.partition("## Built in")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)", section, re.MULTILINE) == [one.name for one in builtin_tools()]


def test_every_exported_name_is_documented() -> None:
    names = [*everlong.agent.tools.__all__, "Approvals", "ApprovalRequest", "ApprovalRefused", "Decision"]
    assert [name for name in names if not re.search(rf"`{name}\b", DOCS)] == []


def test_the_example_of_a_tool_is_one() -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "def moor" in block)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "docs/tools.md", "exec"), names)  # noqa: S102 - our own example
    made = names["moor"]
    assert isinstance(made, Tool)
    assert list(made.parameters["properties"]) == ["ship", "berth", "side"]
    assert made.effect == "writes"
