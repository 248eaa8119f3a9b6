"""The published rules of providers' prompt caches, as data.

Prices are in units of one fresh input token of the same model. Strategies read the rules to place markers, the
simulator to price a placement. A model or provider that is not listed gets the most careful values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from everlong.tokens import Prices

__all__ = [
    "SECONDS",
    "CacheRules",
    "ModelRules",
    "Provider",
    "Ttl",
    "cache_rules",
    "is_claude",
    "model_rules",
    "prices_for",
    "provider_of",
    "takes_marker",
]

Ttl: TypeAlias = Literal["5m", "1h"]
Provider: TypeAlias = Literal[
    "anthropic", "openrouter", "bedrock", "vertex", "openai", "gemini", "deepseek", "xai", "local", "unknown"
]
SECONDS: dict[str, int] = {"5m": 300, "30m": 1_800, "1h": 3_600}

_MARKED_KINDS = frozenset(
    {
        "text",
        "image",
        "document",
        "search_result",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "advisor_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
        "browser_state",
        # Pictures and documents of messages in OpenAI's format:
        "image_url",
        "file",
    }
)
"""Content types that take a marker (Anthropic documentation, API reference: Messages, 2026-10); a marker on other
content could be refused."""


def takes_marker(kind: object) -> bool:
    """Return whether content of a type is known to take a marker."""
    return isinstance(kind, str) and kind in _MARKED_KINDS


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The workings of one provider's cache."""

    provider: Provider
    style: Literal["markers", "automatic"]
    """``markers`` if the request says what is kept, ``automatic`` if the provider keeps every prefix."""
    breakpoints: int = 4
    look_back: int = 20
    """Positions that a read walks back from a marker, the marker's own included."""
    collapses_tool_runs: bool = False
    """True if a run of calls counts as one position of the look-back, and a run of results likewise."""
    ttl_seconds: int = 300
    """Seconds for which an automatic cache keeps an unused prefix."""
    step_tokens: int = 1
    """Tokens per step of a read from an automatic cache."""
    implicit_breakpoint: bool = False
    """True if the provider writes only where the latest user message or tool result ends."""
    routing_key: str | None = None
    """The request field (or header, if it has a dash) that keeps a session on the machine with its cache."""


@dataclass(frozen=True, slots=True)
class ModelRules:
    """The prices of one model's cache, and the least prompt it caches."""

    minimum_tokens: int
    read: float
    write: dict[str, float] = field(default_factory=lambda: {"5m": 1.25, "1h": 2.0})
    step: tuple[int, float] | None = None
    """A prompt size, and the factor for all rates above it."""

    def scale(self, prompt_tokens: int) -> float:
        """Return the factor for all rates at a prompt of this size."""
        return self.step[1] if self.step is not None and prompt_tokens > self.step[0] else 1.0


# Read in 2026-10, in the documentation of each provider: Anthropic, "Prompt caching" and "Pricing"; OpenRouter, "Prompt
# caching"; Amazon Bedrock user guide, "Prompt caching for faster model inference"; Google Cloud, "Claude prompt
# caching"; OpenAI, "Prompt caching"; Gemini API and DeepSeek API, "Context caching"; xAI, "Cached prompt tokens"; vLLM,
# "Automatic prefix caching".
_RULES: dict[Provider, CacheRules] = {
    "anthropic": CacheRules("anthropic", "markers", collapses_tool_runs=True),
    "openrouter": CacheRules("openrouter", "markers", routing_key="session_id"),
    "bedrock": CacheRules("bedrock", "markers"),
    "vertex": CacheRules("vertex", "markers"),
    "openai": CacheRules("openai", "automatic", ttl_seconds=300, step_tokens=128, routing_key="prompt_cache_key"),
    "gemini": CacheRules("gemini", "automatic", ttl_seconds=300),
    "deepseek": CacheRules("deepseek", "automatic", ttl_seconds=3_600, step_tokens=64),
    "xai": CacheRules("xai", "automatic", ttl_seconds=300, routing_key="x-grok-conv-id"),
    "local": CacheRules("local", "automatic", ttl_seconds=300, step_tokens=16),
    "unknown": CacheRules("unknown", "automatic", ttl_seconds=300, step_tokens=128),
}
_OPENAI_MARKED = CacheRules(
    "openai", "automatic", ttl_seconds=1_800, implicit_breakpoint=True, routing_key="prompt_cache_key"
)

_FREE_WRITES = {"5m": 1.0, "1h": 1.0}
_MINIMUM: dict[str, tuple[tuple[float, int], ...]] = {  # from this version on
    "opus": ((5.0, 512), (4.8, 1_024), (4.7, 2_048), (4.5, 4_096), (0.0, 1_024)),
    "sonnet": ((5.5, 512), (0.0, 1_024)),
    "haiku": ((5.5, 512), (4.5, 4_096), (0.0, 2_048)),
    "fable": ((0.0, 512),),
    "mythos": ((0.0, 512),),
}
_CHEAP_READS: dict[str, tuple[tuple[float, float], ...]] = {
    "opus": ((5.5, 0.05),),
    "sonnet": ((5.5, 0.05),),
    "fable": ((5.1, 0.025),),
    "mythos": ((5.1, 0.025),),
}
_FAMILY = re.compile(r"(opus|sonnet|haiku|fable|mythos)")
_VERSION = re.compile(r"(?<=-)(\d)(?:[.-](\d))?(?!\d)")
_GPT = re.compile(r"gpt-?(\d+)(?:\.(\d+))?")
_REASONERS = re.compile(r"(?:^|/)o\d")
_CAREFUL = ModelRules(4_096, 0.1)


def is_claude(model: str) -> bool:
    """Return whether a model is one of Anthropic's, by its name."""
    return "claude" in model.lower()


def provider_of(name: str = "", base_url: str = "", model: str = "") -> Provider:
    """Return the provider meant by a name or an address, or else by a model's name."""
    for text in (name.lower(), base_url.lower()):
        for sign, provider in _SIGNS:
            if sign in text:
                return provider
    if name and name.lower() not in ("auto", "main"):
        return "unknown"
    lowered = model.lower()
    if lowered.startswith(("anthropic.", "us.anthropic.", "eu.anthropic.", "apac.anthropic.", "global.anthropic.")):
        return "bedrock"
    if "/" in lowered:
        return "openrouter"
    for sign, provider in _MODEL_SIGNS:
        if lowered.startswith(sign):
            return provider
    return "unknown"


_SIGNS: tuple[tuple[str, Provider], ...] = (
    ("openrouter", "openrouter"),
    ("bedrock", "bedrock"),
    ("vertex", "vertex"),
    ("aiplatform", "vertex"),
    ("anthropic", "anthropic"),
    ("openai", "openai"),
    ("gemini", "gemini"),
    ("generativelanguage", "gemini"),
    ("deepseek", "deepseek"),
    ("xai", "xai"),
    ("x.ai", "xai"),
    ("vllm", "local"),
    ("sglang", "local"),
    ("llama.cpp", "local"),
    ("ollama", "local"),
    ("localhost", "local"),
    ("127.0.0.1", "local"),
)
_MODEL_SIGNS: tuple[tuple[str, Provider], ...] = (
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "gemini"),
    ("deepseek", "deepseek"),
    ("grok", "xai"),
)


def cache_rules(provider: Provider, model: str = "") -> CacheRules:
    """Return the rules of a provider's cache for a model."""
    return _OPENAI_MARKED if provider == "openai" and _gpt_version(model) >= (5, 6) else _RULES[provider]


def model_rules(model: str) -> ModelRules:
    """Return a model's cache prices, by its name in any provider's spelling."""
    name = model.lower()
    if is_claude(name):
        return _claude_rules(name)
    version = _gpt_version(name)
    if version >= (5, 6):
        return ModelRules(1_024, 0.1, {"5m": 1.25, "1h": 1.25})
    if version > (0, 0) or _REASONERS.search(name):
        read = 0.1 if version >= (5, 0) else 0.5 if version == (4, 0) else 0.25
        return ModelRules(1_024, read, _FREE_WRITES)
    if "gemini" in name:
        return ModelRules(2_048, 0.1, _FREE_WRITES)
    if "deepseek" in name:
        return ModelRules(64, 0.1, _FREE_WRITES)
    if "grok" in name:
        return ModelRules(1_024, 0.25, _FREE_WRITES)
    return _CAREFUL


def prices_for(model: str, *, cold_share: float = 0.0) -> Prices:
    """Return a model's cache prices in the form that the compressor's automatic threshold uses."""
    rules = model_rules(model)
    return Prices(
        cache_read=rules.read,
        cache_write=rules.write["5m"],
        cold_share=cold_share,
        dearer_above=None if rules.step is None else rules.step[0],
        are_known=rules is not _CAREFUL,
    )


def _claude_rules(name: str) -> ModelRules:
    family = _FAMILY.search(name)
    if family is None:
        return ModelRules(4_096, 0.1)
    kind = family[1]
    # New names have the version after the family, old ones (claude-3-5-sonnet) before it; a date is no version.
    found = _VERSION.search(name, family.end()) or _VERSION.search(name[: family.start()])
    version = 0.0 if found is None else float(f"{found[1]}.{found[2] or 0}")
    minimum = next(tokens for least, tokens in _MINIMUM[kind] if version >= least)
    read = next((price for least, price in _CHEAP_READS.get(kind, ()) if version >= least), 0.1)
    step = (100_000, 5.0) if kind == "haiku" and version >= 5.5 else None
    return ModelRules(minimum, read, step=step)


def _gpt_version(model: str) -> tuple[int, int]:
    found = _GPT.search(model.lower())
    return (0, 0) if found is None else (int(found[1]), int(found[2] or 0))
