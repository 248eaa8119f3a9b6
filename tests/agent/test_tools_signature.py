"""Tools from functions and schemas: what a model is told, what it may send, what is refused when a tool is made."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from everlong.agent.tools import Tool, ToolContext, builtin_tools, tool
from everlong.errors import ConfigError
from tests.agent.desk import Desk


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Berth(BaseModel):
    number: int
    title: str = "none"


def moor(
    ship: str,
    berth: Berth,
    context: ToolContext,
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] = "slow",
    lines: list[int] | None = None,
    speed: Annotated[float, Field(gt=0)] = 1.0,
) -> str:
    """Moor a ship at a berth.

    It takes
    a while.

    - bow first
    - stern last

    Args:
        ship: Which ship.
        berth (Berth): Where; must be free,
            and deep enough.
        mode: How.

    Returns:
        What the model need not know.
    """
    return f"{ship} {berth.number} {colour} {mode} {lines} {speed} {context.session_id!r}"


def test_the_schema_has_all_that_the_signature_says_and_nothing_else() -> None:
    body = tool(moor).schema["function"]
    assert body["name"] == "moor"
    assert body["description"] == "Moor a ship at a berth.\nIt takes a while.\n- bow first\n- stern last"
    assert body["parameters"] == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "ship": {"type": "string", "description": "Which ship."},
            "berth": {
                "type": "object",
                "description": "Where; must be free, and deep enough.",
                "properties": {"number": {"type": "integer"}, "title": {"type": "string", "default": "none"}},
                "required": ["number"],
            },
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow", "description": "How."},
            "lines": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}], "default": None},
            "speed": {"type": "number", "exclusiveMinimum": 0, "default": 1.0},
        },
        "required": ["ship", "berth"],
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ship": "Mia"}, "- 'berth' is missing"),
        ({"ship": 5, "berth": {"number": 1}}, "- 'ship' is 5: it must be a valid string"),
        ({"ship": "Mia", "berth": {"number": "x"}}, "- 'berth.number' is \"x\": it must be a valid integer"),
        ({"ship": "Mia", "berth": {"number": 1}, "mode": "odd"}, "- 'mode' is \"odd\": it must be 'fast' or 'slow'"),
        ({"ship": "Mia", "berth": {"number": 1}, "speed": 0}, "- 'speed' is 0: it must be greater than 0"),
        (
            {"ship": "Mia", "berth": {"number": 1}, "context": {}},
            "- 'context' is not known; allowed are: ship, berth, colour, mode, lines, speed",
        ),
    ],
)
def test_wrong_arguments_are_named_with_their_value_and_what_is_wanted(
    desk: Desk, arguments: dict[str, Any], sentence: str
) -> None:
    said = desk.with_tools([tool(moor)]).failed("moor", **arguments)
    assert said.startswith("The arguments of moor are wrong, so nothing was done:\n")
    assert sentence in said


def untyped(ship) -> str:  # type: ignore[no-untyped-def]
    return str(ship)


def many(*ships: str) -> str:
    return str(ships)


def placed(ship: str, /) -> str:
    return ship


async def later(ship: str) -> str:
    return ship


def strange(ship: Desk) -> str:
    return str(ship)


def lost(ship: Nowhere) -> str:  # type: ignore[name-defined] # noqa: F821 - that is the point
    return str(ship)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (untyped, "'ship' of the tool 'untyped' has no annotation; say its type"),
        (many, r"'\*ships: str', which a model cannot give by name"),
        (placed, "which a model cannot give by name"),
        (later, "is an async function"),
        (strange, "has a type that JSON cannot hold"),
        (lost, "name 'Nowhere', which its module does not have"),
        (lambda: "", "cannot be called '<lambda>'"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused_when_the_tool_is_made(
    function: Callable[..., Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        tool(function)


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
