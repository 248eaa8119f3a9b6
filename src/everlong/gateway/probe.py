"""Ask an address whether a gateway listens there, and what that gateway tells of itself."""

from __future__ import annotations

import hmac
import http.client
import json
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from everlong.gateway.proof import QUESTION, ask, prove, secret

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
    is_own: bool = False
    """Whether it has proved that it is the user's own."""


def find_gateway(address: str) -> RunningGateway | None:
    """Return the gateway that listens at an address; None where there is none."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return None
        made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = made(parts.hostname, parts.port, timeout=_PROBE_SECONDS)
        with closing(connection):
            question, own = ask(), secret(create=False)
            connection.connect()
            there = connection.sock.getpeername()
            peer = (str(there[0]), int(there[1]))
            connection.request("GET", "/healthz", headers={QUESTION: question})
            told = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    if not isinstance(told, dict) or told.get("service") != SERVICE:
        return None
    official = told.get("official")
    names = official if isinstance(official, list) else []
    proof = None if own is None else prove(own, question, peer)
    is_own = proof is not None and hmac.compare_digest(
        proof.encode(), str(told.get("proof")).encode("utf-8", "replace")
    )
    return RunningGateway(bool(told.get("needs_key")), frozenset(map(str, names)), is_own)


def is_gateway(address: str) -> bool:
    """Return whether a gateway of the user's own listens at an address without TLS, and lets anybody in.

    Somebody else's may read all that is sent there, the user's keys first.
    """
    if urlsplit(address).scheme != "http":
        return False
    found = find_gateway(address)
    return found is not None and found.is_own and not found.needs_key
