"""The tools of a model, and its calls: whatever a model sends, a result comes back that can be sent.

A call is read, checked, approved and run, in this order; each step may end it with a message that tells the model what
was wrong and what it can do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from everlong.agent.approval import Approvals
from everlong.agent.text import one_line, sendable
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.tool import Arguments, Tool, ToolOutput, as_output
from everlong.errors import ConfigError, EverlongError, ToolError, ToolInterrupted
from everlong.model import Message, ToolCall
from everlong.store.outputs import page_ends
from everlong.wire.anthropic import INVALID

STORED = 5_000_000
"""Characters of the longest output that is kept whole."""


Outcome = Literal["done", "failed", "refused", "unknown", "interrupted"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of a call, and the message that answers it."""

    message: Message
    text: str
    """The text of the message, without pictures."""
    outcome: Outcome
    whole: str | None
    """The whole output if the message has only a part of it; `everlong.store.outputs` keeps it."""
    seconds: float


class Toolbox:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for one in sorted(tools, key=lambda one: one.name):
            if one.name in self._tools:
                raise ConfigError(f"two tools are called {one.name!r}; give one of them another name")
            self._tools[one.name] = one

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name; None where there is none."""
        return self._tools.get(name)

    def schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of all tools, always in the same order, so that a cached prompt stays valid."""
        return [one.schema for one in self]

    def describe(self, call: ToolCall) -> str:
        """Return a call in one line for people, even if it is invalid."""
        found = self._tools.get(call.name)
        try:
            args = read_arguments(call)
        except ToolError:
            return one_line(f"{call.name} {call.arguments}")
        return found.describe(args) if found else one_line(f"{call.name} {call.arguments}")

    def run(self, call: ToolCall, context: ToolContext, approvals: Approvals) -> ToolResult:
        """Run a call and return its result; only a keyboard interrupt makes this raise."""
        return self.ready(call, context, approvals)()

    def ready(self, call: ToolCall, context: ToolContext, approvals: Approvals) -> Callable[[], ToolResult]:
        """Read, check and approve a call now; return a function that runs it in any thread."""
        ended, args = self._check(call, context, approvals)

        def run() -> ToolResult:
            began = time.perf_counter()
            outcome, output = ended or self._run(call, args, context)
            text, whole = _fit(output, call.name, context)
            message: Message = {"role": "tool", "tool_call_id": call.id, "content": text}
            if output.images:
                message["content"] = [*([{"type": "text", "text": text}] if text else []), *output.images]
            if outcome != "done":
                message["is_error"] = True
            return ToolResult(message, text, outcome, whole, time.perf_counter() - began)

        return run

    def _check(
        self, call: ToolCall, context: ToolContext, approvals: Approvals
    ) -> tuple[tuple[Outcome, ToolOutput] | None, Arguments]:
        """Return the end of a call that must not run, or None; and its arguments."""
        found = self._tools.get(call.name)
        if found is None:
            return ("unknown", ToolOutput(self._unknown(call.name))), {}
        if context.interrupted.is_set():
            return ("interrupted", ToolOutput("Interrupted by the user before it was run; nothing was done.")), {}
        try:
            args = found.pin(found.check(read_arguments(call)), context)
            ruling = approvals.rule(found, args, context)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any tool may fail in any way, and the model is told
            return ("failed", ToolOutput(_failure(call.name, error))), {}
        if not ruling.is_allowed:
            return ("refused", ToolOutput(f"Not allowed, so nothing was done: {ruling.reason}")), args
        return None, args

    def _run(self, call: ToolCall, args: Arguments, context: ToolContext) -> tuple[Outcome, ToolOutput]:
        try:
            output = as_output(self._tools[call.name].handler(args, context))
        except ToolInterrupted as error:
            return "interrupted", ToolOutput(str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return "failed", ToolOutput(_failure(call.name, error))
        if isinstance(output, str):
            output = ToolOutput(output)
        return ("failed" if output.is_error else "done"), output

    def _unknown(self, name: str) -> str:
        close = get_close_matches(name, self._tools, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        return f"There is no tool {one_line(name, 80)!r}.{meant} There are: {', '.join(self._tools) or 'none'}."


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of one conversation, with their context and approvals."""

    toolbox: Toolbox
    context: ToolContext
    approvals: Approvals

    def describe(self, call: ToolCall) -> str:
        """Return a call in one line for people."""
        return self.toolbox.describe(call)

    def ready(self, call: ToolCall) -> Callable[[], ToolResult]:
        """Check and approve a call now; return a function that runs it in any thread."""
        return self.toolbox.ready(call, self.context, self.approvals)


def read_arguments(call: ToolCall) -> Arguments:
    """Return the arguments of a call; raises `ToolError` where they are no JSON object."""
    text = call.arguments
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False)  # models write line breaks into strings as they are
    except RecursionError:
        raise ToolError(f"The arguments of {call.name} are nested too deeply to be read; nothing was done.") from None
    except ValueError as error:
        raise ToolError(_no_json(call.name, text, error)) from error
    if isinstance(value, dict) and value.keys() == {INVALID}:
        raise ToolError(_no_json(call.name, str(value[INVALID]), None))
    if not isinstance(value, dict):
        raise ToolError(
            f'The arguments of {call.name} must be a JSON object, such as {{"path": "README.md"}}; got '
            f"{one_line(text, 80)}. Nothing was done."
        )
    return value


def _no_json(name: str, text: str, error: ValueError | None) -> str:
    where = f" ({error})" if error is not None else ""
    torn = isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip()) - 1
    torn = torn or "Unterminated string" in where
    advice = "They seem to be cut off; send less at once." if torn else "Send them again as one valid JSON object."
    return (
        f"The arguments of {name} are not valid JSON{where}, so nothing was done. {advice} "
        f"They begin with {one_line(text, 80)!r}"
    )


def _failure(name: str, error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even say what it is
        said = ""
    if isinstance(error, EverlongError):
        return said
    kind = type(error).__name__
    return f"{name} failed: {kind}: {said}" if said else f"{name} failed: {kind}"


def _fit(output: ToolOutput, name: str, context: ToolContext) -> tuple[str, str | None]:
    """Return the text of a result as it is sent, and the whole output if that is only a part."""
    text = bound(sendable(output.text))
    if not text.strip() and not output.images:
        return f"[{one_line(name, 80)} gave no output]", None
    if len(text) <= context.output_chars:
        return text, None
    outputs = context.store.outputs
    whole = context.store.cleaned_text(text)  # before it is cut, so that pages match the kept text
    if len(whole) <= context.output_chars:
        return whole, None
    return cap(whole, context.output_chars, context.page_chars, outputs.ident(whole)), whole


def bound(text: str) -> str:
    """Return a text as it is kept; a huge one loses its middle."""
    if len(text) <= STORED:
        return text
    first = STORED * 4 // 5
    last = len(text) - STORED // 5 + 200
    return f"{text[:first]}\n[… {last - first:,} characters were not kept …]\n{text[last:]}"


def cap(text: str, limit: int, page_chars: int, ident: str) -> str:
    """Return at most ``limit`` characters of a longer text: its first page, a mark, and its end."""
    ends = page_ends(text, page_chars)
    head = text[: ends[0]]
    longest = _between(text, len(head), len(text), ident, len(ends))
    room = max(0, limit - len(head) - len(longest))
    start = len(text) - room
    middle = start + room // 2  # rather a torn line than half of the room unused
    start = text.find("\n", start, middle) + 1 or text.find(" ", start, middle) + 1 or start
    return head + _between(text, len(head), start, ident, len(ends)) + text[start:]


def _between(text: str, start: int, stop: int, ident: str, pages: int) -> str:
    first = text.count("\n", 0, start) + 1
    last = text.count("\n", start, stop) + first
    # The text may end in the middle of a line on either side, so the mark brings its own line ends.
    before = "" if text[:start].endswith("\n") else "\n"
    return (
        f"{before}[… {stop - start:,} of {len(text):,} characters are left out here, lines {first:,} to {last:,}; "
        f'read_output(id="{ident}", page=2) goes on where the text above ends, and there are {pages} pages …]\n'
    )
