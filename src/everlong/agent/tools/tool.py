"""A tool: its schema for the model, its work, and its calls in words for the person who approves them.

`everlong.agent.tools.signature` makes tools from functions; `Tool.from_schema` takes those of an engine or a memory
provider.
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
"""The effect of a call: it changes nothing, files, or anything. Calls that change something need an approval."""

Arguments: TypeAlias = dict[str, Any]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a call: its text, pictures as content parts, and whether it failed."""

    text: str
    images: Sequence[Part] = ()
    is_error: bool = False


def _unchecked(args: Arguments) -> Arguments:
    return args


@dataclass(frozen=True)
class Tool:
    """A function that a model can call."""

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
    """Returns whether a call may go ahead without approval, though the tool changes something."""
    pinner: Callable[[Arguments, ToolContext], Arguments] | None = None
    """Replaces names by what they stand for now, so that exactly what was approved is done."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"a tool cannot be called {self.name!r}: providers take 1 to 64 letters, digits, '_' and '-'"
            )

    @classmethod
    def from_schema(
        cls, schema: Mapping[str, Any], handler: Callable[[str, Arguments], str], effect: Effect = "reads"
    ) -> Tool:
        """Return the tool of a schema in any of the usual forms, as engines and memory providers have it."""
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
        """The tool in OpenAI's format."""
        body = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": body}

    def check(self, args: Arguments) -> Arguments:
        """Return the arguments with defaults and the right types; raises `ToolError` where they are wrong."""
        return self.checker(args)

    def pin(self, args: Arguments, context: ToolContext) -> Arguments:
        """Return the arguments with the real paths of files in them, links followed."""
        return self.pinner(args, context) if self.pinner is not None else args

    def invoke(self, args: Arguments, context: ToolContext) -> str | ToolOutput:
        """Check the arguments and do the work."""
        return as_output(self.handler(self.check(args), context))

    def describe(self, args: Arguments) -> str:
        """Return a call in one line for people; never fails, whatever the arguments are."""
        try:
            words = self.describer(args) if self.describer else f"{self.name} {_first_value(args)}"
        except (LookupError, TypeError, ValueError, AttributeError):  # arguments that nobody has checked
            words = f"{self.name} {_first_value(args)}"
        return one_line(words)

    def approval_key(self, args: Arguments) -> str:
        """Return the key under which an approval for the session is remembered."""
        return f"{self.name}:{self.keyer(args)}" if self.keyer else self.name

    def preview(self, args: Arguments, context: ToolContext) -> str:
        """Return what the call would do, such as a diff or a command; raises `ToolError` where it would fail."""
        if self.previewer is not None:
            return self.previewer(args, context)
        return json.dumps(args, ensure_ascii=False, indent=2, default=str)


def as_output(value: Any) -> str | ToolOutput:
    """Return the value of a handler as text or output; other values become JSON."""
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
