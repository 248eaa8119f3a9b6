"""Commands that compact, take it back, and tell what was compacted."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from everlong.agent.commands.registry import ChatError, Desk, pick
from everlong.model import Message, calls_of, counted, text_of

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.store import Compaction

_MOST_LISTED = 20
"""Messages listed of those that a summary tells of."""
_SPEAKERS = {"user": "you", "assistant": "the model", "tool": "a tool"}
REASONS = {
    "preflight": "the next request was over the threshold",
    "overflow": "refused as too long",
    "hygiene": "resumed with an almost full window",
}
"""Reasons whose names only we know, in words."""


def compress(desk: Desk, words: str) -> None:
    """Compact now, perhaps with a focus."""
    done = desk.agent.compress(words or None)
    if done.outcome == "unchanged":
        desk.show.line("there is nothing to compact: all of it is recent or protected")


def undo(desk: Desk, words: str) -> None:
    """Take back the last exchange, or the newest compaction if that came later."""
    from everlong.context.rules import read_edit  # noqa: PLC0415 - the prompt comes before this is loaded

    conversation = desk.agent.conversation
    if words == "compaction" or (not words and _is_compacted_last(desk.agent)):
        if not conversation.undo_compaction():
            raise ChatError("there is no compaction to undo")
        desk.show.line("the newest compaction is undone; its words stand there again")
        tokens, threshold = desk.agent.compactor.tokens, desk.agent.engine.threshold_tokens
        if tokens >= threshold:
            told = f"{tokens:,} tokens are over the threshold of {threshold:,}, so the next prompt compacts again"
            desk.show.line(f"{told}; a model with a larger window (/model) would keep them", "dim")
        return
    if words:
        raise ChatError("say /undo, or /undo compaction")
    said = conversation.rewind()
    if said is None:
        raise ChatError("nothing was said yet")
    desk.agent.engine.update_from_response({})  # the last usage report counted the messages that are gone
    told = f"taken back, with its answer: {' '.join(text_of(said).split())[:100]}"
    desk.show.line("your change of the rules is taken back" if read_edit(said) else told)


def _is_compacted_last(agent: Agent) -> bool:
    branch, store = agent.conversation.branch, agent.conversation.store
    if branch is None:
        return False
    _, cover = store.view_items(branch)
    done = store.compactions(branch=branch.id)
    entries = store.entries(branch, branch.depth - 1)
    return bool(cover and done and entries and done[-1].at > entries[-1].ts)


# -- what was compacted ------------------------------------------------------------------------------------------------


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
        f"by {one.summarizer or one.engine}: {REASONS.get(one.reason, one.reason)}"
    )


def _show_findings(desk: Desk, one: Compaction) -> None:
    if one.findings:
        desk.show.line(f"   {one.findings}", "dim")


def _show_compaction(desk: Desk, number: int, one: Compaction) -> None:
    from everlong.store.whereabouts import covered_by  # noqa: PLC0415 - the prompt comes before this is loaded

    show = desk.show
    show.line(f"Compaction {number}, {_when(one)}: {REASONS.get(one.reason, one.reason)}", "bold")
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
    covered = covered_by(desk.agent.conversation.store, one)
    told = [f"{counted(len(covered.summarized), 'message')} summarized"]
    told += [f"{covered.edited} cleared or shortened"] if covered.edited else []
    show.line(f"  {', '.join(told)}")
    show.line("The summary tells of:")
    if len(covered.summarized) > _MOST_LISTED:
        earlier = len(covered.summarized) - _MOST_LISTED
        show.line(f"  … {counted(earlier, 'earlier message')}; /search finds every word of them", "dim")
    for entry in covered.summarized[-_MOST_LISTED:]:
        role = str(entry.message.get("role"))
        show.line(f"  {_SPEAKERS.get(role, role):<10} {_headline(entry.message)}", "dim")
    show.line(f"/summary {number} shows the summary; /undo compaction takes back the newest compaction", "dim")


def _headline(message: Message, length: int = 100) -> str:
    """Return a message in one line, with the tools that it calls."""
    pieces = [" ".join(text_of(message).split())]
    pieces += [f"→ {call.name} {' '.join(call.arguments.split())}" for call in calls_of(message)]
    line = " ".join(piece for piece in pieces if piece) or "(empty)"
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def summary(desk: Desk, words: str) -> None:
    """Show the newest summary, or that of a compaction."""
    from everlong.store.whereabouts import covered_by  # noqa: PLC0415 - the prompt comes before this is loaded

    done = _compactions(desk)
    if not done:
        raise ChatError("nothing was compacted yet, so there is no summary")
    one = pick(done, words) if words else done[-1]
    desk.show.line(f"The summary of compaction {done.index(one) + 1}, {_when(one)}", "bold")
    covered = covered_by(desk.agent.conversation.store, one)
    desk.show.line(covered.summary or "its words are no longer stored")
