"""Who may use the gateway: its keys, and whose conversations each of them reaches.

A key is known by its SHA-256 only. Every key that a client sends is compared with every key there is, in the same time
whichever fits, so that nobody learns from an answer how near a guess was. Knows no request but its headers.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config.gateway_settings import GatewaySettings, KeySettings

__all__ = ["LOCAL", "Caller", "Guard", "check_bind", "is_loopback"]

LOCAL = "local"
"""The tenant of everybody where there are no keys."""
OWN_HEADER = "x-everlong-key"
_LEAST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    tenant: str
    limits: KeySettings | None = None
    spoken: frozenset[str] = frozenset()
    """The headers in which a key of the gateway came; they are not for the upstream."""


_ANYBODY = Caller(LOCAL)


class Guard:
    """Lets clients in.

    Raises:
        ConfigError: a key is not given, given twice, too short, or that of another name.
    """

    def __init__(self, settings: GatewaySettings, env: Mapping[str, str] | None = None) -> None:
        values = os.environ if env is None else env
        self._keys = [(_digest_of(name, key, values), name, key) for name, key in settings.keys.items()]
        seen: dict[bytes, str] = {}
        for digest, name, _ in self._keys:
            if digest in seen:
                raise ConfigError(
                    f"gateway.keys.{name} has the same key as gateway.keys.{seen[digest]}; give each a key of its own",
                    key=f"gateway.keys.{name}",
                )
            seen[digest] = name

    @property
    def is_open(self) -> bool:
        """Whether no key is needed."""
        return not self._keys

    def admit(self, headers: Mapping[str, str]) -> Caller | None:
        """Who sent a request with such headers; None for somebody without a key."""
        if not self._keys:
            return None if _is_foreign(headers.get("Origin")) else _ANYBODY
        found: list[tuple[str, KeySettings]] = []
        spoken: set[str] = set()
        own = headers.get(OWN_HEADER)
        bearer = headers.get("Authorization", "")
        bearer = bearer[7:] if bearer[:7].lower() == "bearer " else ""
        given = {OWN_HEADER: own} if own else {"Authorization": bearer, "x-api-key": headers.get("x-api-key", "")}
        for header, text in given.items():
            digest = hashlib.sha256(text.strip().encode("utf-8", "surrogateescape")).digest()
            for known, name, key in self._keys:
                if hmac.compare_digest(digest, known):
                    found.append((name, key))
                    spoken.add(header)
        if not found:
            return None
        return Caller(found[0][0], found[0][1], frozenset(spoken))


def _digest_of(name: str, key: KeySettings, env: Mapping[str, str]) -> bytes:
    place = f"gateway.keys.{name}"
    if (key.key_variable is None) == (key.sha256 is None):
        raise ConfigError(f"{place} must have either key_variable or sha256; set one of them", key=place)
    if key.sha256 is not None:
        return bytes.fromhex(key.sha256)
    text = env.get(key.key_variable or "", "").strip()
    if not text:
        raise ConfigError(
            f"{place}.key_variable is {key.key_variable}, but no such environment variable is set; set it to the key",
            key=f"{place}.key_variable",
        )
    if len(text) < _LEAST_CHARS:
        raise ConfigError(
            f"the key in {key.key_variable} ({place}) has {len(text)} characters, but must have {_LEAST_CHARS} at "
            "least; choose a random one",
            key=f"{place}.key_variable",
        )
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(settings: GatewaySettings, host: str) -> None:
    """Refuse to listen for other machines where anybody would be let in."""
    if not is_loopback(host) and not settings.keys:
        raise ConfigError(
            f"the gateway cannot listen on {host} without a key, because other machines could use it; name one with: "
            "everlong config set gateway.keys.NAME.key_variable VARIABLE, and put a random key into that environment "
            "variable; or listen on 127.0.0.1",
            key="gateway.keys",
        )


def _is_foreign(origin: str | None) -> bool:
    """Whether a request comes from a web page of another host: a browser sends it without its user knowing."""
    if origin is None:
        return False
    try:
        return not is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return True
