"""A tool: what a model is told of it, what it does, and how a call of it is put to a person.

`everlong.agent.tools.signature` makes tools from functions; `Tool.from_schema` takes those of an engine or a memory
provider. A tool does not know who calls it, nor whether the call was approved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from everlong.agent.text import one_line
from everlong.errors import ConfigError, ToolError
from everlong.model import Part

if TYPE_CHECKING:
    from everlong.agent.tools.context import ToolContext

Effect = Literal["reads", "writes", "runs"]
"""What a call may change: nothing, files, or anything. Only calls that change something need an approval."""

Arguments: TypeAlias = dict[str, Any]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gave: its text, pictures as content parts, and whether it tells of a failure."""

    text: str
    images: Sequence[Part] = ()
    is_error: bool = False


def _unchecked(args: Arguments) -> Arguments:
    return args


@dataclass(frozen=True)
class Tool:
    """Something that a model can call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema of the arguments."""
    effect: Effect
    handler: Callable[[Arguments, ToolContext], Any]
    """Does the work; takes arguments that `check` has passed."""
    checker: Callable[[Arguments], Arguments] = _unchecked
    describer: Callable[[Arguments], str] | None = None
    keyer: Callable[[Arguments], str] | None = None
    previewer: Callable[[Arguments, ToolContext], str] | None = None
    is_free: Callable[[Arguments, ToolContext], bool] | None = None
    """Whether a call may go ahead unasked, though the tool changes something."""
    pinner: Callable[[Arguments, ToolContext], Arguments] | None = None
    """Puts what names stand for now in their place, so that what is approved is what is done."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"a tool cannot be called {self.name!r}: providers take 1 to 64 letters, digits, '_' and '-'"
            )

    @classmethod
    def from_schema(
        cls, schema: Mapping[str, Any], handler: Callable[[str, Arguments], str], effect: Effect = "reads"
    ) -> Tool:
        """A tool that is given as a schema, as context engines and memory providers do, in any of the usual forms."""
        body = schema.get("function")
        body = body if isinstance(body, Mapping) else schema
        parameters = body.get("parameters", body.get("input_schema"))
        name = str(body.get("name") or "")
        if parameters is None:
            parameters = {"type": "object", "properties": {}}
        if not isinstance(parameters, Mapping):
            raise ConfigError(f"the parameters of the tool {name!r} must be a JSON schema, got {parameters!r}")
        required = [str(one) for one in parameters.get("required") or ()]

        def check(args: Arguments) -> Arguments:
            if missing := [key for key in required if key not in args]:
                raise ToolError(f"{', '.join(map(repr, missing))} missing; {name} needs {', '.join(required)}")
            return args

        return cls(
            name=name,
            description=str(body.get("description") or ""),
            parameters=dict(parameters),
            effect=effect,
            handler=lambda args, _context: handler(name, args),
            checker=check,
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's format has it."""
        body = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": body}

    def check(self, args: Arguments) -> Arguments:
        """The arguments with their defaults, of the right types; a `ToolError` says what is wrong with them."""
        return self.checker(args)

    def pin(self, args: Arguments, context: ToolContext) -> Arguments:
        """The arguments with real names in them: those of the files that a call is about, links followed."""
        return self.pinner(args, context) if self.pinner is not None else args

    def invoke(self, args: Arguments, context: ToolContext) -> str | ToolOutput:
        """Check the arguments and do the work."""
        return as_output(self.handler(self.check(args), context))

    def describe(self, args: Arguments) -> str:
        """A call in one line, for people; never fails, whatever the arguments are."""
        try:
            words = self.describer(args) if self.describer else f"{self.name} {_first_value(args)}"
        except (LookupError, TypeError, ValueError, AttributeError):  # arguments that nobody has checked
            words = f"{self.name} {_first_value(args)}"
        return one_line(words)

    def approval_key(self, args: Arguments) -> str:
        """What a person approves for the session who approves this call: calls with the same key."""
        return f"{self.name}:{self.keyer(args)}" if self.keyer else self.name

    def preview(self, args: Arguments, context: ToolContext) -> str:
        """What the call would do, in full: a diff, a command; a `ToolError` where it cannot be done at all."""
        if self.previewer is not None:
            return self.previewer(args, context)
        return json.dumps(args, ensure_ascii=False, indent=2, default=str)


def as_output(value: Any) -> str | ToolOutput:
    """What a handler returned, as text or output; other values are written as JSON."""
    if isinstance(value, str | ToolOutput):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _first_value(args: Any) -> str:
    if not isinstance(args, dict) or not args:
        return ""
    value = next(iter(args.values()))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)[:2_000]
