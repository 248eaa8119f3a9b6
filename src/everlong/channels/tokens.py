"""Tokens of bots: from an environment variable, else from the system's keyring. Never from a file or an argument."""

from __future__ import annotations

from collections.abc import Mapping

from everlong.errors import AuthenticationFailed
from everlong.providers.endpoints import Endpoint
from everlong.providers.keys import find_key, key_source, store_key

__all__ = ["TOKEN_VARIABLES", "find_token", "store_token", "token_source"]

TOKEN_VARIABLES = {"telegram": "TELEGRAM_BOT_TOKEN", "discord": "DISCORD_BOT_TOKEN"}
"""The environment variable of each platform's token."""


def find_token(platform: str, env: Mapping[str, str] | None = None) -> str:
    """Return the token of a platform's bot; raise `AuthenticationFailed` without one."""
    try:
        return find_key(_endpoint(platform), env)
    except AuthenticationFailed as error:
        raise AuthenticationFailed(
            f"there is no token for {platform}; set {TOKEN_VARIABLES[platform]}, or store one with: "
            f"everlong setup {platform}",
            provider=platform,
        ) from error


def token_source(platform: str, env: Mapping[str, str] | None = None) -> str | None:
    """Return where a platform's token comes from: ``env NAME`` or ``keyring``; None without one."""
    return key_source(_endpoint(platform), env)


def store_token(platform: str, token: str) -> None:
    """Put the token of a platform's bot into the system's keyring; `ConfigError` where there is none."""
    store_key(_entry(platform), token)


def _entry(platform: str) -> str:
    return f"channel {platform}"  # apart from the keys of providers, who may have any name


def _endpoint(platform: str) -> Endpoint:
    variables = (TOKEN_VARIABLES[platform],)
    return Endpoint(_entry(platform), "openai", "", key_variables=variables, needs_key=True, keyring=True)
