"""A quick check-up of an engine: does it keep the basics of the contract?

`everlong.testing` tests the whole contract; this asks a fresh engine a few questions. Whatever its code raises is a
finding.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from everlong.context import ContextEngine
from everlong.memory.contain import describe_error
from everlong.model import Message

__all__ = ["engine_problems"]

_NUMBERS = (
    "last_prompt_tokens",
    "last_completion_tokens",
    "last_total_tokens",
    "threshold_tokens",
    "context_length",
    "compression_count",
)


def engine_problems(engine: ContextEngine) -> list[str]:
    """Return the problems of an engine, one sentence each; empty where the basics hold."""
    found: list[str] = []
    for check in (_name, _attributes, _usage, _decision, _compaction, _tools, _status):
        try:
            found += check(engine)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; that it raises is a finding
            found.append(f"{_WORDS[check]} fails: {describe_error(error)}")
    return found


def _name(engine: ContextEngine) -> Iterator[str]:
    name: object = engine.name
    if not isinstance(name, str) or not name:
        yield f"name must be a text, and is {name!r}"


def _attributes(engine: ContextEngine) -> Iterator[str]:
    for name in _NUMBERS:
        value = getattr(engine, name, None)
        if not isinstance(value, int):
            yield f"{name} must be a whole number, and is {value!r}"


def _usage(engine: ContextEngine) -> Iterator[str]:
    engine.update_from_response({"prompt_tokens": 1_000, "completion_tokens": 20, "total_tokens": 1_020})
    if engine.last_prompt_tokens != 1_000:
        yield f"after update_from_response last_prompt_tokens must be 1000, and is {engine.last_prompt_tokens!r}"


def _decision(engine: ContextEngine) -> Iterator[str]:
    answer: object = engine.should_compress(10)
    if not isinstance(answer, bool):
        yield f"should_compress must give True or False, and gave {type(answer).__name__}"


def _compaction(engine: ContextEngine) -> Iterator[str]:
    messages = _talk()
    before = copy.deepcopy(messages)
    result: object = engine.compress(messages)
    if messages != before:
        yield "compress changes the list that it is given; it must leave that as it was"
    if not isinstance(result, list) or not all(isinstance(one, dict) and one.get("role") for one in result):
        yield "compress must give a list of messages, each with a role"
    elif not any(one["role"] == "user" and "last question" in str(one.get("content")) for one in result):
        yield "compress loses the latest message of the user"


def _tools(engine: ContextEngine) -> Iterator[str]:
    schemas: object = getattr(engine, "get_tool_schemas", list)()
    if not isinstance(schemas, list):
        yield f"get_tool_schemas must give a list, and gave {type(schemas).__name__}"
        return
    for schema in schemas:
        body: Any = schema.get("function", schema) if isinstance(schema, dict) else {}
        if not isinstance(body, dict) or not body.get("name"):
            yield "get_tool_schemas gives a tool that has no name"


def _status(engine: ContextEngine) -> Iterator[str]:
    status = getattr(engine, "get_status", None)
    if status is not None:
        json.dumps(status())
    return
    yield


def _talk() -> list[Message]:
    said: list[Message] = [{"role": "system", "content": "You keep the book of a harbour."}]
    for number in range(20):
        said.append({"role": "user", "content": f"Ship {number} came in. " + "It carries tea. " * 40})
        said.append({"role": "assistant", "content": f"Ship {number} is noted. " + "All is in order. " * 40})
    return [*said, {"role": "user", "content": "This is the last question."}]


_WORDS: dict[Callable[[ContextEngine], Iterator[str]], str] = {
    _name: "name",
    _attributes: "reading the token attributes",
    _usage: "update_from_response",
    _decision: "should_compress",
    _compaction: "compress",
    _tools: "get_tool_schemas",
    _status: "get_status as JSON",
}
