"""Ask an address whether a gateway listens there, and what that gateway tells of itself."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["SERVICE", "RunningGateway", "find_gateway", "is_gateway"]

SERVICE = "everlong-gateway"
"""What ``/healthz`` calls a gateway."""
_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """What a gateway that listens tells of itself."""

    needs_key: bool
    official: frozenset[str]
    """The APIs whose requests it sends to the API's own address."""


def find_gateway(address: str) -> RunningGateway | None:
    """Return the gateway that listens at an address; None where there is none."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return None
        made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = made(parts.hostname, parts.port, timeout=_PROBE_SECONDS)
        with closing(connection):
            connection.request("GET", "/healthz")
            told = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    if not isinstance(told, dict) or told.get("service") != SERVICE:
        return None
    official = told.get("official")
    names = official if isinstance(official, list) else []
    return RunningGateway(bool(told.get("needs_key")), frozenset(map(str, names)))


def is_gateway(address: str) -> bool:
    """Return whether a gateway listens at an address without TLS, and lets anybody in."""
    if urlsplit(address).scheme != "http":
        return False
    found = find_gateway(address)
    return found is not None and not found.needs_key
