"""Errors of Discord and its library as the errors of the platform contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import discord

from everlong.channels.platform import PlatformBusy, PlatformRefused, PlatformUnreachable

__all__ = ["ALREADY_ACKNOWLEDGED", "NO_INTENT", "error_code", "translate_errors"]

ALREADY_ACKNOWLEDGED = 40060
"""Discord's code for an interaction that has its answer."""

_BAD_LOGIN = (
    "Discord refuses the bot's token; copy a fresh one from the page Bot of your application "
    "(https://discord.com/developers/applications) and store it with `everlong setup discord`"
)
NO_INTENT = (
    "Discord does not let this bot read messages; switch on MESSAGE CONTENT INTENT on the page Bot of your application "
    "(https://discord.com/developers/applications), then start again"
)
_BANNED_FOR = 60.0
"""Seconds to wait where Discord's front refuses all requests and does not say for how long."""
_CLOSED_FOR_GOOD = {4004: _BAD_LOGIN, 4014: NO_INTENT}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the library's errors as `PlatformBusy`, `PlatformRefused` or `PlatformUnreachable`."""
    try:
        yield
    except discord.LoginFailure as error:
        raise PlatformRefused(_BAD_LOGIN) from error
    except discord.PrivilegedIntentsRequired as error:
        raise PlatformRefused(NO_INTENT) from error
    except discord.RateLimited as error:
        raise PlatformBusy("Discord asks to wait", error.retry_after) from error
    except discord.ConnectionClosed as error:
        if error.code in _CLOSED_FOR_GOOD:
            raise PlatformRefused(_CLOSED_FOR_GOOD[error.code]) from error
        raise PlatformUnreachable(f"Discord closed the connection with code {error.code}") from error
    except discord.HTTPException as error:
        raise _translate(error) from error
    except (discord.GatewayNotFound, aiohttp.ClientError, TimeoutError, OSError) as error:
        raise PlatformUnreachable(f"Discord cannot be reached: {str(error) or type(error).__name__}") from error


def error_code(error: BaseException | None) -> int:
    """Return Discord's own code of an error, looking through what `translate_errors` raised; 0 if it has none."""
    if error is not None and not isinstance(error, discord.HTTPException):
        error = error.__cause__
    return error.code if isinstance(error, discord.HTTPException) else 0


def _translate(error: discord.HTTPException) -> PlatformBusy | PlatformRefused | PlatformUnreachable:
    if error.status == 401:
        return PlatformRefused(_BAD_LOGIN)
    if error.status == 429:
        return PlatformBusy("Discord asks to wait", _retry_after(error))
    if error.status >= 500:
        return PlatformUnreachable(f"Discord answered with status {error.status}")
    reason = error.text or "no reason given"
    return PlatformRefused(f"Discord refuses: {reason} (status {error.status}, code {error.code})")


def _retry_after(error: discord.HTTPException) -> float:
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", _BANNED_FOR)))
    except ValueError:
        return _BANNED_FOR
