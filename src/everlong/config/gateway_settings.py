"""Settings of the gateway: where it listens, where requests go, who may use it and how much."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import StringConstraints

from everlong.config.fields import Flag, Name, Price, Section, WebAddress, Whole, setting

__all__ = ["GatewaySettings", "KeySettings", "RouteSettings"]

Digest: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_COUNT = "a whole number from 1 to 1,000,000,000"


class RouteSettings(Section):
    """Where requests for some models go."""

    base_url: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "The upstream; null for the one that holds for all."
    )
    key_variable: Name | None = setting(
        None,
        "the name of an environment variable, or null",
        "The environment variable with the key that takes the place of the client's own.",
    )
    recall: Flag = setting(
        default=False,
        allowed="true or false",
        description="Whether models get a tool to look up what was said before, which the client does not see.",
    )


class KeySettings(Section):
    """One key of the gateway; its name is the tenant whose conversations it reaches."""

    key_variable: Name | None = setting(
        None, "the name of an environment variable, or null", "The environment variable that holds the key."
    )
    sha256: Digest | None = setting(
        None, "64 hexadecimal digits, or null", "The key's SHA-256, where the key itself is not to be known here."
    )
    requests_per_minute: Whole | None = setting(
        None, f"{_COUNT}, or null", "The most requests in a minute; null for no limit.", ge=1
    )
    concurrent_requests: Whole | None = setting(
        None, f"{_COUNT}, or null", "The most requests at a time; null for no limit.", ge=1
    )
    body_megabytes: Whole | None = setting(
        None, f"{_COUNT}, or null", "The largest request; null for that of gateway.body_megabytes.", ge=1
    )
    dollars_per_day: Price | None = setting(
        None,
        "a number from 0, or null",
        "The most US dollars in a day (UTC), where prices are known; null for no limit.",
    )
    other_paths: Flag = setting(
        default=False,
        allowed="true or false",
        description="Whether paths that the gateway does not know go on with the gateway's own upstream key.",
    )


class GatewaySettings(Section):
    """The gateway of ``everlong serve``."""

    host: Name = setting("127.0.0.1", "a host name or an address", "Where the gateway listens.")
    port: Whole = setting(8642, "a whole number from 0 to 65,535", "The port; 0 for any free one.", ge=0, le=65_535)
    hosts: Name | None = setting(
        None,
        "host names with commas between them, or null",
        "Names beside those of this machine by which clients may call a gateway that needs no key.",
    )
    mode: Literal["active", "audit"] = setting(
        "active", "active or audit", "Whether requests may be changed; audit changes none, stores and measures."
    )
    upstream: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "Where requests go; null for the API's own address."
    )
    ca_bundle: Name | None = setting(
        None,
        "the path of a file or folder, or null",
        "Certificates (PEM) that upstreams and proxies may show beside those that the system trusts.",
    )
    routes: dict[Name, RouteSettings] = setting(
        {}, "a mapping of patterns of model names to upstreams", "Upstreams for models by name (`claude-*`)."
    )
    summaries: Name = setting(
        "own",
        "own, extractive, or a model as provider:model",
        "Who writes summaries: each conversation's own model with its client's key, nobody, or a model of yours.",
    )
    summaries_per_day: Whole = setting(
        1_000,
        "a whole number from 0 to 1,000,000,000",
        "The most summaries in a day (UTC) that conversations' own models are asked for.",
        ge=0,
    )
    idle_minutes: Whole = setting(
        1_440,
        _COUNT,
        "After so long a silence a conversation has expired: its context engine is told that the session is over.",
        ge=1,
    )
    keys: dict[Name, KeySettings] = setting(
        {}, "a mapping of names to keys", "Who may use the gateway; whoever reaches it where there are none."
    )
    body_megabytes: Whole = setting(64, _COUNT, "The largest request; three million tokens fit the default.", ge=1)
    body_values: Whole = setting(
        300_000,
        _COUNT,
        "The most values (numbers, texts, lists, objects) in one request; long conversations have some ten thousand.",
        ge=1,
    )
    new_blocks: Whole = setting(
        3_000,
        _COUNT,
        "The most blocks (messages, or parts of them) in one request that the gateway has not stored yet.",
        ge=1,
    )
    body_seconds: Whole = setting(120, _COUNT, "How long a client may take to send a request.", ge=1)
    drain_seconds: Whole = setting(
        30,
        "a whole number from 0 to 1,000,000,000",
        "How long requests under way may go on when the gateway is told to stop.",
        ge=0,
    )
    when_full: Literal["refuse", "pass"] = setting(
        "refuse",
        "refuse or pass",
        "What becomes of requests that neither the journal nor the database can keep: refused with 503, or passed on.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "debug, info, warning or error", "What is logged: info for a line for each request."
    )
    log_file: Name | None = setting(None, "the path of a file, or null", "Where log lines go; null for stderr.")
    tracing: Flag = setting(
        default=False,
        allowed="true or false",
        description="Whether each request is told to OpenTelemetry as a span.",
    )
