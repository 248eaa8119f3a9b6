"""The script of a model: what it is asked and what it answers, the same for all wire formats.

A script is a function from an `Ask` to an `Answer` (or a plain text), or a list of answers. Requests of all formats are
read into turns; they have been checked before a script sees them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from everlong.testing.server.exchange import Api, unseal

__all__ = ["Answer", "Ask", "Call", "Script", "ScriptedModel", "ScriptedTurn"]


@dataclass(frozen=True)
class Call:
    """A tool call; ``arguments`` may also be the text that a careless model would write."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class Answer:
    """An answer of the model: thinking, then words, then calls."""

    text: str = ""
    calls: Sequence[Call] = ()
    thinking: str | None = None
    redacted_thinking: str | None = None
    """Data of a ``redacted_thinking`` block (Anthropic only)."""
    refused: bool = False
    """True if the model declines: ``refusal`` on Anthropic, a refusal text on OpenAI."""
    stop: str | None = None
    """The stop or finish reason, if not the natural one (``max_tokens``, ``content_filter`` …)."""


@dataclass(frozen=True)
class ScriptedTurn:
    """One message of a request, in words."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    """Tool results: the id of the call, and the text."""


@dataclass(frozen=True)
class Ask:
    """A request that kept every rule."""

    api: Api
    number: int
    body: dict[str, Any]
    headers: Mapping[str, str]
    prompt_tokens: int

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model"))

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that the answer may have, if the client set a limit."""
        names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        value = next((self.body[name] for name in names if self.body.get(name) is not None), None)
        return value if isinstance(value, int) else None

    @cached_property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        tools = self.body.get("tools") or []
        return [str((tool.get("function") or tool).get("name")) for tool in tools]

    @cached_property
    def system(self) -> str:
        """The words of the system prompt."""
        own = _text(self.body.get("system")) or _text(self.body.get("instructions"))
        return "\n".join(filter(None, [own, *(turn.text for turn in self.turns if turn.role in _SYSTEM)]))

    @cached_property
    def turns(self) -> list[ScriptedTurn]:
        """The messages in order."""
        if self.api == "responses":
            given = self.body.get("input") or []
            items = [{"role": "user", "content": given}] if isinstance(given, str) else given
            return [_item_turn(item) for item in items]
        return [_turn(message) for message in self.body.get("messages") or []]

    @cached_property
    def text(self) -> str:
        """All words of the request: what the model can know."""
        words = [_text(self.body.get("system")), _text(self.body.get("instructions"))]
        for turn in self.turns:
            words.append(turn.text)
            words += [call.arguments_text for call in turn.calls]
            words += [text for _, text in turn.results]
        return "\n".join(filter(None, words))

    @cached_property
    def last_user(self) -> str:
        """The words of the newest message of a person, not of a tool result."""
        return next((turn.text for turn in reversed(self.turns) if turn.role == "user" and turn.text), "")

    @cached_property
    def results(self) -> list[tuple[str, str]]:
        """The tool results since the assistant last spoke, each with the id of its call."""
        found: list[tuple[str, str]] = []
        for turn in reversed(self.turns):
            if turn.role == "assistant":
                break
            found[:0] = turn.results
        return found


Script: TypeAlias = Callable[[Ask], "Answer | str"] | Iterable["Answer | str"] | str


class ScriptedModel:
    """A model that answers from a list, from a function, or always the same; it remembers its requests."""

    def __init__(self, script: Script, remember: int | None = None) -> None:
        self.asked: deque[Ask] = deque(maxlen=remember)
        """The requests, all of them or the last ``remember``."""
        self._say = script if callable(script) else None
        self._always = script if isinstance(script, str) else None
        self._left = [] if callable(script) or isinstance(script, str) else list(script)
        self._given = 0

    def __call__(self, ask: Ask) -> Answer:
        """Return the next answer."""
        self.asked.append(ask)
        if self._say is not None:
            said = self._say(ask)
        elif self._always is not None:
            said = self._always
        else:
            if not self._left:
                raise LookupError(f"the script has {self._given} answers and was asked for one more; add it")
            said = self._left.pop(0)
            self._given += 1
        return said if isinstance(said, Answer) else Answer(said)


# -- reading requests -------------------------------------------------------------------------------------------------

_SYSTEM = frozenset({"system", "developer"})


def _turn(message: Mapping[str, Any]) -> ScriptedTurn:
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = [
        Call(str(entry["function"]["name"]), str(entry["function"]["arguments"]), entry.get("id"))
        for entry in message.get("tool_calls") or []
        if "function" in entry
    ]
    calls += [Call(str(b["name"]), b.get("input") or {}, b.get("id")) for b in blocks if b.get("type") == "tool_use"]
    results = [(str(b["tool_use_id"]), _text(b.get("content"))) for b in blocks if b.get("type") == "tool_result"]
    role = str(message.get("role"))
    if role == "tool":
        return ScriptedTurn(role, "", results=((str(message.get("tool_call_id")), _text(content)),))
    return ScriptedTurn(role, _text(content), tuple(calls), tuple(results))


def _item_turn(item: Mapping[str, Any]) -> ScriptedTurn:
    kind = str(item.get("type", "message"))
    if kind == "compaction":
        return ScriptedTurn("assistant", unseal("cmp", item.get("encrypted_content")) or "")
    if kind.endswith("_output"):
        return ScriptedTurn("tool", "", results=((str(item.get("call_id")), _text(item.get("output"))),))
    if kind != "message":
        called = str(item.get("arguments") or item.get("input") or "")
        calls = (Call(str(item.get("name")), called, item.get("call_id")),) if "call_id" in item else ()
        return ScriptedTurn("assistant", "", calls)
    return ScriptedTurn(str(item.get("role")), _text(item.get("content")))


_TEXTS = frozenset({"text", "input_text", "output_text"})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [block.get("text") for block in content if isinstance(block, dict) and str(block.get("type")) in _TEXTS]
    return "\n".join(text for text in texts if isinstance(text, str))
