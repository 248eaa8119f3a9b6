"""What sessions are called: ids, sources, and titles that go on in a lineage."""

from __future__ import annotations

import os
import re
import secrets
from datetime import datetime

from sqlalchemy import Connection, select

from everlong.store.schema import session

TITLE_LENGTH = 200

_NUMBERED = re.compile(r"(.*\S)\s+#(\d+)", re.DOTALL)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\ud800-\udfff]+")


def new_session_id(when: float) -> str:
    """``YYYYMMDD_HHMMSS_xxxxxx``: local time and six hex digits by chance."""
    return f"{datetime.fromtimestamp(when).astimezone():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"


def session_source(platform: str | None) -> str:
    """Where a session comes from: its platform, else ``EVERLONG_SESSION_SOURCE``, else ``cli``."""
    return platform or os.environ.get("EVERLONG_SESSION_SOURCE", "").strip() or "cli"


def clean_title(title: str | None) -> str | None:
    """A title in one line without what does not show; None where nothing is left."""
    if title is None:
        return None
    return " ".join(_UNSEEN.sub(" ", title).split())[:TITLE_LENGTH].strip() or None


def title_base(title: str) -> str:
    """A title without its number in the lineage."""
    found = _NUMBERED.fullmatch(title)
    return found[1] if found else title


def next_title(connection: Connection, conversation: str, title: str) -> str:
    """Return the title of the session that a conversation goes on in: ``Title``, ``Title #2``, ``Title #3``."""
    base = title_base(title)
    taken = {1}
    for other in connection.execute(select(session.c.title).where(session.c.conversation == conversation)).scalars():
        found = _NUMBERED.fullmatch(other or "")
        if found and found[1] == base:
            taken.add(int(found[2]))
    return f"{base} #{max(taken) + 1}"
