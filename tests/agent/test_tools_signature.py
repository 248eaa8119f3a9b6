"""Tools from functions and schemas: what a model is told, what it may send, what is refused when a tool is made."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from everlong.agent.tools import Tool, ToolContext, tool
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


def test_schemas_are_the_same_bytes_on_every_run() -> None:
    code = """
import json
from everlong.agent.tools import Toolbox, builtin_tools
print(json.dumps(Toolbox(builtin_tools()).schemas()))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    (one,) = said
    assert len(json.loads(one)) == 11


def test_arguments_arrive_with_their_types_and_defaults_and_the_context_is_handed_in(desk: Desk) -> None:
    desk.with_tools([tool(moor)])
    text = desk.done("moor", ship="Mia", berth={"number": "7"}, colour="blue", lines=[1, 2])
    assert text == "Mia 7 Colour.BLUE slow [1, 2] 1.0 ''"


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


PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "function", "function": {"name": "grep", "description": "Find.", "parameters": PARAMETERS}},
        {"name": "grep", "description": "Find.", "parameters": PARAMETERS},
        {"name": "grep", "description": "Find.", "input_schema": PARAMETERS},
    ],
    ids=["openai", "bare", "anthropic"],
)
def test_a_schema_in_any_usual_form_is_a_tool(desk: Desk, schema: dict[str, Any]) -> None:
    made = Tool.from_schema(schema, lambda name, args: f"{name}: {args['query']}")
    assert made.schema["function"] == {"name": "grep", "description": "Find.", "parameters": PARAMETERS}
    desk.with_tools([made])
    assert desk.done("grep", query="port") == "grep: port"
    assert desk.failed("grep") == "'query' missing; grep needs query"


@pytest.mark.parametrize("arguments", ["", "{", "[]", '"x"', '{"command": 5}', '{"command": null}', '{"other": 1}'])
def test_a_call_can_be_described_whatever_is_wrong_with_it(desk: Desk, arguments: str) -> None:
    from everlong.model import ToolCall  # noqa: PLC0415

    for one in [*desk.toolbox, "nonsense"]:
        name = one if isinstance(one, str) else one.name
        assert desk.toolbox.describe(ToolCall("c", name, arguments)).startswith(name)


def test_a_function_that_is_defined_again_is_read_once_and_keeps_its_own_work(desk: Desk) -> None:
    def for_place(place: str) -> Tool:
        def whisper(text: str) -> str:
            """Say something quietly."""
            return f"{place}: {text}"

        return tool(whisper)

    here, there = for_place("here"), for_place("there")
    assert here.checker is there.checker
    assert [one.handler({"text": "psst"}, desk.context) for one in (here, there)] == ["here: psst", "there: psst"]
