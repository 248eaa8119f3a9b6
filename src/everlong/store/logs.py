"""The JSON log of a conversation, or of a part: one readable file with its facts, messages and compactions."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.config.atomic import write_whole
from everlong.store.conversations import Conversation, Line
from everlong.store.transcripts.write import exported

if TYPE_CHECKING:
    from everlong.store.store import Store


def conversation_log(store: Store, found: Conversation) -> dict[str, Any]:
    """Return what the log of a whole conversation says."""
    lines = [line for line in store.conversations.entries(found.id) if isinstance(line, Line)]
    return {
        "session_id": found.id,
        **{name: value for name, value in found.to_dict().items() if name not in {"id", "messages", "compactions"}},
        "system_prompt": store.conversations.system_prompt(found.id),
        "messages": [{**exported(line), "timestamp": line.entry.ts} for line in lines],
        "compactions": [asdict(one) for one in store.conversations.compactions(found.id)],
    }


def session_log(store: Store, ident: str) -> dict[str, Any]:
    """What the log of a session says."""
    found = store.sessions.get(ident)
    return {
        "session_id": found.id,
        **{name: value for name, value in found.to_dict().items() if name not in {"id", "system_prompt"}},
        "parent_session_id": found.parent,
        "system_prompt": store.sessions.system_prompt(ident),
        "messages": [{**entry.message, "timestamp": entry.ts} for entry in store.sessions.entries(ident)],
        "compactions": [asdict(one) for one in store.compactions(session=ident)],
    }


def write_session_log(store: Store, ident: str, folder: Path) -> Path:
    """Write ``session_<id>.json`` into a folder, as a whole or not at all; readable by its owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"session_{ident}.json"
    log = session_log(store, ident)
    text = json.dumps(log, ensure_ascii=False, indent=2)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # halves of surrogate pairs can only be written escaped
        text = json.dumps(log, indent=2)
    write_whole(path, text + "\n")
    return path
