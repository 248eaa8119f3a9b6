"""Facts of the current session, by the names that plugins know."""

from __future__ import annotations

import os

from everlong.plugins.adapters.host_state import current_host, session_fact

__all__ = ["get_session_env"]


def get_session_env(name: str, default: str = "") -> str:
    """Return the value of a session variable; else the environment variable of that name."""
    fact = session_fact(name)
    found = current_host().session.get(fact, "") if fact else ""
    return found or os.environ.get(name, default)
