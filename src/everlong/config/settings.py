"""The settings of ``config.yaml`` as frozen models that check types and limits.

The models can be made directly (``CompressionSettings(threshold=0.7)``); ``model_fields_set`` tells given values from
defaults. `everlong.config.load` reads values from files, environment and flags.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from everlong.config.values import CACHING_DEFAULTS, DEFAULTS, CachingValues, CompressionValues

__all__ = [
    "AgentSettings",
    "AgentToolsSettings",
    "AuxiliaryCompressionSettings",
    "AuxiliarySettings",
    "ChannelSettings",
    "ChannelsSettings",
    "CompressionSettings",
    "ContextSettings",
    "DiscordSettings",
    "GatewaySettings",
    "KeySettings",
    "MemorySettings",
    "ModelSettings",
    "PluginsSettings",
    "PromptCachingSettings",
    "ProviderSettings",
    "RouteSettings",
    "SearchSettings",
    "Settings",
    "StoreSettings",
    "TelegramSettings",
    "ToolPolicy",
]

# -- kinds of values ------------------------------------------------------------------------------------------------

_MOST = 1_000_000_000
"""The most that a whole number can be."""


def _not_bool(value: object) -> object:
    # Python counts True as 1, so without this "protect_last_n: true" would protect one message.
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")  # noqa: TRY004 - pydantic collects ValueError only
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number is wanted")
    return value


def _not_number(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("true or false is wanted, not a number")  # noqa: TRY004 - as above
    return value


def _name(value: str) -> str:
    if not value.strip():
        raise ValueError("a name is wanted, not an empty text")
    return value.strip()


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(c.isspace() for c in value):
        raise ValueError("an http or https address is wanted")
    _ = parts.port  # raises ValueError for a port that is none
    return value


def _database_url(value: str) -> str:
    kind = value.partition("://")[0].partition("+")[0]
    if "://" in value and kind not in {"sqlite", "postgresql", "postgres"}:
        raise ValueError("a path, or a sqlite:/// or postgresql:// address is wanted")
    return value


def _split_names(value: object) -> object:
    # One name needs no brackets, and an environment variable has no other form for several: "a, b".
    if isinstance(value, str):
        inner = value.strip().removeprefix("[").removesuffix("]")
        return [name.strip().strip("'\"") for name in inner.split(",") if name.strip()]
    return value


Flag: TypeAlias = Annotated[bool, BeforeValidator(_not_number)]
Whole: TypeAlias = Annotated[int, BeforeValidator(_not_bool), Field(le=_MOST)]
Ratio: TypeAlias = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]
Price: TypeAlias = Annotated[float, BeforeValidator(_not_bool), Field(ge=0.0, allow_inf_nan=False)]
Name: TypeAlias = Annotated[str, AfterValidator(_name)]
Names: TypeAlias = Annotated[list[Name], BeforeValidator(_split_names)]
WebAddress: TypeAlias = Annotated[Name, AfterValidator(_web_address)]
DatabaseUrl: TypeAlias = Annotated[Name, AfterValidator(_database_url)]
Threshold: TypeAlias = Annotated[
    Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] | Literal["auto"], BeforeValidator(_not_bool)
]


def setting(default: Any, allowed: str, description: str, **limits: Any) -> Any:
    """Return a field that says in words what it allows, for error messages and for ``config show``."""
    return Field(default, description=description, json_schema_extra={"allowed": allowed}, **limits)


def flag(*, default: bool, description: str) -> Any:
    """Return a field that is true or false."""
    return setting(default, "true or false", description)


def count(default: int, description: str, least: int = 1, most: int = _MOST) -> Any:
    """Return a field for a whole number."""
    return setting(default, f"a whole number from {least} to {most:,}", description, ge=least, le=most)


def optional_count(default: int | None, description: str) -> Any:
    """Return a field for a whole number from 1, or null."""
    return setting(default, f"a whole number from 1 to {_MOST:,}, or null", description, ge=1)


class Section(BaseModel):
    """A section of ``config.yaml``: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# -- sections -------------------------------------------------------------------------------------------------------


class AgentToolsSettings(Section):
    """Limits and environment of the agent's tools."""

    pass_env: Names = setting(
        [],
        "a list of names, in which * stands for any letters",
        "Further environment variables that commands see; keys, tokens and passwords do not pass otherwise.",
    )


class AgentSettings(Section):
    """The agent of ``everlong run`` and ``everlong chat``; limits are for one prompt, from question to answer."""

    model: Name | None = setting(
        None,
        "provider:model, the path of a .gguf file, or null",
        "The model that the agent talks to where the command line names none; a file is served by `run` and `chat`.",
    )
    max_output_tokens: Whole | None = optional_count(
        None, "The most tokens of one answer; null for 16,384, and never more than a quarter of the window."
    )
    max_steps: Whole | None = optional_count(200, "The most answers of the model to one prompt.")
    max_cost: Price | None = setting(
        None, "a number from 0, or null", "The most US dollars that one prompt may cost, where prices are known."
    )
    sandbox: Literal["auto", "on", "off"] = setting(
        "auto",
        "auto, on or off",
        "Whether commands run in the system's sandbox: where there is one, always (else they are refused), or never.",
    )
    ask_in_sandbox: Flag = flag(
        default=True,
        description="Whether commands in the sandbox are asked about too; those that want the network always are.",
    )
    tools: AgentToolsSettings = AgentToolsSettings()


Digest: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class RouteSettings(Section):
    """The upstream of some models."""

    base_url: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "The upstream; null for the one that holds for all."
    )
    key_variable: Name | None = setting(
        None,
        "the name of an environment variable, or null",
        "The environment variable with the key that takes the place of the client's own.",
    )
    recall: Flag = flag(
        default=False, description="Whether models get tools to look up earlier words, hidden from the client."
    )


class KeySettings(Section):
    """One key of the gateway; its name is the tenant whose conversations it reaches."""

    key_variable: Name | None = setting(
        None, "the name of an environment variable, or null", "The environment variable that holds the key."
    )
    sha256: Digest | None = setting(
        None, "64 hexadecimal digits, or null", "The key's SHA-256, where the key itself is not to be known here."
    )
    requests_per_minute: Whole | None = optional_count(None, "The most requests in a minute; null for no limit.")
    concurrent_requests: Whole | None = optional_count(None, "The most requests at a time; null for no limit.")
    dollars_per_day: Price | None = setting(
        None,
        "a number from 0, or null",
        "The most US dollars in a day (UTC), where prices are known; null for no limit.",
    )
    other_paths: Flag = flag(
        default=False,
        description="Whether paths that the gateway does not know go on with the gateway's own upstream key.",
    )
    inspect: Flag = flag(
        default=False, description="Whether the key opens the inspector, which shows its conversations in a browser."
    )


class GatewaySettings(Section):
    """The gateway of ``everlong serve``."""

    host: Name = setting("127.0.0.1", "a host name or an address", "Where the gateway listens.")
    port: Whole = count(8642, "The port; 0 for any free one.", least=0, most=65_535)
    hosts: Name | None = setting(
        None,
        "host names with commas between them, or null",
        "Names beside those of this machine by which clients may call a gateway that needs no key.",
    )
    upstream: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "Where requests go; null for the API's own address."
    )
    routes: dict[Name, RouteSettings] = setting(
        {}, "a mapping of patterns of model names to upstreams", "Upstreams for models by name (`claude-*`)."
    )
    summaries: Name = setting(
        "own",
        "own, built-in, or a model as provider:model",
        "Who writes summaries: each conversation's own model with its client's key, nobody, or a model of yours.",
    )
    keys: dict[Name, KeySettings] = setting(
        {}, "a mapping of names to keys", "Who may use the gateway; whoever reaches it where there are none."
    )
    when_full: Literal["refuse", "pass"] = setting(
        "refuse",
        "refuse or pass",
        "What becomes of requests that neither the journal nor the database can keep: refused with 503, or passed on.",
    )


def _id_text(value: object) -> object:
    # YAML reads an id without quotes as a number.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _id_list(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    return [_id_text(each) for each in value] if isinstance(value, list) else value


Ids: TypeAlias = Annotated[Names, BeforeValidator(_id_list)]
ToolPolicy: TypeAlias = Literal["ask", "read", "never", "yes"]

_IDS = "a list of ids"
_POLICIES = "ask, read, never or yes"


class ChannelSettings(Section):
    """The settings that each platform has."""

    enabled: Flag = flag(default=False, description="Whether the channel runs; it needs a token and a list.")
    api_base: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "Where the platform's API is; null for its own address."
    )
    users: Ids = setting([], _IDS, "People who may talk to the agent, besides those that were paired.")
    chats: Ids = setting([], _IDS, "Chats in which everybody may talk to the agent.")


class TelegramSettings(ChannelSettings):
    """Telegram."""


class DiscordSettings(ChannelSettings):
    """Discord."""

    guilds: Ids = setting([], _IDS, "Servers in which everybody may talk to the agent.")


class ChannelsSettings(Section):
    """The channels of ``everlong channels run`` and ``everlong serve``."""

    workspace: Name | None = setting(
        None,
        "the path of a folder, or null",
        "The folder that the agent's tools see; null for an empty one of its own.",
    )
    groups: Literal["addressed", "all"] = setting(
        "addressed", "addressed or all", "Which messages of a group are answered: those to the bot, or every one."
    )
    tools: ToolPolicy = setting(
        "ask",
        _POLICIES,
        "What the agent's tools may do: effects after a press on a button, reading only, nothing, or everything.",
    )
    stream: Flag = flag(default=True, description="Whether an answer is shown while the model writes it.")
    telegram: TelegramSettings = TelegramSettings()
    discord: DiscordSettings = DiscordSettings()


class PluginsSettings(BaseModel):
    """The folders of plugins, and a section per plugin that only the plugin understands."""

    model_config = ConfigDict(extra="allow", frozen=True)

    paths: Names = setting([], "a list of folders", "Further folders to look for plugins in, besides your own.")

    @property
    def sections(self) -> dict[str, Any]:
        """The unchecked sections of plugins, by name."""
        return dict(self.__pydantic_extra__ or {})

    def section(self, name: str) -> dict[str, Any]:
        """Return a plugin's own settings; empty if there is no section or it is no mapping."""
        found = self.sections.get(name)
        return dict(found) if isinstance(found, dict) else {}


class CompressionSettings(Section):
    """The built-in compressor: its trigger, the messages it protects, and the length of its summaries.

    >>> settings = CompressionSettings(threshold=0.6, protect_last_n=10)
    >>> ContextCompressor(200_000, settings=settings).threshold_tokens
    120000
    """

    enabled: Flag = flag(default=DEFAULTS.enabled, description="Whether conversations are compacted at all.")
    threshold: Threshold = setting(
        DEFAULTS.threshold,
        "a number from 0.0 to 1.0, or auto",
        "Share of the context window at which compaction starts; auto lets the engine choose.",
    )
    target_ratio: Ratio = setting(
        DEFAULTS.target_ratio,
        "a number from 0.10 to 0.80",
        "Share of the threshold that the newest messages may keep, unmodified, after a compaction.",
        ge=0.10,
        le=0.80,
    )
    protect_last_n: Whole = count(
        DEFAULTS.protect_last_n, "How many of the newest messages are kept even if they exceed the tail's token budget."
    )
    protect_first_n: Whole = count(
        DEFAULTS.protect_first_n,
        "How many of the oldest messages are always kept; 3 means system prompt and first exchange.",
        least=0,
    )
    summary_ratio: Ratio = setting(
        DEFAULTS.summary_ratio,
        "a number from 0.0 to 1.0",
        "Share of the summarized tokens that the summary aims for.",
        ge=0.0,
        le=1.0,
    )
    summary_min_tokens: Whole = count(
        DEFAULTS.summary_min_tokens, "The least number of tokens that a summary aims for."
    )
    summary_max_tokens: Whole = count(
        DEFAULTS.summary_max_tokens, "The most tokens that a summary may take, however large the window."
    )
    prune_min_chars: Whole = count(
        DEFAULTS.prune_min_chars,
        "Old tool results longer than this many characters are cleared before summarizing.",
        least=0,
    )
    minimum_context_length: Whole = count(
        DEFAULTS.minimum_context_length,
        "Floor in tokens below which the default threshold does not fall on small windows.",
        least=0,
    )
    failure_cooldown_seconds: Whole = count(
        DEFAULTS.failure_cooldown_seconds, "How many seconds the summary model is left alone after it failed.", least=0
    )

    def values(self) -> CompressionValues:
        """Return the plain values that the engine works with."""
        return CompressionValues(**self.model_dump(), threshold_is_explicit="threshold" in self.model_fields_set)


class AuxiliaryCompressionSettings(Section):
    """The model that writes summaries."""

    model: Name | None = setting(
        None, "a model name, or null for automatic", "Name of the model that writes summaries."
    )
    provider: Name = setting(
        "auto",
        "auto, main, openrouter, nous, anthropic, openai or another provider's name",
        "Who serves the summary model; auto picks one, main uses the conversation's own.",
    )
    base_url: WebAddress | None = setting(
        None,
        "an http:// or https:// address, or null",
        "Address of an OpenAI-compatible endpoint to use instead of a named provider.",
    )
    models: Names = setting(
        [],
        "a list of model names",
        "Several models that may write summaries, in the order in which they are asked; model, if set, comes first.",
    )
    choose: Literal["first_good", "best"] = setting(
        "first_good",
        "first_good or best",
        "With several models: take the first summary with nothing wrong with it, or ask all and take the best.",
    )

    @property
    def names(self) -> list[str]:
        """The named models in the order in which they are asked, each once."""
        return list(dict.fromkeys([*([self.model] if self.model else []), *self.models]))

    @property
    def names_model(self) -> bool:
        """True if these settings choose the model that writes summaries."""
        return bool(self.names) or self.base_url is not None or self.provider not in {"auto", "main"}


class AuxiliarySettings(Section):
    """Models that help the main one."""

    compression: AuxiliaryCompressionSettings = AuxiliaryCompressionSettings()


class PromptCachingSettings(Section):
    """The placement of cache breakpoints, and how long providers keep cached prompts."""

    cache_ttl: Literal["5m", "1h"] = setting(
        CACHING_DEFAULTS.cache_ttl, "5m or 1h", "How long the provider keeps a cached prompt."
    )
    strategy: Literal["auto", "ledger", "system_and_3", "off"] = setting(
        CACHING_DEFAULTS.strategy, "auto, ledger, system_and_3 or off", "How cache breakpoints are placed."
    )

    def values(self) -> CachingValues:
        """Return the plain values that the strategies work with."""
        return CachingValues(**self.model_dump())


class ContextSettings(Section):
    """The active context engine."""

    engine: Name = setting(
        "compressor",
        "compressor, lcm, or the name of an installed engine",
        "Name of the context engine; an engine is active only if it is named here.",
    )


class MemorySettings(Section):
    """Memory beyond one session, and its provider."""

    enabled: Flag = flag(default=True, description="Whether anything is remembered beyond a session at all.")
    provider: Name | None = setting(
        None, "the name of a memory provider, or null for none", "The one external memory provider to use."
    )
    scope: Literal["project", "everywhere"] = setting(
        "project",
        "project or everywhere",
        "Where notes that an agent takes are shown: in the folder that it worked in, or in every one.",
    )
    flush: Flag = flag(
        default=True,
        description="Whether a model is asked what to remember before a compaction and at a session's end.",
    )


class StoreSettings(Section):
    """The database of conversations, and how long it keeps them."""

    url: DatabaseUrl | None = setting(
        None,
        "the path of a file, postgresql://user@host/database, or null",
        "The database that holds all conversations: a SQLite file or a server; null for the usual file.",
    )
    redact: Flag = flag(
        default=False,
        description="Whether keys, tokens and passwords are taken out of messages before they are stored.",
    )
    retention_days: Whole | None = optional_count(
        None, "Ended sessions older than this many days are deleted; null keeps everything."
    )


class SearchSettings(Section):
    """The search over all conversations."""

    embeddings: Name = setting(
        "off",
        "off, or an embedding model as provider:model",
        "The model by which questions also find messages by meaning; it is sent the words of all messages.",
    )


class ModelSettings(Section):
    """Window and prices of one model, for models that the catalogue does not know or has wrong."""

    context_length: Whole | None = optional_count(None, "The model's window in tokens.")
    input_price: Price | None = setting(
        None, "a number from 0, or null", "US dollars for a million tokens of plain input."
    )
    output_price: Price | None = setting(None, "a number from 0, or null", "US dollars for a million tokens of output.")
    cache_read_price: Price | None = setting(
        None, "a number from 0, or null", "US dollars for a million tokens read from the provider's cache."
    )
    cache_write_price: Price | None = setting(
        None, "a number from 0, or null", "US dollars for a million tokens written to the provider's cache."
    )


class ProviderSettings(Section):
    """An endpoint that serves models: one of your own, or another address of a known one."""

    api: Literal["openai", "anthropic"] | None = setting(
        None, "openai, anthropic or null", "The format it speaks; null means that of the known provider, else openai."
    )
    base_url: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "Where it is; null means the known provider's address."
    )
    key_variable: Name | None = setting(
        None, "the name of an environment variable, or null", "The environment variable that holds its key."
    )


class Settings(Section):
    """The whole of ``config.yaml``."""

    compression: CompressionSettings = CompressionSettings()
    agent: AgentSettings = AgentSettings()
    auxiliary: AuxiliarySettings = AuxiliarySettings()
    prompt_caching: PromptCachingSettings = PromptCachingSettings()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    store: StoreSettings = StoreSettings()
    search: SearchSettings = SearchSettings()
    gateway: GatewaySettings = GatewaySettings()
    channels: ChannelsSettings = ChannelsSettings()
    models: dict[Name, ModelSettings] = setting(
        {}, "a mapping of model names to their settings", "What is known of single models."
    )
    providers: dict[Name, ProviderSettings] = setting(
        {}, "a mapping of provider names to their settings", "Endpoints that serve models."
    )
    plugins: PluginsSettings = PluginsSettings()
