"""The reference, made from the code: settings, commands with their options, the chat's commands, the library's names.

The site appends each part to the page in docs/ that introduces it; ``PARTS`` says to which.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

__all__ = ["PARTS", "api_part", "commands_part", "settings_part"]

PACKAGES = (
    "everlong.agent",
    "everlong.agent.tools",
    "everlong.memory",
    "everlong.plugins",
    "everlong.providers",
    "everlong.testing",
)
"""Public packages below ``everlong``; docs/integrations.md has the adapters, whose frameworks may not be installed."""
_CODE = re.compile(r"(``?[^`]+``?)")


def settings_part() -> str:
    """Return all settings: key, default, what is allowed, meaning."""
    from everlong.config.settings import Settings  # noqa: PLC0415 - after the path is set

    lines: list[str] = []
    for name, model in _sections(Settings, ""):
        lines += [f"## {name}", "", _spelled((inspect.getdoc(model) or "").partition("\n\n>>>")[0]), ""]
        lines += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        for key, field in model.model_fields.items():
            if not _models(field.annotation):
                extra = field.json_schema_extra
                allowed = extra.get("allowed", "") if isinstance(extra, dict) else ""
                cells = (f"`{name}.{key}`", _default(field.default), str(allowed), field.description or "")
                lines.append(f"| {' | '.join(_cell(one) for one in cells)} |")
        lines.append("")
    return "\n".join(lines)


def _sections(model: type[BaseModel], name: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every section that has keys of its own, with its name."""
    if name and any(not _models(field.annotation) for field in model.model_fields.values()):
        yield name, model
    for key, field in model.model_fields.items():
        for below, is_named in _models(field.annotation):
            inner = f"{name}.{key}" if name else key
            yield from _sections(below, f"{inner}.NAME" if is_named else inner)


def _models(annotation: Any, *, is_named: bool = False) -> list[tuple[type[BaseModel], bool]]:
    """Return the sections that a field holds, and whether each stands under a name of the user's choice."""
    if isinstance(annotation, type) and not get_args(annotation):
        return [(annotation, is_named)] if issubclass(annotation, BaseModel) else []
    named = is_named or getattr(annotation, "__origin__", None) is dict
    return [one for part in get_args(annotation) for one in _models(part, is_named=named)]


def _default(value: object) -> str:
    if value is PydanticUndefined:
        return "none; it must be given"
    if value is None or isinstance(value, bool):
        return f"`{'null' if value is None else str(value).lower()}`"
    return f"`{value}`" if value != "" else '`""`'


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def commands_part() -> str:
    """Return all commands with their arguments and options, as ``--help`` has them, and those of the chat."""
    from everlong.cli.chat.command import command_registry  # noqa: PLC0415 - after the path is set
    from everlong.cli.main import cli  # noqa: PLC0415 - as above

    lines: list[str] = []
    for path, command in _commands(cli, ("everlong",)):
        with click.Context(command, info_name=" ".join(path)) as context:
            usage = " ".join(command.collect_usage_pieces(context))
            lines += [
                f"## {' '.join(path)}",
                "",
                _spelled(inspect.cleandoc(command.help or "")).replace("\b\n", ""),
                "",
            ]
            lines += ["```text", f"{' '.join(path)} {usage}".rstrip(), "```", ""]
            options = [one for one in command.get_params(context) if one.name != "help"]
            records = [one for one in (param.get_help_record(context) for param in options) if one and one[1]]
            if records:
                lines += ["| option | meaning |", "|---|---|"]
                lines += [f"| `{_cell(name)}` | {_cell(meaning)} |" for name, meaning in records] + [""]
    lines += ["## In the chat", "", "| command | meaning |", "|---|---|"]
    for name, one in sorted(command_registry().commands.items()):
        lines.append(f"| `{_cell(f'/{name} {one.takes}')}` | {_cell(one.about)} |")
    return "\n".join(lines)


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _commands(below, (*path, name))


def api_part() -> str:
    """Return all public names, from their signatures and docstrings."""
    import everlong  # noqa: PLC0415 - after the path is set

    lines: list[str] = []
    groups = {
        "Engines and summaries": "everlong.context everlong.lossless",
        "Clients of model APIs": "everlong.integrations",
        "The store": "everlong.store",
        "Prompt caching": "everlong.caching",
        "Counting tokens": "everlong.tokens",
        "Messages and settings": "everlong.model everlong.config",
        "Errors": "everlong.errors",
    }
    listed = {name: getattr(everlong, name) for name in everlong.__all__}
    for title, homes in groups.items():
        mine = [name for name, value in listed.items() if _home(name, value).startswith(tuple(homes.split()))]
        lines += [f"## {title}", ""]
        for name in mine:
            lines += _entry(name, listed.pop(name))
    if listed:
        raise LookupError(f"no group of website/reference.py takes {', '.join(listed)}")
    shown = set(everlong.__all__)
    for package in map(import_module, PACKAGES):
        lines += [f"## {package.__name__}", "", _spelled(inspect.getdoc(package) or "").partition("\n")[0], ""]
        for name in package.__all__:
            if name not in shown:
                lines += _entry(name, getattr(package, name))
        shown |= set(package.__all__)
    return "\n".join(lines)


def _home(name: str, value: object) -> str:
    return "everlong.model" if name == "Message" else str(getattr(value, "__module__", ""))


def _entry(name: str, value: Any) -> Iterator[str]:
    yield from (f"### {name}", "")
    if inspect.isclass(value):
        if not issubclass(value, BaseException):
            yield from ("```python", f"class {name}{_signature(value).removesuffix(' -> None')}", "```", "")
    elif inspect.isfunction(value):
        yield from ("```python", f"{name}{_signature(value)}", "```", "")
    if inspect.isclass(value) and issubclass(value, BaseException):
        yield from (f"Is a `{value.__mro__[1].__name__}`.", "")
    yield from (_formatted(_docstring(name, value)), "")
    if inspect.isclass(value) and not issubclass(value, BaseException | BaseModel):
        for method, member in _members(value):
            shown = method if isinstance(member, property) else f"{method}{_signature(member)}"
            yield from (f"#### {name}.{method}", "", "```python", shown, "```", "", _formatted(_text(member)), "")


def _docstring(name: str, value: Any) -> str:
    if inspect.isclass(value) or inspect.isfunction(value):
        return _text(value)
    source = Path(inspect.getfile(__import__("everlong.model.message", fromlist=["Message"]))).read_text(
        encoding="utf-8"
    )
    body = ast.parse(source).body
    for one, following in pairwise(body):
        if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == name and isinstance(following, ast.Expr):
            return inspect.cleandoc(str(ast.literal_eval(following.value)))
    return f"`{_signature_text(str(value))}`"


def _text(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines or takes from a base of ours, each once."""
    seen = set()
    for base in value.__mro__:
        if base.__module__.partition(".")[0] != "everlong":
            continue
        for name, member in vars(base).items():
            inner = getattr(member, "__func__", member)
            if name.startswith("_") or name in seen or not (inspect.isfunction(inner) or isinstance(member, property)):
                continue
            seen.add(name)
            if inner.__doc__:
                yield name, inner


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "()"
    parameters = [one for one in found.parameters.values() if one.name not in {"self", "cls"}]
    shown = str(found.replace(parameters=parameters))
    return _signature_text(re.sub(r"(: |-> )'([^']*)'", r"\1\2", shown))  # annotations are kept as text


def _signature_text(shown: str) -> str:
    shown = re.sub(r"\b(?:everlong|collections|typing)\.[\w.]*\.?(?=[A-Z])", "", shown)
    return re.sub(r"<[^<>]*(?:<[^<>]*>)?[^<>]*>", "…", shown)


def _formatted(text: str) -> str:
    """Return a docstring as Markdown: sections as lists, examples as blocks."""
    out: list[str] = []
    in_section = in_example = False
    for line in text.splitlines():
        if not in_example and line.startswith(">>> "):
            out += ["", "```pycon"]
            in_example = True
        elif in_example and not line.strip():
            out += ["```"]
            in_example = False
        if in_example:
            out.append(line)
        elif re.fullmatch(r"(Args|Returns|Raises|Attributes|Yields):", line):
            out += ["", f"**{line}**", ""]
            in_section = True
        elif in_section and (item := re.match(r" {4}(\*{0,2}[\w.]+)(?: \([^)]*\))?: ?(.*)", line)):
            out.append(f"- `{item[1]}`: {_spelled(item[2])}")
        elif in_section and line.startswith("     "):
            out.append(f"  {_spelled(line.strip())}")
        else:
            in_section = in_section and (not line.strip() or line.startswith(" "))
            out.append(_spelled(line.strip() if in_section else line))
    return "\n".join([*out, "```"] if in_example else out)


def _spelled(text: str) -> str:
    """Return a docstring as Markdown: code with single marks, and no HTML in the words around it."""
    words = _CODE.split(text)
    words[::2] = [word.replace("<", "&lt;") for word in words[::2]]
    words[1::2] = [f"`{code.strip('`')}`" for code in words[1::2]]
    return "".join(words)


PARTS: dict[str, Callable[[], str]] = {
    "api.md": api_part,
    "commands.md": commands_part,
    "configuration.md": settings_part,
}
"""What the site appends to a page of docs/."""
