"""Settings of the gateway: where it listens, where requests go."""

from __future__ import annotations

from everlong.config.fields import Flag, Name, Section, WebAddress, Whole, setting

__all__ = ["GatewaySettings", "RouteSettings"]


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


class GatewaySettings(Section):
    """The gateway of ``everlong serve``."""

    host: Name = setting("127.0.0.1", "a host name or an address", "Where the gateway listens.")
    port: Whole = setting(8642, "a whole number from 0 to 65,535", "The port; 0 for any free one.", ge=0, le=65_535)
    upstream: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "Where requests go; null for the API's own address."
    )
    routes: dict[Name, RouteSettings] = setting(
        {}, "a mapping of patterns of model names to upstreams", "Upstreams for models by name (`claude-*`)."
    )
