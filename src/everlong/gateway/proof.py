"""Proof that a gateway is one of the user's own: it knows a secret that only the user can read.

Any program may listen on a port and say that it is a gateway; whoever believes it hands it the user's keys. So a
gateway is asked a question that only somebody can answer who can read a file of the user's. The answer holds for one
address only: a program in between that asks the real gateway gets an answer for another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from everlong.config.paths import data_home

__all__ = ["QUESTION", "ask", "prove", "secret"]

QUESTION = "x-everlong-question"
"""The header with which ``/healthz`` is asked for a proof."""
_ASKED = re.compile(r"[0-9a-f]{32,128}")
_FILE = "gateway-secret"
_BYTES = 32


def ask() -> str:
    """Return a new question."""
    return secrets.token_hex(32)


def secret(*, create: bool) -> bytes | None:
    """Return the user's secret; None where there is none, or where others could have read or written it."""
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
    """Return the answer to a question that came in at an address; None where it is no question."""
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
