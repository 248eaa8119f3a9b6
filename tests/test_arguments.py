"""Arguments of a wrong type: the error names the argument and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everlong
from everlong import ConfigError, MessageError, open_store


def _complete(messages: list[everlong.Message], max_tokens: int) -> str:
    del messages, max_tokens
    return ""


WRONG: dict[str, Callable[[Any], object]] = {
    "context_length": everlong.ContextCompressor,
    "settings": lambda value: everlong.ContextCompressor(settings=value),
    "summarizer": lambda value: everlong.ContextCompressor(summarizer=value),
    "model": lambda value: everlong.ContextCompressor(model=value),
    "clock": lambda value: everlong.ContextCompressor(clock=value),
    "usage": lambda value: everlong.ContextCompressor().update_from_response(value),
    "complete": everlong.CompletionSummarizer,
    "window": lambda value: everlong.WarmPrefixSummarizer(_complete, window=value),
    "members": everlong.SummarizerChain,
    "a member of the chain": lambda value: everlong.SummarizerChain([value]),
    "provider": lambda value: everlong.PromptCache("gpt-4o", value),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("value", [2.5, object()], ids=["number", "object"])
def test_an_argument_of_a_wrong_type_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be") as refused:
        WRONG[name](value)
    assert refused.value.key == name


@pytest.mark.parametrize(
    "use",
    [
        lambda value: everlong.ContextCompressor().should_compress_preflight(value),
        everlong.repair_messages,
        everlong.apply_anthropic_cache_control,
        everlong.estimate_messages_tokens_rough,
    ],
)
def test_what_is_no_list_of_messages_is_refused_everywhere(use: Callable[[Any], object]) -> None:
    with pytest.raises(MessageError, match="expected a list of messages, got int"):
        use(5)


def test_a_store_is_opened_by_its_path_and_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        at = store.record([{"role": "user", "content": "hello"}])
    with open_store(str(tmp_path / "a.db")) as store:
        assert store.context(at)[0]["role"] == "user"
    with pytest.raises(ConfigError, match="settings must be a path, a url, StoreSettings, or None, got 5"):
        open_store(5)  # type: ignore[arg-type]
