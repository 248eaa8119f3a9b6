"""The JSON log of a conversation, or of a part: one readable file with its facts, messages and compactions."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from everlong.config.files import write_whole
from everlong.config.paths import data_home
from everlong.errors import StoreError
from everlong.store.compaction import history
from everlong.store.sessions import Sessions
from everlong.store.tombstones import forgotten_among

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


def session_log(core: StoreCore, ident: str) -> dict[str, Any]:
    """Return the contents of a session's log."""
    found = Sessions(core).get(ident)
    return {
        "session_id": found.id,
        **{name: value for name, value in found.to_dict().items() if name not in {"id", "system_prompt"}},
        "parent_session_id": found.parent,
        "system_prompt": Sessions(core).system_prompt(ident),
        "messages": [{**entry.message, "timestamp": entry.ts} for entry in Sessions(core).entries(ident)],
        "compactions": [asdict(one) for one in history(core, session=ident)],
    }


def write_session_log(core: StoreCore, ident: str, folder: Path) -> Path:
    """Write ``session_<id>.json`` into a folder, as a whole or not at all; readable by its owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = _log_path(folder, ident)
    write_whole(path, json_text(session_log(core, ident), indent=2) + "\n")
    return path


def forget_in_logs(core: StoreCore, gone: Collection[str], changed: Collection[str]) -> None:
    """Take forgotten words out of the logs; delete a log that cannot be rewritten.

    Args:
        core: what has forgotten them.
        gone: sessions whose logs are removed.
        changed: sessions whose logs are rewritten, besides all logs that repeat forgotten messages.
    """
    folder = data_home() / "logs"
    for ident in gone:
        _log_path(folder, ident).unlink(missing_ok=True)
    stale = {path for ident in changed if (path := _log_path(folder, ident)).exists()}
    with core.database.read() as connection:
        stale |= {path for path in folder.glob("session_*.json") if _holds_forgotten(core, connection, path)}
    for path in stale:
        try:
            write_session_log(core, path.stem.removeprefix("session_"), folder)
        except (OSError, StoreError):
            path.unlink(missing_ok=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return readable JSON; everything beyond ASCII is escaped if half a surrogate pair could not be written."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def _log_path(folder: Path, ident: str) -> Path:
    return folder / f"session_{ident}.json"


def _holds_forgotten(core: StoreCore, connection: Connection, path: Path) -> bool:
    """Return whether a log repeats words that are forgotten; False where it is none of ours."""
    try:
        told = json.loads(path.read_bytes())["messages"]
        messages = [{name: value for name, value in one.items() if name != "timestamp"} for one in told]
        blocks = core.chain.trace(messages).blocks
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return bool(forgotten_among(connection, core.tenant, blocks))
