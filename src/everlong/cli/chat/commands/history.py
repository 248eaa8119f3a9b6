"""``/history``: the compactions of a conversation."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from everlong.cli.chat.commands.registry import Desk, pick

if TYPE_CHECKING:
    from everlong.store import Compaction

_MOST_FAULTS = 3
"""Faults of a summary that the history lists; the compaction's own report has all of them."""


def history(desk: Desk, words: str) -> None:
    """List the compactions of this conversation, or show one of them."""
    conversation = desk.agent.conversation
    session = conversation.session
    done = [] if session is None else conversation.store.conversations.compactions(session.id)
    if not done:
        desk.show.line("nothing was compacted yet")
        return
    if words:
        _show_compaction(desk, pick(done, words))
        return
    for number, one in enumerate(done, 1):
        when = datetime.fromtimestamp(one.at).astimezone()
        quality = f", quality {one.quality:.2f}" if one.quality is not None else ""
        before, after = one.tokens_before or 0, one.tokens_after or 0
        desk.show.line(
            f"{number}  {when:%Y-%m-%d %H:%M:%S}  {one.reason}: {before:,} → {after:,} tokens, "
            f"{one.messages_before} → {one.messages_after} messages, by {one.summarizer or one.engine}{quality}"
        )
        told = one.report or {}
        if told.get("strategy"):
            desk.show.line(f"   {told['strategy']}", "yellow")
        for fault in ((told.get("quality") or {}).get("faults") or [])[:_MOST_FAULTS]:
            desk.show.line(f"   {fault}", "dim")


def _show_compaction(desk: Desk, one: Compaction) -> None:
    for name, value in _compaction_report(one).items():
        desk.show.line(f"{name}: {value}", "dim")
    store = desk.agent.conversation.store
    if one.session is None:
        return
    desk.show.line("it covered:")
    for entry in store.sessions.entries(one.session):
        text = " ".join(str(entry.message.get("content") or entry.message.get("tool_calls") or "").split())
        desk.show.line(f"  {entry.message.get('role'):<9} {text[:100]}", "dim")


def _compaction_report(one: Compaction) -> dict[str, Any]:
    """Return the engine's report, with the sizes of the whole request from the history, tools included."""
    report = dict(one.report or {})
    for name in ("tokens_before", "tokens_after", "messages_before", "messages_after"):
        if name in report:
            report[name] = getattr(one, name)
    if "tokens_saved" in report and one.tokens_before and one.tokens_after is not None:
        report["tokens_saved"] = one.tokens_before - one.tokens_after
        report["saved_share"] = round(report["tokens_saved"] / one.tokens_before, 4)
    return report
