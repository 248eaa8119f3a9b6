"""Standing rules, preferences and facts of long chats, looked for after every compaction.

The questions and measures are those of ``bench.retention --rules``. Every method gets the same trigger and the same
room: once a chat has grown past the trigger, it is brought down to the room, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.public.keeping import at_most
from bench.public.peers import Adapter
from bench.public.processes import in_processes
from bench.retention.methods import body_tokens
from bench.retention.rules import BARS, Point, load_chats, points_of, split_of
from everlong.model import Message

__all__ = ["ROOM", "TRIGGER", "measure_chats"]

TRIGGER, ROOM = 32_000, 10_000
KINDS = tuple(BARS)


def measure_chats(folders: Sequence[Path], methods: Sequence[str], jobs: int = 2, most: int = 0) -> dict[str, Any]:
    """Return the share of points that each method keeps, by kind."""
    chosen = []
    for folder in (None, *folders):
        chats = load_chats(folder)
        chosen += [(str(folder), chat) for place, chat in enumerate(chats) if split_of(place, len(chats)) == "test"]
    chats = [chat for _, chat in at_most(chosen, most, lambda one: (one[0], str(one[1]["id"])))]
    chats.sort(key=lambda chat: -len(str(chat["messages"])))
    results, done = in_processes("chats", chats, methods, play_chat, jobs)
    points = [Point(*point) for point, _ in results if point is not None]
    compactions = sum(number for _, number in results)
    rows = []
    for name in methods:
        row: dict[str, Any] = {"method": name}
        for kind in KINDS:
            mine = [point.is_kept for point in points if point.method == name and point.kind == kind]
            row[kind] = sum(mine) / len(mine) if mine else None
            row[f"{kind} points"] = len(mine)
        if any(point.method == name for point in points):
            rows.append(row)
    return {
        "chats": [{"name": chat["id"], "messages": len(chat["messages"])} for chat in chats],
        "compactions": compactions // max(1, len(rows)),
        "failures": {name: len(reasons) for name, reasons in done.failures.items()},
        "rows": rows,
    }


def play_chat(chat: dict[str, Any], adapter: Adapter) -> list[tuple[tuple[Any, ...] | None, int]]:
    """Return the points of one chat with one method, and its compactions."""
    found: list[tuple[tuple[Any, ...] | None, int]] = []
    context: list[Message] = []
    tokens = 0
    for seen, message in enumerate(chat["messages"], 1):
        said = {"role": message["role"], "content": message["content"]}
        context.append(said)
        tokens += body_tokens([said])
        if message["role"] != "assistant" or tokens <= TRIGGER:
            continue
        made = adapter.fit(context, ROOM)
        if made is None:
            continue  # it is asked again with the next message
        context, tokens = list(made.messages), body_tokens(made.messages)
        found.append((None, 1))
        found += [(tuple(point), 0) for point in points_of(chat, seen, adapter.method.name, context)]
    return found
