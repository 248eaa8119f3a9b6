"""Engines that each break one clause of the contract, and are the built-in compressor in everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from everlong import ContextCompressor, Message
from everlong.testing.engine_contract.subject import tokens


class Sound(ContextCompressor):
    """An engine with nothing wrong, to be spoilt; its name is its own."""

    @property
    def name(self) -> str:
        return "sound"

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        return self.spoilt(super().compress(messages, *args, **kwargs), messages)

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        return result


class Broken(NamedTuple):
    """An engine, the clause that it breaks, and some words of what the kit must tell its author."""

    clause: str
    words: str
    engine: type


def answering(value: Any) -> Callable[..., Any]:
    """Return a method that takes anything and always returns the same."""
    return lambda *_args, **_kwargs: value


def spoilt(clause: str, words: str, values: dict[str, Any] | None = None, **members: Any) -> Broken:
    """Spoil an engine by members of its class, or by values that each new one gets."""

    def made(self: Sound, context_length: int) -> None:
        Sound.__init__(self, context_length)
        vars(self).update(values or {})

    return Broken(clause, words, type("Spoilt", (Sound,), members | ({"__init__": made} if values else {})))


def find(name: str = "find", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Find.", "parameters": {"type": "object", "properties": {}}, **more}


def without_its_last_calls(_: Sound, result: list[Message], _messages: list[Message]) -> list[Message]:
    last = max((n for n, m in enumerate(result) if m.get("tool_calls")), default=None)
    return result if last is None else [*result[:last], *result[last + 1 :]]


def with_answers_of_its_own(_: Sound, result: list[Message], _messages: list[Message]) -> list[Message]:
    calls = result[-1].get("tool_calls") or [] if result else []
    return [*result, *({"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls)]


def without_the_request(_: Sound, result: list[Message], messages: list[Message]) -> list[Message]:
    asked = [message for message in messages if message["role"] == "user"]
    return [message for message in result if not asked or message != asked[-1]]


def with_a_note(_: Sound, result: list[Message], _messages: list[Message]) -> list[Message]:
    return [*result, {"role": "assistant", "content": "This conversation was compacted."}] if result else result


def marked_in_place(_: Sound, result: list[Message], messages: list[Message]) -> list[Message]:
    for message in messages:
        message["seen"] = True
    return result


def cut_in_place(_: Sound, result: list[Message], messages: list[Message]) -> list[Message]:
    messages[:] = result
    return messages


class RaisesWhenMade:
    def __init__(self) -> None:
        raise RuntimeError("no database")


class LacksAMethod:
    name = "lacking"
    context_length = 16_000
    update_from_response = answering(None)


class TrustsUsage(Sound):
    def update_from_response(self, usage: dict[str, Any]) -> None:
        super().update_from_response(usage)
        self.last_total_tokens = usage["total_tokens"]


class KeepsNone(Sound):
    def update_from_response(self, usage: dict[str, Any]) -> None:
        super().update_from_response(usage)
        self.last_completion_tokens = usage.get("completion_tokens", 0)


class EmptiesUsage(Sound):
    def update_from_response(self, usage: dict[str, Any]) -> None:
        super().update_from_response(usage)
        usage.pop("completion_tokens", None)


class NeverCompacts(Sound):
    def should_compress(self, prompt_tokens: int | None = None) -> bool:  # noqa: ARG002 - part of the contract
        return False


class StatusOfObjects(Sound):
    def get_status(self) -> dict[str, Any]:
        return super().get_status() | {"engine": self}


class TrustsModels(Sound):
    get_tool_schemas = answering([find()])

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        return args["query"] if name == "find" else super().handle_tool_call(name, args, **kwargs)


class AnswersWithDicts(Sound):
    get_tool_schemas = answering([find()])

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        return {"found": 0} if name == "find" else super().handle_tool_call(name, args, **kwargs)  # type: ignore[return-value]


class RaisesForUnknownTools(Sound):
    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        del args, kwargs
        raise ValueError(name)


class RaisesForPictures(Sound):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        for message in messages:
            (message["content"] or "").strip()
        return super().compress(messages, *args, **kwargs)


class KeepsTheOldFigure(Sound):
    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        self.last_prompt_tokens = tokens(messages)
        return result


class CountsNothing(Sound):
    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        self.compression_count = 0
        return result


class TakesNoTopic(Sound):
    def compress(self, messages: list[Message], current_tokens: int | None = None) -> list[Message]:  # type: ignore[override]
        return super().compress(messages, current_tokens)


class DeclaresMoreThanItTakes(Sound):
    def compress(  # type: ignore[override]
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        memory_context: str | None = None,
    ) -> list[Message]:
        if memory_context:
            raise NotImplementedError("memory_context")
        return super().compress(messages, current_tokens, focus_topic)


class StartsWithAnIdOnly(Sound):
    def on_session_start(self, session_id: str) -> None:  # type: ignore[override]
        """Nothing."""


class ForgetsItsWindow(Sound):
    def on_session_reset(self) -> None:
        super().on_session_reset()
        self.context_length = 0


class KeepsItsThreshold(Sound):
    def update_model(self, model: str, context_length: int, *args: Any, **kwargs: Any) -> None:
        del model, args, kwargs
        self.context_length = context_length


def made_for_more(self: Sound) -> None:
    Sound.__init__(self, 200_000)


_NO_SCHEMA = {"type": "function", "function": find(parameters=["query"])}
_UNKNOWN = json.dumps({"error": "no_such_tool?"})

BROKEN = [
    spoilt("Making one", "name is ''; make it one word", name=""),
    spoilt("Making one", "name is a method; make it a property", name=answering("method")),
    Broken(
        "Making one", "an engine with no argument raised RuntimeError: no database (broken.py, line", RaisesWhenMade
    ),
    Broken("Making one", "the engine has no should_compress(), compress(), which every host calls", LacksAMethod),
    spoilt(
        *("Making one", "made for a window of 16000, the engine has context_length 200000"),
        __init__=made_for_more,
        update_model=answering(None),
    ),
    spoilt("Attributes", "last_prompt_tokens is 0.0 in a new engine; it must be an int", last_prompt_tokens=0.0),
    spoilt("Attributes", "compression_count is 1 in a new engine; it must be 0 at first", compression_count=1),
    spoilt("Attributes", "protect_last_n is None; it must be an int of 0 or more", {"protect_last_n": None}),
    spoilt("Attributes", "must be a share of the window between 0.0 and 1.0", {"threshold_percent": 50}),
    spoilt("Attributes", "is 0 in a window of 16000; it must be an int from 1 to 16000", {"threshold_tokens": 0}),
    spoilt("Usage", 'usage["prompt_tokens"]; "prompt_tokens" has', update_from_response=answering(None)),
    Broken("Usage", "raised KeyError: 'total_tokens' (broken.py, line", TrustsUsage),
    Broken("Usage", "last_completion_tokens is None; it must stay an int: use usage.get(…) or 0", KeepsNone),
    Broken("Usage", "changed the dict that it was given; only read it", EmptiesUsage),
    Broken("Deciding when", "should_compress(16000) returned False in a window of 16000", NeverCompacts),
    spoilt("Deciding when", "should_compress(0) returned True in a window", should_compress=answering(True)),
    spoilt(
        *("Deciding when", "should_compress() returned False after a response of 16000 tokens; without an argument"),
        should_compress=lambda self, prompt_tokens=None: (prompt_tokens or 0) >= self.threshold_tokens,
    ),
    spoilt(
        *("Deciding when", "has_content_to_compress() returned 0 for an empty list; it must be a bool"),
        has_content_to_compress=lambda _self, messages: len(messages),
    ),
    Broken("Status", "get_status() before a session cannot be written as JSON", StatusOfObjects),
    spoilt(
        *("Status", "lacks last_prompt_tokens, threshold_tokens, context_length, compression_count, usage_percent;"),
        get_status=answering({"nodes": 3}),
    ),
    spoilt("Tools", "a tool is called 'find it'; providers take", get_tool_schemas=answering([find("find it")])),
    spoilt("Tools", "two tools are called 'find'; every tool needs a", get_tool_schemas=answering([find()] * 2)),
    spoilt(
        *("Tools", "the tool 'find' has parameters ['query']; they must be a JSON schema of type object"),
        get_tool_schemas=answering([_NO_SCHEMA]),
    ),
    Broken("Tools", "raised KeyError: 'query' (broken.py, line", TrustsModels),
    Broken("Tools", "every call must be answered with a text", AnswersWithDicts),
    Broken("Tools", "handle_tool_call('no_such_tool', {}) raised ValueError: no_such_tool", RaisesForUnknownTools),
    spoilt("Tools", 'text {"error": "Unknown tool: no_such_tool"}, or super()', handle_tool_call=answering(_UNKNOWN)),
    spoilt("What comes back", "returned None; return a list of messages", spoilt=answering(None)),
    spoilt(
        *("What comes back", "a list that is none of messages: message 0: expected a dict with a role, got str"),
        spoilt=lambda _self, result, _messages: ["summary", *result],
    ),
    spoilt("What comes back", "answers no call before it); cut only between", spoilt=without_its_last_calls),
    spoilt("What comes back", "a result are no longer ['a', 'b']; leave the last", spoilt=with_answers_of_its_own),
    spoilt(
        *("What comes back", "cannot be written as JSON"),
        spoilt=lambda _self, result, _messages: [{**message, "seen": {1, 2}} for message in result],
    ),
    Broken("What comes back", "raised AttributeError: 'list' object has no attribute 'strip'", RaisesForPictures),
    spoilt("What must survive", "the latest user message is missing or not after", spoilt=without_the_request),
    spoilt(
        *("What must survive", "the system prompt is lost; keep the leading system messages"),
        spoilt=lambda _self, result, _messages: [message for message in result if message["role"] != "system"],
    ),
    spoilt("Hands off", "compress() changed the list that it was given", spoilt=cut_in_place),
    spoilt("Hands off", "compress() changed a message of the list that it was given", spoilt=marked_in_place),
    spoilt("Size", "return the list as it was (mended, if need be) where nothing is gained", spoilt=with_a_note),
    spoilt("Size", "three calls of compress() left about", spoilt=lambda _self, _result, messages: messages),
    Broken("Size", "set it to an estimate of the new list, or the next turn compacts again", KeepsTheOldFigure),
    Broken("Size", "one compress() that changed something compression_count is 0; add 1 to it", CountsNothing),
    spoilt(
        *("Broken lists", "compress() returned a list that providers refuse"),
        spoilt=lambda _self, result, messages: messages if len(messages) < 40 else result,
    ),
    Broken("Arguments", "compress() got an unexpected keyword argument 'focus_topic'", TakesNoTopic),
    Broken("Arguments", "raised NotImplementedError: memory_context", DeclaresMoreThanItTakes),
    Broken("Life cycle", "must take the session's id and any further keyword argument (**kwargs)", StartsWithAnIdOnly),
    spoilt("Reset", "after on_session_reset() last_prompt_tokens is", on_session_reset=answering(None)),
    Broken("Reset", "changed context_length or threshold_tokens: the model is still the same", ForgetsItsWindow),
    spoilt("Another model", "context_length is 16000; set it to 8000", update_model=answering(None)),
    Broken("Another model", "compute it anew: it was 12000 in a window of 16000", KeepsItsThreshold),
]
