"""A tool: its schema for the model, its work, and its calls in words for the person who approves them.

`tool` makes one from a function: the schema from the typed signature, the descriptions from the docstring, the same
bytes on every run. `Tool.from_schema` takes those of an engine or a memory provider.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from everlong.agent.text import one_line
from everlong.agent.tools.context import ToolContext
from everlong.errors import ConfigError, ToolError
from everlong.model import Part

if TYPE_CHECKING:
    from everlong.context import ContextEngine

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
    checker: Callable[[Arguments], Arguments] = lambda args: args
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


def engine_tools(
    engine: ContextEngine, warn: Callable[[str], None], call: Callable[[str, Arguments], str] | None = None
) -> list[Tool]:
    """Return the tools that an engine offers, answered by ``call``; leave out, with a warning, what is no tool."""
    found: list[Tool] = []
    for schema in engine.get_tool_schemas():
        try:
            found.append(Tool.from_schema(schema, call or engine.handle_tool_call))
        except ConfigError as error:
            warn(f"a tool of the engine {engine.name!r} is left out: {error}")
    return found


def without_clashes(
    tools: Iterable[Tool], taken: Iterable[Tool], whose: str, warn: Callable[[str], None]
) -> list[Tool]:
    """Return the tools whose names nobody has yet; warn about the others."""
    names = {one.name for one in taken}
    kept: list[Tool] = []
    for one in tools:
        if one.name in names:
            warn(f"{whose} tool {one.name!r} is left out, because there is another tool of that name")
        else:
            names.add(one.name)
            kept.append(one)
    return kept


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


# -- tools from functions ----------------------------------------------------------------------------------------------


@overload
def tool(function: Callable[..., Any], *, effect: Effect = ..., name: str | None = ...) -> Tool: ...


@overload
def tool(*, effect: Effect = ..., name: str | None = ...) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, *, effect: Effect = "reads", name: str | None = None
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, directly or as a decorator.

    A parameter annotated with `ToolContext` gets the context and is not part of the schema. Arguments are checked
    against the types before the function is called.

    Args:
        function: Typed parameters, a docstring in Google's style, a text (or anything JSON can hold) as its result.
        effect: What a call may change; ``writes`` and ``runs`` need an approval.
        name: What the model calls it; the function's own name if not given.
    """

    def make(function: Callable[..., Any]) -> Tool:
        called = str(name or getattr(function, "__name__", ""))
        about, words = _read_docstring(function)
        model, context_name = _model(function, called, words)

        def handle(args: Arguments, context: ToolContext) -> Any:
            return function(**args, **({context_name: context} if context_name is not None else {}))

        return Tool(called, about, _schema_of(model), effect, handle, _checker(model, called))

    return make if function is None else make(function)


_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|See Also|Warnings?):\s*$"
)
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the descriptions of the parameters."""
    lines = (inspect.getdoc(function) or "").splitlines()
    starts = [place for place, line in enumerate(lines) if _SECTION.match(line)]
    about = lines[: starts[0]] if starts else lines
    parameters: dict[str, str] = {}
    for start in starts:
        if lines[start].startswith(("Args", "Arguments", "Parameters")):
            parameters |= _parameters(lines[start + 1 :])
    return _unwrap(about), parameters


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    indent: int | None = None
    current: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = depth if indent is None else indent
        named = _PARAMETER.match(line.strip()) if depth <= indent else None
        if named:
            current = found.setdefault(named[1], [named[2]])
        else:
            current.append(line.strip())
    return {name: " ".join(text).strip() for name, text in found.items()}


def _unwrap(lines: list[str]) -> str:
    """Return each paragraph and each list item on one line."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            paragraphs.append([])
        elif line.lstrip().startswith(("- ", "* ")):
            paragraphs.append([line.strip()])
        else:
            paragraphs[-1].append(line.strip())
    return "\n".join(" ".join(paragraph) for paragraph in paragraphs if paragraph)


_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


def _model(function: Callable[..., Any], name: str, words: Mapping[str, str]) -> tuple[type[BaseModel], str | None]:
    """Return a pydantic model of the parameters, and the name of the one that takes the context."""
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"the tool {name!r} is an async function; tools are synchronous: wrap it in one that waits")
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise ConfigError(
            f"the annotations of the tool {name!r} name {error.name!r}, which its module does not have; import it there"
        ) from error
    fields: dict[str, Any] = {}
    context_name: str | None = None
    for parameter in signature.parameters.values():
        if parameter.annotation is ToolContext:
            context_name = parameter.name
            continue
        if parameter.kind in _UNNAMED:
            raise ConfigError(
                f"the tool {name!r} has the parameter {str(parameter)!r}, which a model cannot give by name; "
                "use plain parameters with annotations"
            )
        if parameter.annotation is inspect.Parameter.empty:
            raise ConfigError(
                f"the parameter {parameter.name!r} of the tool {name!r} has no annotation; say its type, such as str"
            )
        about: dict[str, Any] = {"description": words[parameter.name]} if parameter.name in words else {}
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        # Under other names, because a parameter called `schema` or `_x` would clash with a model's attributes.
        field: Any = Field(default, alias=parameter.name, **about)
        fields[f"arg_{len(fields)}"] = (parameter.annotation, field)
    try:
        return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields), context_name
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise ConfigError(f"the tool {name!r} has a type that JSON cannot hold: {one_line(str(error))}") from error


def _checker(model: type[BaseModel], name: str) -> Callable[[Arguments], Arguments]:
    aliases = {field: str(info.alias) for field, info in model.model_fields.items()}

    def check(args: Arguments) -> Arguments:
        try:
            checked = model.model_validate(args)
        except ValidationError as error:
            problems = [_problem(dict(one), list(aliases.values())) for one in error.errors(include_url=False)]
            raise ToolError(
                "\n".join([f"The arguments of {name} are wrong, so nothing was done:", *problems])
            ) from error
        return {alias: getattr(checked, field) for field, alias in aliases.items()}

    return check


def _problem(error: dict[str, Any], known: Sequence[str]) -> str:
    where = ".".join(str(step) for step in error["loc"]) or "the arguments"
    if error["type"] == "missing":
        return f"- {where!r} is missing"
    if error["type"] == "extra_forbidden":
        allowed = ", ".join(known) if len(error["loc"]) == 1 else "described in the schema"
        return f"- {where!r} is not known; allowed are: {allowed or 'none'}"
    said = str(error["msg"]).replace("Input should be", "it must be")
    try:
        value = json.dumps(error["input"], ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        value = repr(error["input"])
    return f"- {where!r} is {one_line(value, 80)}: {said}"


class _PlainSchema(GenerateJsonSchema):
    """A JSON schema without titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False."""
        del schema
        return False


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the model's schema; nested models are inlined unless one contains itself."""
    whole = model.model_json_schema(schema_generator=_PlainSchema)
    named = whole.pop("$defs", {})
    try:
        inlined = _inline(whole, named)
    except RecursionError:
        inlined = {**whole, "$defs": named}
    kept = {key: value for key, value in inlined.items() if key not in {"type", "title", "description"}}
    return {"type": "object", "properties": {}, **kept}


def _inline(node: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, named) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        about = {key: value for key, value in named[node["$ref"].rpartition("/")[2]].items() if key != "title"}
        node = {**about, **{key: value for key, value in node.items() if key != "$ref"}}
    return {key: _inline(value, named) for key, value in node.items()}
