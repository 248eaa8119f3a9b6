"""The name by which a client knows its conversation, where it tells one.

A name is a hint: what a conversation is, its messages say. Never a tenant: whoever asks may write anything here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from everlong.gateway.clients import client_of
from everlong.store.stateless import Sender

__all__ = ["PLATFORM", "hint_in", "hint_of", "sender_of"]

PLATFORM = "gateway"
"""Where sessions of stateless clients come from."""

_LONGEST = 200
_NAMES = ("thread-id", "session-id", "x-session-affinity")


def hint_of(headers: Mapping[str, str]) -> str | None:
    """The name in the headers of a request."""
    own = headers.get("x-everlong-session")
    if own:
        return _cut(own)
    claude = headers.get("x-claude-code-session-id")
    if claude:
        return _cut(f"{claude}/{headers.get('x-claude-code-agent-id', '')}")
    return next((_cut(value) for name in _NAMES if (value := headers.get(name))), None)


def sender_of(headers: Mapping[str, str]) -> Sender:
    """Return who sends a request, as far as its headers tell."""
    claude, agent = headers.get("x-claude-code-session-id"), headers.get("x-claude-code-agent-id")
    works_for = _cut(f"{claude}/") if claude and agent and not headers.get("x-everlong-session") else None
    return Sender(PLATFORM, hint_of(headers), works_for, client_of(headers))


def hint_in(metadata: Any) -> str | None:
    """The session's part of the ``metadata.user_id`` of a body."""
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            told = json.loads(user)
        except (ValueError, RecursionError):
            return None
        named = told.get("session_id") if isinstance(told, dict) else None
        return _cut(named) if isinstance(named, str) and named else None
    _, mark, named = user.rpartition("_session_")
    return _cut(named) if mark and named else None


def _cut(name: str) -> str:
    return name.encode("utf-8", "replace").decode().replace("\0", "")[:_LONGEST]
