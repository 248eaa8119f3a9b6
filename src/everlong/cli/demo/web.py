"""``everlong demo --web``: plays the shipped session into a store of its own, and opens the inspector on it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everlong.cli.inspect_web import check_installed, serve_inspector
from everlong.cli.output import say

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.store import Branch, Store

__all__ = ["play_into", "show_demo"]

_TITLE = "The booking system of a harbour"
_MODEL = "demo"
_SECONDS = 20.0
"""Seconds between two messages."""


def show_demo(session: Sequence[Message], window: int, *, port: int, opens_browser: bool) -> None:
    """Play the session, and serve the inspector on it until it is stopped."""
    check_installed()
    from everlong.store import Store  # noqa: PLC0415 - keeps `everlong --help` quick

    with (
        tempfile.TemporaryDirectory(prefix="everlong-demo-") as folder,
        Store.open(Path(folder) / "store.db") as store,
    ):
        say(f"playing {len(session):,} messages of an agent session in a {window:,}-token window")
        play_into(store, session, window)
        serve_inspector(store, "everlong demo", port=port, opens_browser=opens_browser)


def play_into(store: Store, session: Sequence[Message], window: int) -> str:
    """Record a session as an agent would, with its compactions; return the id of the conversation.

    Sizes are estimates; nobody was paid, so there are no costs.
    """
    from everlong.context import ContextCompressor  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store import Occasion  # noqa: PLC0415 - as above

    engine = ContextCompressor(window)
    system = [message for message in session if message["role"] == "system"]
    said = [message for message in session if message["role"] != "system"]
    begun = time.time() - len(said) * _SECONDS
    first = store.sessions.start(title=_TITLE, client="demo", model=_MODEL, started=begun)
    part = first.id
    at = store.record([*system, said[0]], times=[begun] * (len(system) + 1), conversation=first.id)
    store.sessions.attach(first.id, at)
    with store.batch():
        for place, message in enumerate(said[1:], 1):
            now = begun + place * _SECONDS
            if message["role"] != "assistant":
                at = store.append(at, [message], times=[now])
                continue
            if engine.should_compress_preflight(store.context(at)):
                size = engine.counter.total(store.context(at))
                occasion = Occasion("threshold", part, _MODEL)
                done = store.compact(at, engine, occasion, lease_seconds=None, roll_over=part, current_tokens=size)
                part = done.child or part
            at = _ask(store, at, message, part, engine.counter.total(store.context(at)), now)
    return first.id


def _ask(store: Store, at: Branch, reply: Message, part: str, size: int, now: float) -> Branch:
    turn = store.turns.begin(at, model=_MODEL, session=part, began=now)
    after = store.append(at, [reply], times=[now])
    store.turns.finish(turn.id, reply, usage={"prompt_tokens": size, "output_tokens": 0}, echo_node=after.head)
    return after
