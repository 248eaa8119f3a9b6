"""``/history`` and ``/summary``: what was compacted, and the summaries that tell of it."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import TYPE_CHECKING

from everlong.agent.commands.registry import ChatError, Desk, pick
from everlong.agent.text import counted
from everlong.model import Message, calls_of, text_of

if TYPE_CHECKING:
    from everlong.store import Compaction
    from everlong.store.whereabouts import Covered

__all__ = ["history", "summary"]

_MOST_LISTED = 20
"""Messages listed of those that a summary tells of."""
_REASONS = {
    "preflight": "the next request would not have fitted",
    "threshold": "the context had grown to its threshold",
    "overflow": "the provider refused a request as too long",
    "model switch": "the new model has a smaller window",
    "hygiene": "a resumed conversation almost filled the window",
    "manual": "you asked for it",
    "oversized": "a message was larger than the window",
    "edited summary": "you edited the summary",
}


def history(desk: Desk, words: str) -> None:
    """List the compactions of this conversation, or show one of them."""
    done = _compactions(desk)
    if not done:
        desk.show.line("nothing was compacted yet")
    elif words:
        one = pick(done, words)
        _show_compaction(desk, done.index(one) + 1, one)
    else:
        from everlong.store.whereabouts import is_undone, standing_views  # noqa: PLC0415 - as below

        store = desk.agent.conversation.store
        standing = standing_views(store, store.conversations.path(desk.agent.conversation.session_id))
        for number, one in enumerate(done, 1):
            mark = "undone  " if is_undone(one, standing) else ""
            desk.show.line(f"{number}  {_when(one)}  {mark}{_describe(one)}")
            _show_findings(desk, one)
        desk.show.line("/history N shows one of them, /summary N its summary", "dim")


def _compactions(desk: Desk) -> list[Compaction]:
    conversation = desk.agent.conversation
    session = conversation.session
    return [] if session is None else conversation.store.conversations.compactions(session.id)


def _when(one: Compaction) -> str:
    return f"{datetime.fromtimestamp(one.at).astimezone():%Y-%m-%d %H:%M:%S}"


def _describe(one: Compaction) -> str:
    before, after = one.tokens_before or 0, one.tokens_after or 0
    return (
        f"{before:,} → {after:,} tokens, {one.messages_before} → {counted(one.messages_after, 'message')}, "
        f"by {one.summarizer or one.engine}: {_REASONS.get(one.reason, one.reason)}"
    )


def _show_findings(desk: Desk, one: Compaction) -> None:
    if one.findings:
        desk.show.line(f"   {one.findings}", "dim")


def _show_compaction(desk: Desk, number: int, one: Compaction) -> None:
    show = desk.show
    show.line(f"Compaction {number}, {_when(one)}: {_REASONS.get(one.reason, one.reason)}", "bold")
    before, after = one.tokens_before or 0, one.tokens_after or 0
    saved = f", {100 * (before - after) // before} % less" if before > after else ""
    show.line(
        f"  {before:,} → {after:,} tokens{saved}; {one.messages_before} → {counted(one.messages_after, 'message')}"
    )
    cost = f", ${one.cost:.4f}" if one.cost else ""
    show.line(f"  written by {one.summarizer or one.engine} in {one.seconds:.1f} s{cost}")
    if one.fallback:
        show.line(f"  without the model: {one.fallback}", "yellow")
    _show_findings(desk, one)
    covered = _covered(desk, one)
    told = [f"{counted(len(covered.summarized), 'message')} summarized"]
    told += [f"{covered.edited} cleared or shortened"] if covered.edited else []
    told += [f"{covered.kept} kept as they were"] if covered.kept else []
    show.line(f"  {', '.join(told)}")
    show.line("The summary tells of:")
    if len(covered.summarized) > _MOST_LISTED:
        earlier = len(covered.summarized) - _MOST_LISTED
        show.line(f"  … {counted(earlier, 'earlier message')}; /search finds every word of them", "dim")
    for entry in covered.summarized[-_MOST_LISTED:]:
        show.line(f"  {_speaker(entry.message):<10} {_headline(entry.message)}", "dim")
    show.line(f"/summary {number} shows the summary; /undo compaction takes back the newest compaction", "dim")


def _speaker(message: Message) -> str:
    role = str(message.get("role"))
    return {"user": "you", "assistant": "the model", "tool": "a tool"}.get(role, role)


def _headline(message: Message, length: int = 100) -> str:
    """Return a message in one line, with the tools that it calls."""
    pieces = [" ".join(text_of(message).split())]
    pieces += [f"→ {call.name} {' '.join(call.arguments.split())}" for call in calls_of(message)]
    line = " ".join(piece for piece in pieces if piece) or "(empty)"
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def _covered(desk: Desk, one: Compaction) -> Covered:
    from everlong.store.whereabouts import covered_by  # noqa: PLC0415 - the prompt comes before this is loaded

    return covered_by(desk.agent.conversation.store, one)


# -- summaries ---------------------------------------------------------------------------------------------------------


def summary(desk: Desk, words: str) -> None:
    """Show the newest summary or that of a compaction; compare it with the one before; or edit the newest."""
    what, _, rest = words.partition(" ")
    if what == "edit" and not rest:
        _edit(desk)
        return
    done = _compactions(desk)
    if not done:
        raise ChatError("nothing was compacted yet, so there is no summary")
    if what == "compare":
        one = pick(done, rest.strip()) if rest.strip() else done[-1]
        _compare(desk, done.index(one), done)
    else:
        one = pick(done, words, "; or say /summary compare, /summary edit") if words else done[-1]
        desk.show.line(f"The summary of compaction {done.index(one) + 1}, {_when(one)}", "bold")
        desk.show.text(_covered(desk, one).summary or "its words are no longer stored")


def _compare(desk: Desk, place: int, done: list[Compaction]) -> None:
    if place == 0:
        raise ChatError("it is the first summary, so there is none before it")
    before, after = (_covered(desk, done[at]).summary.splitlines() for at in (place - 1, place))
    names = (f"summary {place}", f"summary {place + 1}")
    lines = list(difflib.unified_diff(before, after, *names, n=1, lineterm=""))
    for line in lines:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        desk.show.line(line, style)
    if not lines:
        desk.show.line("the two summaries are the same")


def _edit(desk: Desk) -> None:
    conversation = desk.agent.conversation
    text = conversation.summary
    if text is None:
        raise ChatError("no summary stands in the context, so there is none to edit")
    if desk.edit is None:
        raise ChatError("there is no terminal for an editor; /rules add TEXT tells the model something for good")
    changed = desk.edit(text)
    if changed is None or changed.strip() == text.strip():
        desk.show.line("the summary stays as it is")
        return
    conversation.edit_summary(changed.strip())
    desk.agent.engine.update_from_response({})  # the last usage report counted the old summary
    desk.show.line("the summary is changed, from the next request on; /undo compaction takes that back")
