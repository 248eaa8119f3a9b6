"""Facts of the session that is under way, by the names that plugins know."""

from __future__ import annotations

import os

from everlong.plugins.adapters.host_state import current_host, session_fact

__all__ = ["get_session_env"]


def get_session_env(name: str, default: str = "") -> str:
    """What a session variable stands for; else the environment variable of that name."""
    fact = session_fact(name)
    found = current_host().session.get(fact, "") if fact else ""
    return found or os.environ.get(name, default)
