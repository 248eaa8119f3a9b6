"""Engines that each break one clause of the contract, and are the built-in compressor in everything else.

Each says in its docstring which clause it breaks and some words of what the kit must tell its author.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from everlong import ContextCompressor, Message
from everlong.testing.engine_contract.subject import tokens

Clause = str


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


def broken_engines() -> Iterator[tuple[type, Clause, str]]:
    """Each engine with its clause and the words that the finding must have."""
    for value in list(globals().values()):
        if isinstance(value, type) and value.__module__ == __name__ and value is not Sound:
            clause, _, words = (value.__doc__ or "").partition(": ")
            yield value, clause, words


class Nameless(Sound):
    """Making one: name is ''; make it one word"""

    name = ""


class CallsItsName(Sound):
    """Making one: name is a method; make it a property"""

    def name(self) -> str:  # type: ignore[override]
        return "method"


class RaisesWhenMade:
    """Making one: making an engine with no argument raised RuntimeError: no database (broken.py, line"""

    def __init__(self) -> None:
        raise RuntimeError("no database")


class LacksAMethod:
    """Making one: the engine has no should_compress(), compress(), which every host calls"""

    name = "lacking"
    context_length = 16_000

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Nothing."""


class DeafToItsWindow(Sound):
    """Making one: made for a window of 16000, the engine has context_length 200000"""

    def __init__(self) -> None:
        super().__init__(200_000)

    def update_model(self, model: str, context_length: int, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


class CountsInFloats(Sound):
    """Attributes: last_prompt_tokens is 0.0 in a new engine; it must be an int"""

    last_prompt_tokens = 0.0  # type: ignore[assignment]


class BeginsWithOne(Sound):
    """Attributes: compression_count is 1 in a new engine; it must be 0 at first"""

    compression_count = 1


class ProtectsNothingKnown(Sound):
    """Attributes: protect_last_n is None; it must be an int of 0 or more"""

    def __init__(self, context_length: int) -> None:
        super().__init__(context_length)
        self.protect_last_n = None  # type: ignore[assignment]


class SharesByHundreds(Sound):
    """Attributes: threshold_percent is 50; it must be a share of the window between 0.0 and 1.0"""

    def __init__(self, context_length: int) -> None:
        super().__init__(context_length)
        self.threshold_percent = 50


class NoThreshold(Sound):
    """Attributes: threshold_tokens is 0 in a window of 16000; it must be an int from 1 to 16000"""

    def __init__(self, context_length: int) -> None:
        super().__init__(context_length)
        self.threshold_tokens = 0


class IgnoresUsage(Sound):
    """Usage: last_prompt_tokens is 0; take over usage["prompt_tokens"]"""

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Nothing."""


class TrustsUsage(Sound):
    """Usage: raised KeyError: 'total_tokens' (broken.py, line"""

    def update_from_response(self, usage: dict[str, Any]) -> None:
        super().update_from_response(usage)
        self.last_total_tokens = usage["total_tokens"]


class KeepsNone(Sound):
    """Usage: last_completion_tokens is None; it must stay an int: use usage.get(…) or 0"""

    def update_from_response(self, usage: dict[str, Any]) -> None:
        super().update_from_response(usage)
        self.last_completion_tokens = usage.get("completion_tokens", 0)


class EmptiesUsage(Sound):
    """Usage: changed the dict that it was given; only read it"""

    def update_from_response(self, usage: dict[str, Any]) -> None:
        super().update_from_response(usage)
        usage.pop("completion_tokens", None)


class NeverCompacts(Sound):
    """Deciding when: should_compress(16000) returned False in a window of 16000; it must be the bool True"""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:  # noqa: ARG002 - part of the contract
        return False


class AlwaysCompacts(Sound):
    """Deciding when: should_compress(0) returned True in a window of 16000; it must be the bool False"""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:  # noqa: ARG002 - part of the contract
        return True


class NeedsANumber(Sound):
    """Deciding when: should_compress() returned False after a response of 16000 tokens; without an argument"""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.threshold_tokens


class AnswersWithNumbers(Sound):
    """Deciding when: has_content_to_compress() returned 0 for an empty list; it must be a bool"""

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        return len(messages)  # type: ignore[return-value]


class StatusOfObjects(Sound):
    """Status: get_status() before a session cannot be written as JSON"""

    def get_status(self) -> dict[str, Any]:
        return super().get_status() | {"engine": self}


class StatusOfItsOwn(Sound):
    """Status: lacks last_prompt_tokens, threshold_tokens, context_length, compression_count, usage_percent;"""

    def get_status(self) -> dict[str, Any]:
        return {"nodes": 3}


class ToolWithASpace(Sound):
    """Tools: a tool is called 'find it'; providers take 1 to 64 letters, digits, _ and -"""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "find it", "description": "Find.", "parameters": {"type": "object", "properties": {}}}]


class ToolTwice(Sound):
    """Tools: two tools are called 'find'; every tool needs a name of its own"""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "find", "description": "Find.", "parameters": {"type": "object", "properties": {}}}] * 2


class ToolWithoutASchema(Sound):
    """Tools: the tool 'find' has parameters ['query']; they must be a JSON schema of type object"""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "find", "description": "Find.", "parameters": ["query"]}}]


class TrustsModels(Sound):
    """Tools: raised KeyError: 'query' (broken.py, line"""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
        return [{"name": "find", "description": "Find.", "parameters": query}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        return args["query"] if name == "find" else super().handle_tool_call(name, args, **kwargs)


class AnswersWithDicts(Sound):
    """Tools: every call must be answered with a text"""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "find", "description": "Find.", "parameters": {"type": "object", "properties": {}}}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        return {"found": 0} if name == "find" else super().handle_tool_call(name, args, **kwargs)  # type: ignore[return-value]


class RaisesForUnknownTools(Sound):
    """Tools: handle_tool_call('no_such_tool', {}) raised ValueError: no_such_tool"""

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        del args, kwargs
        raise ValueError(name)


class OtherErrorText(Sound):
    """Tools: return the JSON text {"error": "Unknown tool: no_such_tool"}, or super()"""

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        del args, kwargs
        return json.dumps({"error": f"{name}?"})


class ReturnsNothing(Sound):
    """What comes back: returned None; return a list of messages"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del result, messages
        return None  # type: ignore[return-value]


class ReturnsTexts(Sound):
    """What comes back: returned a list that is none of messages: message 0: expected a dict with a role, got str"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        return ["summary", *result]  # type: ignore[list-item]


class CutsThroughCalls(Sound):
    """What comes back: answers no call before it); cut only between whole groups"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        last = max((n for n, m in enumerate(result) if m.get("tool_calls")), default=None)
        return result if last is None else [*result[:last], *result[last + 1 :]]


class AnswersForTheTools(Sound):
    """What comes back: the calls that wait for a result are no longer ['a', 'b']; leave the last assistant"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        calls = result[-1].get("tool_calls") or [] if result else []
        return [*result, *({"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls)]


class ReturnsObjects(Sound):
    """What comes back: cannot be written as JSON"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        return [{**message, "seen": {1, 2}} for message in result]


class RaisesForPictures(Sound):
    """What comes back: raised AttributeError: 'list' object has no attribute 'strip'"""

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        for message in messages:
            (message["content"] or "").strip()
        return super().compress(messages, *args, **kwargs)


class DropsTheRequest(Sound):
    """What must survive: the latest user message is missing or not after the summary; keep that message word"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        asked = [message for message in messages if message["role"] == "user"]
        return [message for message in result if not asked or message != asked[-1]]


class DropsThePrompt(Sound):
    """What must survive: the system prompt is lost; keep the leading system messages"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        return [message for message in result if message["role"] != "system"]


class CutsInPlace(Sound):
    """Hands off: compress() changed the list that it was given"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        messages[:] = result
        return messages


class MarksMessages(Sound):
    """Hands off: compress() changed a message of the list that it was given"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        for message in messages:
            message["seen"] = True
        return result


class AddsANote(Sound):
    """Size: return the list as it was (mended, if need be) where nothing is gained"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        return [*result, {"role": "assistant", "content": "This conversation was compacted."}] if result else result


class DoesNothing(Sound):
    """Size: three calls of compress() left about"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del result
        return messages


class KeepsTheOldFigure(Sound):
    """Size: set it to an estimate of the new list, or the next turn compacts again"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        self.last_prompt_tokens = tokens(messages)
        return result


class CountsNothing(Sound):
    """Size: after one compress() that changed something compression_count is 0; add 1 to it"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        del messages
        self.compression_count = 0
        return result


class TrustsPairs(Sound):
    """Broken lists: compress() returned a list that providers refuse"""

    def spoilt(self, result: list[Message], messages: list[Message]) -> list[Message]:
        return messages if len(messages) < 40 else result


class TakesNoTopic(Sound):
    """Arguments: raised TypeError: TakesNoTopic.compress() got an unexpected keyword argument 'focus_topic'"""

    def compress(self, messages: list[Message], current_tokens: int | None = None) -> list[Message]:  # type: ignore[override]
        return super().compress(messages, current_tokens)


class DeclaresMoreThanItTakes(Sound):
    """Arguments: raised NotImplementedError: memory_context"""

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
    """Life cycle: it must take the session's id and any further keyword argument (**kwargs)"""

    def on_session_start(self, session_id: str) -> None:  # type: ignore[override]
        """Nothing."""


class ResetsNothing(Sound):
    """Reset: after on_session_reset() last_prompt_tokens is"""

    def on_session_reset(self) -> None:
        """Nothing."""


class ForgetsItsWindow(Sound):
    """Reset: changed context_length or threshold_tokens: the model is still the same"""

    def on_session_reset(self) -> None:
        super().on_session_reset()
        self.context_length = 0


class KeepsItsWindow(Sound):
    """Another model: after update_model('other-model', 8000, …) context_length is 16000; set it to 8000"""

    def update_model(self, model: str, context_length: int, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


class KeepsItsThreshold(Sound):
    """Another model: compute it anew: it was 12000 in a window of 16000"""

    def update_model(self, model: str, context_length: int, *args: Any, **kwargs: Any) -> None:
        del model, args, kwargs
        self.context_length = context_length
