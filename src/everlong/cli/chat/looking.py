"""Commands that look: where the window goes, what was compacted, what was said, what tools gave."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.cli.chat.commands import ChatError, Command, Desk

if TYPE_CHECKING:
    from everlong.context import ContextEngine
    from everlong.store import Compaction

__all__ = ["LOOKING"]

T = TypeVar("T")

_BAR = 40
_FIGURES = 42
"""The columns of the figures beside a bar."""


def context(desk: Desk, words: str) -> None:
    """Draw where the window goes."""
    from rich.table import Table  # noqa: PLC0415 - the prompt is there before this is loaded
    from rich.text import Text  # noqa: PLC0415 - as above

    from everlong.cli.chat.window import window_parts  # noqa: PLC0415 - as above

    del words
    agent = desk.agent
    parts = window_parts(agent)
    window = agent.engine.context_length
    widest = max(1, min(_BAR, desk.show.console.width - _FIGURES))
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right", "left", "left"):
        table.add_column(justify=justify)
    for part in parts:
        share = part.tokens / max(1, window)
        bar = "█" * max(1 if part.tokens else 0, round(share * widest))
        about = f"{part.messages} messages" if part.messages else ""
        table.add_row(part.name, f"{part.tokens:,}", f"{100 * share:.1f} %", Text(bar, style=part.style), about)
    desk.show.console.print(table)
    threshold = agent.engine.threshold_tokens
    desk.show.line(
        f"window {window:,} tokens; compaction at {threshold:,}; {agent.compactor.count} so far in this chat"
    )
    desk.show.line(_status(agent.engine), "dim")
    _grounds(desk)


def _status(engine: ContextEngine) -> str:
    """Return the engine's name and the figures that it tells of itself."""
    status = engine.get_status()
    told = (f"{name.replace('_', ' ')} {_figure(value)}" for name, value in status.items() if name != "engine")
    return f"engine {status.get('engine', engine.name)}: {', '.join(told)}"


def _figure(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return " ".join(str(value).split())[:_FIGURES]
    return f"{value:,}"


def _grounds(desk: Desk) -> None:
    """Where the threshold comes from, and what was held back, each with the figures of the decision itself."""
    from everlong.plugins.guard import compressor_of  # noqa: PLC0415 - as above

    engine = compressor_of(desk.agent.engine)
    if engine is None:
        return
    for told in [*engine.budgets.grounds.explain(), *engine.pace.explain(engine.budgets.threshold_tokens)]:
        desk.show.line(told, "dim")
    for told in [*(one.explain() for one in engine.held_back), *(one.explain() for one in engine.left_alone)]:
        desk.show.line(told, "yellow")


_MOST_FAULTS = 3
"""So many faults of a summary are listed with it; all of them are in the compaction's own report."""


def history(desk: Desk, words: str) -> None:
    """List the compactions of this conversation, or show one of them."""
    conversation = desk.agent.conversation
    session = conversation.session
    done = [] if session is None else conversation.store.conversations.compactions(session.id)
    if not done:
        desk.show.line("nothing was compacted yet")
        return
    if words:
        _one_compaction(desk, _numbered(done, words))
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


def _one_compaction(desk: Desk, one: Compaction) -> None:
    for name, value in _report_of(one).items():
        desk.show.line(f"{name}: {value}", "dim")
    store = desk.agent.conversation.store
    if one.session is None:
        return
    desk.show.line("it covered:")
    for entry in store.sessions.entries(one.session):
        text = " ".join(str(entry.message.get("content") or entry.message.get("tool_calls") or "").split())
        desk.show.line(f"  {entry.message.get('role'):<9} {text[:100]}", "dim")


def _report_of(one: Compaction) -> dict[str, Any]:
    """The engine's report; what was sent before and after is told with the figures of the history, tools and all."""
    report = dict(one.report or {})
    for name in ("tokens_before", "tokens_after", "messages_before", "messages_after"):
        if name in report:
            report[name] = getattr(one, name)
    if "tokens_saved" in report and one.tokens_before and one.tokens_after is not None:
        report["tokens_saved"] = one.tokens_before - one.tokens_after
        report["saved_share"] = round(report["tokens_saved"] / one.tokens_before, 4)
    return report


def search(desk: Desk, words: str) -> None:
    """Find what was said in this or any conversation; with a number, open what was found."""
    store = desk.agent.conversation.store
    if not words:
        raise ChatError("say what to look for: /search WORDS; then /search NUMBER opens a hit")
    if words.isdigit() and desk.found:
        page = store.read(_numbered(desk.found, words))
        desk.show.text(page.text)
        return
    hits = [hit for hit in store.search(words, limit=10).hits if hit.node is not None]
    desk.found = [hit.node for hit in hits if hit.node is not None]
    for number, hit in enumerate(hits, 1):
        when = datetime.fromtimestamp(hit.at).astimezone()
        where = hit.title or hit.session or "in no conversation"
        where += f" ({hit.status})" if hit.status else ""
        desk.show.line(f"{number}  {when:%Y-%m-%d %H:%M}  {hit.speaker or hit.role}, {where}", "bold")
        desk.show.line(f"   {' '.join(hit.snippet.text.split())}")
    if not hits:
        desk.show.line("nothing was found")


def tools(desk: Desk, words: str) -> None:
    """List the tool calls of this chat and the tools on offer; with a number, open the result of a call."""
    if words:
        record = _numbered(desk.show.tools, words)
        desk.show.line(f"{record.summary} → {record.outcome}, {record.seconds:.1f} s", "bold")
        desk.show.text(record.text)
        return
    for number, record in enumerate(desk.show.tools, 1):
        desk.show.line(f"[{number}] {record.summary} → {record.outcome}")
    desk.show.line("on offer: " + ", ".join(one.name for one in desk.agent.tools.toolbox))


def usage(desk: Desk, words: str) -> None:
    """What this conversation was paid for, from the provider's own receipts; or all of them."""
    from everlong.agent.accounting import account  # noqa: PLC0415 - only where it is asked for
    from everlong.cli.usage import print_books  # noqa: PLC0415 - as above

    if words not in {"", "all"}:
        raise ChatError("say /usage, or /usage all")
    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    first = None if words else conversation.store.conversations.get(conversation.session.id).parts[0]
    print_books(account(conversation.store, desk.settings, by="model", session=first), desk.show.console)


def memory(desk: Desk, words: str) -> None:
    """Show what is remembered from session to session."""
    del words
    manager = desk.agent.memory
    text = manager.prompt_block() if manager is not None else ""
    desk.show.text(text or "nothing is remembered yet")


def show_help(desk: Desk, words: str) -> None:
    """List the commands."""
    from rich.table import Table  # noqa: PLC0415 - the prompt is there before this is loaded
    from rich.text import Text  # noqa: PLC0415 - as above

    del words
    table = Table(box=None, pad_edge=False, show_header=False)
    for command in desk.registry.commands.values():
        table.add_row(Text(f"/{command.name} {command.takes}"), command.about)
    desk.show.console.print(table, highlight=False)
    desk.show.line("Alt-Enter or Ctrl-J begins a new line, Ctrl-C stops, Ctrl-D leaves, Tab completes.", "dim")


def _numbered(things: list[T], words: str) -> T:
    if not words.isdigit() or not 1 <= int(words) <= len(things):
        raise ChatError(f"{words!r} is no number from 1 to {len(things)}")
    return things[int(words) - 1]


LOOKING = [
    Command("context", "", "Where the window goes: system, tools, memory, summary, pinned, tail, free.", context),
    Command("history", "[N]", "The compactions so far; with a number, one of them and what it covered.", history),
    Command("search", "WORDS | N", "Find what was said, ever; with a number, open a hit.", search),
    Command("tools", "[N]", "The tool calls so far; with a number, the whole result of one.", tools),
    Command("help", "", "This list.", show_help),
    Command("usage", "[all]", "What was paid for, and what caching and compactions did to it.", usage),
    Command("memory", "", "What is remembered from session to session.", memory),
]
