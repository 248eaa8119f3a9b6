"""Every setting of ``config.yaml`` as typed, checked, frozen values, each with its default and its limits.

The models here can be made directly (``CompressionSettings(threshold=0.7)``); whether a value was given or is
the default stays visible in ``model_fields_set``. This module does not know where values come from: files,
environment and flags are the business of `everlong.config.load`.
"""

from __future__ import annotations

from typing import Literal

from everlong.config.agent_settings import AgentSettings
from everlong.config.fields import DatabaseUrl, Flag, Name, Names, Price, Ratio, Threshold, WebAddress, Whole
from everlong.config.fields import Section as _Section
from everlong.config.fields import setting as _setting
from everlong.config.gateway_settings import GatewaySettings
from everlong.config.plugin_settings import PluginsSettings
from everlong.config.values import CACHING_DEFAULTS, DEFAULTS, CachingValues, CompressionValues

__all__ = [
    "AuxiliaryCompressionSettings",
    "AuxiliarySettings",
    "CompressionSettings",
    "ContextSettings",
    "MemorySettings",
    "ModelSettings",
    "PromptCachingSettings",
    "ProviderSettings",
    "Settings",
    "StoreSettings",
]


class CompressionSettings(_Section):
    """The built-in compressor: when it compacts, what it protects, how long its summary may be."""

    enabled: Flag = _setting(DEFAULTS.enabled, "true or false", "Whether conversations are compacted at all.")
    threshold: Threshold = _setting(
        DEFAULTS.threshold,
        "a number from 0.0 to 1.0, or auto",
        "Share of the context window at which compaction starts; auto lets the engine choose.",
    )
    target_ratio: Ratio = _setting(
        DEFAULTS.target_ratio,
        "a number from 0.10 to 0.80",
        "Share of the threshold that the newest messages may keep, unmodified, after a compaction.",
        ge=0.10,
        le=0.80,
    )
    protect_last_n: Whole = _setting(
        DEFAULTS.protect_last_n,
        "a whole number from 1 to 1,000,000,000",
        "How many of the newest messages are kept even if they exceed the tail's token budget.",
        ge=1,
    )
    protect_first_n: Whole = _setting(
        DEFAULTS.protect_first_n,
        "a whole number from 0 to 1,000,000,000",
        "How many of the oldest messages are always kept; 3 means system prompt and first exchange.",
        ge=0,
    )
    summary_ratio: Ratio = _setting(
        DEFAULTS.summary_ratio,
        "a number from 0.0 to 1.0",
        "Share of the summarized tokens that the summary aims for.",
        ge=0.0,
        le=1.0,
    )
    summary_min_tokens: Whole = _setting(
        DEFAULTS.summary_min_tokens,
        "a whole number from 1 to 1,000,000,000",
        "The least number of tokens that a summary aims for.",
        ge=1,
    )
    summary_max_tokens: Whole = _setting(
        DEFAULTS.summary_max_tokens,
        "a whole number from 1 to 1,000,000,000",
        "The most tokens that a summary may take, however large the window.",
        ge=1,
    )
    prune_min_chars: Whole = _setting(
        DEFAULTS.prune_min_chars,
        "a whole number from 0 to 1,000,000,000",
        "Old tool results longer than this many characters are cleared before summarizing.",
        ge=0,
    )
    minimum_context_length: Whole = _setting(
        DEFAULTS.minimum_context_length,
        "a whole number from 0 to 1,000,000,000",
        "Floor in tokens below which the default threshold does not fall on small windows.",
        ge=0,
    )
    failure_cooldown_seconds: Whole = _setting(
        DEFAULTS.failure_cooldown_seconds,
        "a whole number from 0 to 1,000,000,000",
        "How many seconds the summary model is left alone after it failed.",
        ge=0,
    )

    def values(self) -> CompressionValues:
        """The same settings as the plain values that the engine works with."""
        return CompressionValues(**self.model_dump(), threshold_is_explicit="threshold" in self.model_fields_set)


class AuxiliaryCompressionSettings(_Section):
    """The model that writes summaries."""

    model: Name | None = _setting(
        None, "a model name, or null for automatic", "Name of the model that writes summaries."
    )
    provider: Name = _setting(
        "auto",
        "auto, main, openrouter, nous, anthropic, openai or another provider's name",
        "Who serves the summary model; auto picks one, main uses the conversation's own.",
    )
    base_url: WebAddress | None = _setting(
        None,
        "an http:// or https:// address, or null",
        "Address of an OpenAI-compatible endpoint to use instead of a named provider.",
    )
    models: Names = _setting(
        [],
        "a list of model names",
        "Several models that may write summaries, in the order in which they are asked; model, if set, comes first.",
    )
    choose: Literal["first_good", "best"] = _setting(
        "first_good",
        "first_good or best",
        "With several models: take the first summary with nothing wrong with it, or ask all and take the best.",
    )

    @property
    def names(self) -> list[str]:
        """The models that are named, in the order in which they are asked, each once."""
        return list(dict.fromkeys([*([self.model] if self.model else []), *self.models]))


class AuxiliarySettings(_Section):
    """Models that help the main one."""

    compression: AuxiliaryCompressionSettings = AuxiliaryCompressionSettings()


class PromptCachingSettings(_Section):
    """Where cache breakpoints go and how long a provider keeps what they mark."""

    cache_ttl: Literal["5m", "1h"] = _setting(
        CACHING_DEFAULTS.cache_ttl, "5m or 1h", "How long the provider keeps a cached prompt."
    )
    strategy: Literal["auto", "ledger", "system_and_3", "off"] = _setting(
        CACHING_DEFAULTS.strategy, "auto, ledger, system_and_3 or off", "How cache breakpoints are placed."
    )
    prefix_ttl: Literal["5m", "1h", "auto"] | None = _setting(
        CACHING_DEFAULTS.prefix_ttl,
        "5m, 1h, auto, or null for that of cache_ttl",
        "How long the provider keeps system prompt, tools and a summary, which change least; auto goes by pauses.",
    )
    keep_alive: Flag = _setting(
        CACHING_DEFAULTS.keep_alive,
        "true or false",
        "Whether a pause is bridged with small requests that keep the cache, as long as that is cheaper.",
    )
    edit_min_gain: Whole = _setting(
        CACHING_DEFAULTS.edit_min_gain,
        "a whole number from 0 to 1,000,000,000",
        "How many tokens an edit of history must free to be made while the provider still holds it.",
        ge=0,
    )

    def values(self) -> CachingValues:
        """The same settings as the plain values that the strategies work with."""
        return CachingValues(**self.model_dump())


class ContextSettings(_Section):
    """Which context engine is active."""

    engine: Name = _setting(
        "compressor",
        "compressor, or the name of an installed engine",
        "Name of the context engine; an engine is active only if it is named here.",
    )
    engine_seconds: Whole = _setting(
        60,
        "a whole number from 1 to 1,000,000,000",
        "How many seconds one call of an engine that is not built in may take; then the built-in one takes over.",
        ge=1,
    )


class MemorySettings(_Section):
    """What is remembered beyond one session, and by whom."""

    enabled: Flag = _setting(
        default=True,
        allowed="true or false",
        description="Whether anything is remembered beyond a session at all.",
    )
    provider: Name | None = _setting(
        None, "the name of a memory provider, or null for none", "The one external memory provider to use."
    )
    scope: Literal["project", "everywhere"] = _setting(
        "project",
        "project or everywhere",
        "Where notes that an agent takes are shown: in the folder that it worked in, or in every one.",
    )
    budget_tokens: Whole = _setting(
        1_200,
        "a whole number from 0 to 1,000,000,000",
        "How many tokens of the system prompt each provider's memories may take.",
        ge=0,
    )
    timeout_seconds: Whole = _setting(
        10,
        "a whole number from 1 to 1,000,000,000",
        "How many seconds a provider may take for one answer before it is left alone.",
        ge=1,
    )
    flush: Flag = _setting(
        default=True,
        allowed="true or false",
        description="Whether a model is asked what to remember before a compaction and at a session's end.",
    )
    flush_min_turns: Whole = _setting(
        6,
        "a whole number from 0 to 1,000,000,000",
        "How many messages of the user a session must have to be asked about at its end.",
        ge=0,
    )


class StoreSettings(_Section):
    """Where conversations are kept, and for how long."""

    url: DatabaseUrl | None = _setting(
        None,
        "sqlite:///path/to/file, postgresql://user@host/database, or null",
        "The database that holds all conversations; null for a file of your own.",
    )
    path: Name | None = _setting(
        None, "the path of a file, or null", "The SQLite file to use where no url is set; null for the usual place."
    )
    wait_seconds: Whole = _setting(
        10, "a whole number from 0 to 1,000,000,000", "How many seconds to wait for others who write.", ge=0
    )
    redact: Flag = _setting(
        default=False,
        allowed="true or false",
        description="Whether keys, tokens and passwords are taken out of messages before they are stored.",
    )
    retention_days: Whole | None = _setting(
        None,
        "a whole number from 1 to 1,000,000,000, or null",
        "Ended sessions older than this many days are deleted; null keeps everything.",
        ge=1,
    )
    retention_megabytes: Whole | None = _setting(
        None,
        "a whole number from 1 to 1,000,000,000, or null",
        "The oldest ended sessions are deleted when the store is larger; null keeps everything.",
        ge=1,
    )


class ModelSettings(_Section):
    """What is known of one model, where the catalogue is wrong or knows nothing."""

    context_length: Whole | None = _setting(
        None, "a whole number from 1 to 1,000,000,000, or null", "The model's window in tokens.", ge=1
    )
    input_price: Price | None = _setting(
        None, "a number from 0, or null", "US dollars for a million tokens of plain input."
    )
    output_price: Price | None = _setting(
        None, "a number from 0, or null", "US dollars for a million tokens of output."
    )
    cache_read_price: Price | None = _setting(
        None, "a number from 0, or null", "US dollars for a million tokens read from the provider's cache."
    )
    cache_write_price: Price | None = _setting(
        None, "a number from 0, or null", "US dollars for a million tokens written to the provider's cache."
    )


class ProviderSettings(_Section):
    """An endpoint that serves models: one of your own, or another address of a known one."""

    api: Literal["openai", "anthropic"] | None = _setting(
        None, "openai, anthropic or null", "The format it speaks; null means that of the known provider, else openai."
    )
    base_url: WebAddress | None = _setting(
        None, "an http:// or https:// address, or null", "Where it is; null means the known provider's address."
    )
    key_variable: Name | None = _setting(
        None, "the name of an environment variable, or null", "The environment variable that holds its key."
    )


class Settings(_Section):
    """The whole of ``config.yaml``."""

    compression: CompressionSettings = CompressionSettings()
    agent: AgentSettings = AgentSettings()
    auxiliary: AuxiliarySettings = AuxiliarySettings()
    prompt_caching: PromptCachingSettings = PromptCachingSettings()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    store: StoreSettings = StoreSettings()
    gateway: GatewaySettings = GatewaySettings()
    models: dict[Name, ModelSettings] = _setting(
        {}, "a mapping of model names to their settings", "What is known of single models."
    )
    providers: dict[Name, ProviderSettings] = _setting(
        {}, "a mapping of provider names to their settings", "Endpoints that serve models."
    )
    plugins: PluginsSettings = PluginsSettings()
