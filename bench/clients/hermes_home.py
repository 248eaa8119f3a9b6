"""A home of the real Hermes Agent, made with its own code: sessions with a lineage, a sub-agent, memory and settings.

It runs in a virtual environment with hermes-agent 0.19 and needs nothing of ours. The database is also written as SQL
without its search index, which is the fixture of the tests.

    HERMES_HOME=DIR python bench/clients/hermes_home.py FIXTURE.sql
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

_CONFIG = """\
context:
  engine: compressor
compression:
  enabled: true
  threshold: 0.6
  target_ratio: 0.3
  protect_last_n: 12
  hygiene_hard_message_limit: 5000
auxiliary:
  compression:
    provider: openrouter
    model: tiny-scribe
    api_key: key-of-nobody
"""
_MEMORIES = {
    "MEMORY.md": "The harbour planner lives in /srv/harbour.\n§\nTests run with `make check`,\nnever alone.",
    "USER.md": "Mira prefers short answers.",
}
_TABLES = ("schema_version", "sessions", "messages", "session_model_usage")


def _call(ident: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def fill(home: Path) -> Path:
    """Write a home; return the path of its database."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(_CONFIG)
    (home / "memories").mkdir(exist_ok=True)
    for name, text in _MEMORIES.items():
        (home / "memories" / name).write_text(text)
    path = home / "state.db"
    db = importlib.import_module("hermes_state").SessionDB(db_path=path)
    first, second, agent, other = "20260901_100000_aaaaaa", "20260901_110000_bbbbbb", "20260901_101500_cccccc", "t-4"
    db.create_session(first, "cli", model="claude-sonnet-4-5", system_prompt="You are Hermes.")
    db.set_session_title(first, "Berths")
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "Which berth is free at noon?"},
        {"role": "assistant", "content": "", "tool_calls": [_call("c1", "terminal", command="ls berths")]},
        {"role": "tool", "content": "north.txt\nsouth.txt", "tool_call_id": "c1", "tool_name": "terminal"},
        {"role": "assistant", "content": "The south berth is free.", "reasoning": "north.txt says taken"},
        {"role": "user", "content": "And who works the crane?"},
        {"role": "assistant", "content": "Ada does, until four."},
    ]
    for number, message in enumerate(said):
        db.append_message(first, **message, timestamp=1_788_256_800.0 + number)
    db.update_token_counts(
        first,
        input_tokens=1_200,
        output_tokens=90,
        cache_read_tokens=4_000,
        estimated_cost_usd=0.0125,
        api_call_count=3,
    )
    db.create_session(agent, "subagent", model="tiny", parent_session_id=first, model_config={"_delegate_from": first})
    db.append_message(agent, "user", "Count the cranes.", timestamp=1_788_257_700.0)
    db.append_message(agent, "assistant", "Three cranes.", timestamp=1_788_257_701.0)
    db.end_session(first, "compression")
    db.create_session(
        second, "cli", model="claude-sonnet-4-5", parent_session_id=first, system_prompt="You are Hermes."
    )
    summary = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted.\n## Goal\nFind a berth."
    kept = [{"role": "user", "content": summary}, *said[4:]]
    new = [
        {"role": "user", "content": "Book the south berth."},
        {"role": "assistant", "content": "Booked under number 4711."},
    ]
    for number, message in enumerate([*kept, *new]):
        db.append_message(second, **message, timestamp=1_788_260_400.0 + number)
    db.update_token_counts(second, input_tokens=300, output_tokens=40, estimated_cost_usd=0.002, api_call_count=1)
    db.create_session(other, "telegram", model="claude-sonnet-4-5", user_id="mira")
    db.append_message(other, "user", [{"type": "text", "text": "Is the tide high?"}], timestamp=1_788_300_000.0)
    db.append_message(other, "assistant", "In an hour.", timestamp=1_788_300_001.0)
    db.close()
    return path


def dump(path: Path) -> str:
    """Return the tables of a database as SQL."""
    lines = []
    with closing(sqlite3.connect(path)) as raw:
        for name in _TABLES:
            row = raw.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone()
            lines.append(f"{row[0]};")
            for values in raw.execute(f"SELECT * FROM {name}"):  # noqa: S608 - our own names
                quoted = raw.execute(f"SELECT {', '.join(['quote(?)'] * len(values))}", values).fetchone()
                lines.append(f"INSERT INTO {name} VALUES ({', '.join(quoted)});")  # noqa: S608
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the home that the environment names, and the fixture that the command line names."""
    path = fill(Path(os.environ["HERMES_HOME"]))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(dump(path), encoding="utf-8")


if __name__ == "__main__":
    main()
