"""Tools made from functions: the schema from the typed signature, the descriptions from the docstring.

The schema is the same, byte for byte, on every run. Arguments are checked against the types before the function is
called. A parameter annotated with `ToolContext` gets the context, and is not part of the schema.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from everlong.agent.text import one_line
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.tool import Arguments, Effect, Tool
from everlong.errors import ConfigError, ToolError

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|See Also|Warnings?):\s*$"
)
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
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


@overload
def tool(
    function: Callable[..., Any],
    *,
    effect: Effect = ...,
    name: str | None = ...,
    describe: Callable[[Arguments], str] | None = ...,
    approval_key: Callable[[Arguments], str] | None = ...,
    preview: Callable[[Arguments, ToolContext], str] | None = ...,
) -> Tool: ...


@overload
def tool(
    *,
    effect: Effect = ...,
    name: str | None = ...,
    describe: Callable[[Arguments], str] | None = ...,
    approval_key: Callable[[Arguments], str] | None = ...,
    preview: Callable[[Arguments, ToolContext], str] | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    effect: Effect = "reads",
    name: str | None = None,
    describe: Callable[[Arguments], str] | None = None,
    approval_key: Callable[[Arguments], str] | None = None,
    preview: Callable[[Arguments, ToolContext], str] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, directly or as a decorator.

    Args:
        function: Typed parameters, a docstring in Google's style, a text (or anything JSON can hold) as its result.
        effect: What a call may change; ``writes`` and ``runs`` need an approval.
        name: What the model calls it; the function's own name if not given.
        describe: A call in one line, for people.
        approval_key: What is remembered where a person approves a call for the whole session.
        preview: What a call would do, in full, for the person who approves it.
    """

    def make(function: Callable[..., Any]) -> Tool:
        called = str(name or getattr(function, "__name__", ""))
        read = _read_function(function, called)
        return Tool(
            name=called,
            description=read.about,
            parameters=read.schema,
            effect=effect,
            handler=_handler(function, read.context_name),
            checker=read.checker,
            describer=describe,
            keyer=approval_key,
            previewer=preview,
        )

    return make if function is None else make(function)


class _FunctionRead(NamedTuple):
    """All that a tool takes from a function's signature and docstring."""

    about: str
    schema: dict[str, Any]
    context_name: str | None
    """The name of the parameter that takes the context."""
    checker: Callable[[Arguments], Arguments]


_MOST_READ = 500
_functions_read: dict[Hashable, _FunctionRead] = {}
"""Functions that were read before; a model of pydantic takes milliseconds and some 100 KB, and agents come and go."""


def _read_function(function: Callable[..., Any], name: str) -> _FunctionRead:
    identity = _identity(function, name)
    found = None if identity is None else _functions_read.get(identity)
    if found is not None:
        return found
    about, words = read_docstring(function)
    model, context_name = _model(function, name, words)
    found = _FunctionRead(about, _schema_of(model), context_name, _checker(model, name))
    if identity is not None:
        if len(_functions_read) >= _MOST_READ:
            _functions_read.clear()
        _functions_read[identity] = found
    return found


def _identity(function: Callable[..., Any], name: str) -> Hashable:
    """Return what functions with the same signature and docstring have in common; None if that is not known.

    A function that is defined again in each call of another one, such as once per chat, is the same each time.
    """
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return None
    defaults = (function.__defaults__, tuple((function.__kwdefaults__ or {}).items()))
    annotations = tuple(function.__annotations__.items())
    identity = (name, function.__code__, id(function.__globals__), function.__doc__, repr(defaults), annotations)
    try:
        hash(identity)
    except TypeError:
        return None
    return identity


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


def _handler(function: Callable[..., Any], context_name: str | None) -> Callable[[Arguments, ToolContext], Any]:
    def handle(args: Arguments, context: ToolContext) -> Any:
        given = args if context_name is None else {**args, context_name: context}
        return function(**given)

    return handle


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


# -- the schema -------------------------------------------------------------------------------------------------------


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the model's schema without titles; nested models are inlined unless they contain themselves."""
    whole = model.model_json_schema()
    named = whole.pop("$defs", {})
    inliner = _Inliner(named)
    parameters: dict[str, Any] = inliner.inline(whole, ())
    parameters.setdefault("properties", {})
    parameters.pop("description", None)
    if inliner.recursive:
        parameters["$defs"] = {name: inliner.inline(named[name], (name,)) for name in sorted(inliner.recursive)}
    return {"type": "object", **{key: value for key, value in parameters.items() if key != "type"}}


class _Inliner:
    """Replaces references to named schemas by the schemas."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = named
        self.recursive: set[str] = set()

    def inline(self, node: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [self.inline(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = str(node["$ref"]).rpartition("/")[2]
            if name in inside:
                self.recursive.add(name)
                return dict(node)
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return self.inline({**self.named[name], **beside}, (*inside, name))
        result: dict[str, Any] = {}
        for key, value in node.items():
            if key == "title" and isinstance(value, str):
                continue
            if key in {"properties", "patternProperties", "$defs"}:
                result[key] = {name: self.inline(one, inside) for name, one in value.items()}
            elif key in {"default", "enum", "const", "examples"}:
                result[key] = value
            else:
                result[key] = self.inline(value, inside)
        return result
