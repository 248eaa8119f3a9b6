"""The proof that a process on a port is a gateway of this user, by a secret in a file of theirs."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import re
import secrets
import stat
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from everlong.config.paths import data_home

__all__ = ["QUESTION", "SERVICE", "RunningGateway", "ask", "find_gateway", "is_gateway", "prove", "secret"]

QUESTION = "x-everlong-question"
"""The header with which ``/healthz`` is asked for a proof."""
_ASKED = re.compile(r"[0-9a-f]{32,128}")
_FILE = "gateway-secret"
_BYTES = 32


def ask() -> str:
    """Return a new question."""
    return secrets.token_hex(32)


def secret(*, create: bool) -> bytes | None:
    """Return the user's secret; None if there is none, or if others could have read or written it."""
    path = data_home() / _FILE
    found = _read(path)
    if found is not None or not create:
        return found
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
    return _read(path)


def prove(own: bytes, question: str, address: tuple[str, int]) -> str | None:
    """Return the answer to a question that came in at an address; None if it is no question."""
    if not _ASKED.fullmatch(question):
        return None
    return hmac.new(own, f"everlong gateway {question} {address[0]} {address[1]}".encode(), hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if os.name == "posix":
            about = os.fstat(file.fileno())
            is_own = about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o077
            if not is_own or not stat.S_ISREG(about.st_mode):
                return None
        found = file.read(_BYTES + 1)
    return found if len(found) == _BYTES else None


SERVICE = "everlong-gateway"
"""The name of a gateway in the answer of ``/healthz``."""
_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """The answer of a gateway that listens."""

    needs_key: bool
    official: frozenset[str]
    """The APIs whose requests it sends to the API's own address."""
    is_own: bool = False
    """True if it has proved that it is the user's own."""


def find_gateway(address: str) -> RunningGateway | None:
    """Return the gateway that listens at an address; None if there is none."""
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
    """Return whether a gateway of the user's own listens at an address without TLS, and needs no key.

    Somebody else's may read all that is sent there, the user's keys first.
    """
    if urlsplit(address).scheme != "http":
        return False
    found = find_gateway(address)
    return found is not None and found.is_own and not found.needs_key
