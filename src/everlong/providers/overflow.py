"""Recognises that a prompt was too long, whoever says so, and reads the numbers from the words.

Each pattern is a wording that an API is known to use; where none fits but the words speak of a context length, the
numbers in the text are taken as they come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

__all__ = ["overflow_numbers"]

_NUMBER = r"(?P<{0}>\d[\d,_]*)"
_PROMPT, _LIMIT = _NUMBER.format("prompt"), _NUMBER.format("limit")
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Anthropic
        rf"prompt is too long: {_PROMPT} tokens > {_LIMIT}",
        rf"exceed context limit: (?P<input>\d+) \+ (?P<output>\d+) > {_LIMIT}",
        # OpenAI, vLLM, DeepSeek, OpenRouter
        rf"maximum context length is {_LIMIT} tokens.*?resulted in {_PROMPT} tokens",
        rf"maximum context length is {_LIMIT} tokens.*?requested (?:about )?{_PROMPT} tokens",
        rf"maximum context length is {_LIMIT} tokens.*?has {_PROMPT} input tokens",
        # llama.cpp
        rf"request \({_PROMPT} tokens\) exceeds the available context size \({_LIMIT} tokens\)",
        rf"exceeds the available context size \({_LIMIT} tokens\)",
        # Gemini, xAI, Mistral
        rf"input token count \(?{_PROMPT}\)? exceeds the maximum number of tokens allowed \(?{_LIMIT}",
        rf"maximum prompt length is {_LIMIT} but the request contains {_PROMPT} tokens",
        rf"prompt contains {_PROMPT} tokens.*?{_LIMIT} maximum context length",
    )
)
_KINDS = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_context"})
_WORDS = re.compile(
    r"context[ _-](length|window|size|limit)|maximum context|too many (input )?tokens|prompt is too long"
    r"|input is too long|exceeds? the (model'?s )?maximum (number of )?(input )?tokens",
    re.IGNORECASE,
)
_OUTPUT_LIMIT = re.compile(r"maximum allowed number of output tokens|max(imum)?_?\w* ?output tokens", re.IGNORECASE)
_ANY_NUMBER = re.compile(r"\d[\d,_]{2,}")


def overflow_numbers(message: str, body: Mapping[str, Any], kinds: Set[str]) -> tuple[int | None, int | None] | None:
    """The tokens of the prompt and the limit, each where known; None where this is no overflow at all."""
    told = body.get("n_prompt_tokens"), body.get("n_ctx")
    if all(isinstance(number, int) for number in told):
        return told
    for pattern in _PATTERNS:
        found = pattern.search(message)
        if found:
            return _numbers(found.groupdict())
    if _OUTPUT_LIMIT.search(message):  # "max_tokens: 100000 > 64000": the answer was asked too long, not the prompt
        return None
    if not (kinds & _KINDS or _WORDS.search(message)):
        return None
    numbers = sorted(int(re.sub(r"[,_]", "", text)) for text in _ANY_NUMBER.findall(message))
    if len(numbers) >= 2:
        return numbers[-1], numbers[-2]
    return None, numbers[0] if numbers else None


def _numbers(groups: Mapping[str, str | None]) -> tuple[int | None, int | None]:
    def number(name: str) -> int | None:
        text = groups.get(name)
        return None if text is None else int(re.sub(r"[,_]", "", text))

    parts = number("input"), number("output")
    if parts[0] is not None and parts[1] is not None:
        return parts[0] + parts[1], number("limit")
    return number("prompt"), number("limit")
