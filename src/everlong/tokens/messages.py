"""Tokens of whole messages and requests, with each text counted only once.

Counts everything of a message that a model reads: text, pictures, tool calls, names, reasoning, and the few tokens
that frame it. Remembers counts by a text's 64-bit hash, never the text itself. Reads any shape without raising,
because counts are taken before a list is checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from everlong.model import REASONING_FIELDS, Message
from everlong.tokens.counters import TokenCounter
from everlong.tokens.estimate import EstimatingCounter
from everlong.tokens.media import media_tokens, payload_tokens

MESSAGE_OVERHEAD = 4
"""Tokens that frame one message: its borders and its role."""

CALL_OVERHEAD = 6
"""Tokens that frame one tool call."""

NAME_OVERHEAD = 1

REPLY_PRIMING = 3
"""Tokens after the last message that begin the reply."""

# An id of a call is random letters and digits, so its length suffices: 3 tokens for 5 characters in every vocabulary.
# The formula is repeated where it is used, because a lookup or call per id would double the cost of counting again.

_EXTRA_FIELDS = frozenset({"name", "refusal", "function_call", "audio", *REASONING_FIELDS})

_SEALED_CHARS_PER_TOKEN = 6  # encrypted thinking: base64 of text of about 4.3 characters per token
_UNSPOKEN = frozenset({"type", "cache_control", "signature", "id", "index", "format", "citations"})
_PAYLOAD_CHARS = 1000  # a data URL that long is a payload, not a mention of one


class MessageCounter:
    """A counter of messages that remembers its counts.

    Args:
        counter: The counter of texts; the estimator if none is given.
        capacity: The number of counts to remember; when full, the older half is forgotten.

    >>> counter = MessageCounter(counter_for("gpt-4o"))
    >>> counter.total(messages) > counter.total(messages[:10]) > counter.count(messages[0])
    True
    """

    def __init__(self, counter: TokenCounter | None = None, capacity: int = 500_000) -> None:
        self.counter: TokenCounter = counter if counter is not None else EstimatingCounter()
        self._capacity = max(2, capacity)
        self._cache: dict[int, int] = {}

    def count_text(self, text: str) -> int:
        """Return the tokens of a bare text."""
        key = hash(text)
        count = self._cache.get(key)
        return self._remember(key, self.counter.count_text(text)) if count is None else count

    def count(self, message: Message) -> int:
        """Return the tokens of one message, its frame included."""
        return self.counts((message,))[0]

    def counts(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of each message; a text that was counted before costs a lookup."""
        # One loop with next to no calls: this runs over whole conversations on every turn.
        known = self._cache.get
        found: list[int] = []
        append = found.append
        for message in messages:
            if type(message) is not dict:
                append(MESSAGE_OVERHEAD + self._any(message))
                continue
            get = message.get
            content = get("content")
            if type(content) is str:
                tokens = known(hash(content))
                if tokens is None:
                    tokens = self.count_text(content)
                if len(message) == 2:
                    append(tokens + MESSAGE_OVERHEAD)
                    continue
                fields = 2
            else:
                tokens = 0 if content is None else self._any(content)
                fields = 2 if "content" in message else 1
            calls = get("tool_calls")
            if calls is not None:
                tokens += self._calls(calls)
                fields += 1
            answered = get("tool_call_id")
            if answered is not None:
                tokens += len(answered) * 3 // 5 if type(answered) is str else self._any(answered)
                fields += 1
            if len(message) > fields:
                tokens += self._extras(message)
            append(tokens + MESSAGE_OVERHEAD)
        return found

    def total(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None) -> int:
        """Return the tokens of a whole request: all messages, the tools' schemas and the beginning of the reply."""
        return sum(self.counts(messages)) + self.count_tools(tools) + REPLY_PRIMING

    def count_tools(self, tools: Sequence[dict[str, Any]] | None) -> int:
        """Return the tokens of tool schemas, as the JSON that is sent."""
        return self.count_text(_as_text(list(tools))) if tools else 0

    def _remember(self, key: int, count: int) -> int:
        cache = self._cache
        if len(cache) >= self._capacity:
            # A dict keeps the order of insertion, so its first half is the older one.
            for old in list(islice(cache, len(cache) // 2)):
                cache.pop(old, None)
        cache[key] = count
        return count

    def _calls(self, calls: Any) -> int:
        if not isinstance(calls, list | tuple):
            return self._any(calls)
        known = self._cache.get
        tokens = 0
        for call in calls:
            try:
                body = call["function"]
                key = hash((body["name"], body["arguments"]))
                tokens += CALL_OVERHEAD + len(call["id"]) * 3 // 5
            except (KeyError, TypeError):  # not the usual shape, or arguments that are not text yet
                tokens += self._call(call)
                continue
            count = known(key)
            tokens += self._remember(key, self._call_body(body)) if count is None else count
        return tokens

    def _call(self, call: Any) -> int:
        if not isinstance(call, Mapping):
            return self._any(call)
        ident = call.get("id")
        tokens = CALL_OVERHEAD + (len(ident) * 3 // 5 if isinstance(ident, str) else self._any(ident))
        body = call.get("function") or call.get("custom") or call
        return tokens + (self._call_body(body) if isinstance(body, Mapping) else self._any(body))

    def _call_body(self, body: Mapping[str, Any]) -> int:
        arguments = body.get("arguments", body.get("input"))
        return self._any(body.get("name")) + (0 if arguments is None else self.count_text(_as_text(arguments)))

    def _extras(self, message: Message) -> int:
        tokens = 0
        reasoning = 0
        for field in _EXTRA_FIELDS & message.keys():
            value = message[field]
            if value is None:
                continue
            if field in REASONING_FIELDS:
                reasoning = max(reasoning, self._any(value))
            elif field == "function_call":
                tokens += self._call(value)
            else:
                tokens += self._any(value) + NAME_OVERHEAD
        return tokens + reasoning

    def _any(self, value: Any) -> int:
        """Return the tokens of content of any shape: text, a part, a list of parts, or another value as JSON."""
        tokens = 0
        waiting = [value]
        while waiting:  # a stack, so that no depth of nesting can exhaust the interpreter's
            item = waiting.pop()
            if isinstance(item, str):
                is_payload = len(item) > _PAYLOAD_CHARS and item.startswith("data:")
                tokens += payload_tokens(len(item)) if is_payload else self.count_text(item)
            elif isinstance(item, list | tuple):
                waiting.extend(item)
            elif isinstance(item, Mapping):
                kind = item.get("type")
                if not isinstance(kind, str):
                    kind = ""
                media = media_tokens(item) if kind and kind != "text" else None
                if media is not None:
                    tokens += media
                elif kind == "tool_use":
                    tokens += self._call(item)
                elif kind in {"redacted_thinking", "reasoning.encrypted"} and isinstance(item.get("data"), str):
                    tokens += len(item["data"]) // _SEALED_CHARS_PER_TOKEN
                else:
                    waiting.extend(value for key, value in item.items() if key not in _UNSPOKEN)
            elif item is not None:
                tokens += self.count_text(_as_text(item))
        return tokens


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # odd keys, a circle, or nested too deep
        pass
    try:
        return str(value)
    except RecursionError:
        return ""
