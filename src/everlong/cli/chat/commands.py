"""The slash commands of a chat.

`COMMANDS` lists them all; each is a function of the `Desk` and the words after its name. The chat imports this module
before it shows its prompt, so a command imports what is heavy when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import everlong.context
from everlong import providers
from everlong.errors import EverlongError
from everlong.model import is_system, text_of

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import ChatState
    from everlong.config import Settings
    from everlong.context import CompactionReport, ContextEngine
    from everlong.plugins.context import CommandOffer
    from everlong.store import Compaction

__all__ = ["COMMANDS", "ChatError", "Command", "Desk", "Registry", "register_plugin_commands"]

T = TypeVar("T")

_BAR_COLUMNS = 40
_FIGURE_COLUMNS = 42
"""Columns of the figures beside a bar."""
_MOST_GONE = 12
"""Messages that a preview lists."""
_MOST_FAULTS = 3
"""Faults of a summary that the history lists; the compaction's own report has all of them."""
_RULES_USAGE = "say /rules, /rules add TEXT, or /rules remove N"


class ChatError(EverlongError):
    """A command that cannot be done as it was given."""


@dataclass
class Desk:
    """Everything that a command works with."""

    state: ChatState
    show: Show
    settings: Settings
    registry: Registry
    found: list[bytes] = field(default_factory=list)
    """The messages of the last /search."""
    open_agent: Callable[[str | None], Agent] | None = None
    """Opens the agent on another session, or on a new one."""

    @property
    def agent(self) -> Agent:
        """The agent, which is open before any command runs."""
        if self.state.agent is None:
            raise ChatError("the chat has not started yet")
        return self.state.agent

    def run(self, line: str) -> None:
        """Run a slash command."""
        self.registry.run(self, line)


@dataclass(frozen=True)
class Command:
    """One slash command."""

    name: str
    takes: str
    about: str
    run: Callable[[Desk, str], None]


class Registry:
    """The commands of a chat, by name."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._own = list(commands)
        self.commands = _sort_by_name(commands)

    def replace_plugged(self, commands: Sequence[Command]) -> None:
        """Keep the chat's own commands, and replace those of plugins with these."""
        self.commands = _sort_by_name([*commands, *self._own])

    def run(self, desk: Desk, line: str) -> None:
        """Run a line that begins with a slash."""
        name, _, words = line.strip().removeprefix("/").partition(" ")
        command = self.commands.get(name)
        if command is None:
            near = [other for other in self.commands if name and other.startswith(name)]
            if len(near) == 1:
                command = self.commands[near[0]]
            else:
                meant = " or ".join(f"/{other}" for other in near)
                raise ChatError(f"there is no command /{name}; " + (f"did you mean {meant}?" if near else "see /help"))
        command.run(desk, words.strip())


def _sort_by_name(commands: Sequence[Command]) -> dict[str, Command]:
    return {command.name: command for command in sorted(commands, key=lambda one: one.name)}


def _pick(things: Sequence[T], words: str, hint: str = "") -> T:
    """Return the thing that a number means, counted from 1."""
    if not words.isdigit() or not 1 <= int(words) <= len(things):
        raise ChatError(f"{words!r} is no number from 1 to {len(things)}{hint}")
    return things[int(words) - 1]


# -- commands that show something --------------------------------------------------------------------------------------


def context(desk: Desk, words: str) -> None:
    """Draw where the window goes."""
    from rich.table import Table  # noqa: PLC0415 - the prompt comes before this is loaded
    from rich.text import Text  # noqa: PLC0415 - as above

    del words
    agent = desk.agent
    parts = window_parts(agent)
    window = agent.engine.context_length
    widest = max(1, min(_BAR_COLUMNS, desk.show.console.width - _FIGURE_COLUMNS))
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
    desk.show.line(_describe_engine(agent.engine), "dim")
    _show_threshold_reasons(desk)


def _describe_engine(engine: ContextEngine) -> str:
    """Return the engine's name and the figures of its own status."""
    status = engine.get_status()
    told = (f"{name.replace('_', ' ')} {_format_figure(value)}" for name, value in status.items() if name != "engine")
    return f"engine {status.get('engine', engine.name)}: {', '.join(told)}"


def _format_figure(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return " ".join(str(value).split())[:_FIGURE_COLUMNS]
    return f"{value:,}"


def _show_threshold_reasons(desk: Desk) -> None:
    """Show why the threshold is where it is, and which compactions were put off, with the figures."""
    from everlong.plugins.guard import compressor_of  # noqa: PLC0415 - the prompt comes before this is loaded

    engine = compressor_of(desk.agent.engine)
    if engine is None:
        return
    for told in [*engine.budgets.grounds.explain(), *engine.pace.explain(engine.budgets.threshold_tokens)]:
        desk.show.line(told, "dim")
    for told in [*(one.explain() for one in engine.held_back), *(one.explain() for one in engine.left_alone)]:
        desk.show.line(told, "yellow")


class WindowPart(NamedTuple):
    """One part of the window."""

    name: str
    tokens: int
    messages: int
    style: str


def window_parts(agent: Agent) -> list[WindowPart]:
    """Return the parts of the window, in the order in which they are sent; they add up to the window."""
    from everlong.context.literals import is_summary  # noqa: PLC0415 - the prompt comes before this is loaded
    from everlong.plugins.guard import compressors_in  # noqa: PLC0415 - as above
    from everlong.store.views import PINNED  # noqa: PLC0415 - as above
    from everlong.tokens import MessageCounter, counter_for  # noqa: PLC0415 - as above

    engine, conversation = agent.engine, agent.conversation
    counting = compressors_in(engine)
    counter = counting[0].counter if counting else MessageCounter(counter_for(None))
    memory_text = agent.memory.prompt_block() if agent.memory is not None else ""
    tools = counter.count_tools(agent.tools.toolbox.schemas())
    memory = counter.count_text(memory_text) if memory_text and memory_text in conversation.system_prompt else 0
    system = summary = pinned = tail = summaries = rest = 0
    for message, tokens in zip(conversation.messages, counter.counts(conversation.messages), strict=True):
        if is_system(message):
            system += tokens
        elif is_summary(message):
            told = text_of(message).partition(PINNED)[2]
            pins = counter.count_text(told) if told else 0
            summary, pinned, summaries = summary + tokens - pins, pinned + pins, summaries + 1
        else:
            tail, rest = tail + tokens, rest + 1
    counted = tools + system + summary + pinned + tail
    used = max(counted, agent.compactor.tokens)
    parts = [
        WindowPart("system", system - memory, 0, "blue"),
        WindowPart("tools", tools, 0, "cyan"),
        WindowPart("memory", memory, 0, "magenta"),
        WindowPart("summary", summary, summaries, "yellow"),
        WindowPart("pinned", pinned, 0, "red"),
        WindowPart("tail", tail + used - counted, rest, "green"),
    ]
    return [*parts, WindowPart("free", max(0, engine.context_length - used), 0, "dim")]


def history(desk: Desk, words: str) -> None:
    """List the compactions of this conversation, or show one of them."""
    conversation = desk.agent.conversation
    session = conversation.session
    done = [] if session is None else conversation.store.conversations.compactions(session.id)
    if not done:
        desk.show.line("nothing was compacted yet")
        return
    if words:
        _show_compaction(desk, _pick(done, words))
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


def search(desk: Desk, words: str) -> None:
    """Find what was said in this or any conversation; with a number, open what was found."""
    store = desk.agent.conversation.store
    if not words:
        raise ChatError("say what to look for: /search WORDS; then /search NUMBER opens a hit")
    if words.isdigit() and desk.found:
        page = store.read(_pick(desk.found, words))
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
        record = _pick(desk.show.tools, words)
        desk.show.line(f"{record.summary} → {record.outcome}, {record.seconds:.1f} s", "bold")
        desk.show.text(record.text)
        return
    for number, record in enumerate(desk.show.tools, 1):
        desk.show.line(f"[{number}] {record.summary} → {record.outcome}")
    desk.show.line("on offer: " + ", ".join(one.name for one in desk.agent.tools.toolbox))


def usage(desk: Desk, words: str) -> None:
    """Show what this conversation cost, or all conversations, as the providers reported it."""
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
    from rich.table import Table  # noqa: PLC0415 - the prompt comes before this is loaded
    from rich.text import Text  # noqa: PLC0415 - as above

    del words
    table = Table(box=None, pad_edge=False, show_header=False)
    for command in desk.registry.commands.values():
        table.add_row(Text(f"/{command.name} {command.takes}"), command.about)
    desk.show.console.print(table, highlight=False)
    desk.show.line("Alt-Enter or Ctrl-J begins a new line, Ctrl-C stops, Ctrl-D leaves, Tab completes.", "dim")


# -- commands that compact ---------------------------------------------------------------------------------------------


def compress(desk: Desk, words: str) -> None:
    """Compact now, perhaps with a focus; or preview what that would do."""
    if words.startswith("--preview"):
        _preview(desk, words.removeprefix("--preview").strip())
        return
    if words.split()[:1] == ["here"]:
        _compress_here(desk, words.removeprefix("here").strip())
        return
    done = desk.agent.compress(words or None)
    if done.outcome == "unchanged":
        desk.show.line("there is nothing to compact: all of it is recent or protected")


def _compress_here(desk: Desk, words: str) -> None:
    from everlong.plugins.guard import compressor_of  # noqa: PLC0415 - the prompt comes before this is loaded

    engine = compressor_of(desk.agent.engine)
    if engine is None:
        raise ChatError(f"the engine {desk.agent.engine.name} decides by itself where to cut")
    if not words.isdigit() or int(words) < 1:
        raise ChatError("say how many of the newest messages are to stay: /compress here 10")
    with engine.keeping(int(words)):
        compress(desk, "")
        report = engine.last_report
    if report is not None and report.outcome == "summarized":
        desk.show.line(_describe_kept(report, int(words), engine.threshold_tokens))


def _describe_kept(report: CompactionReport, wanted: int, threshold: int) -> str:
    """Say how many of the newest messages a compaction kept, and why not the number that was wanted."""
    kept = report.messages_before - report.boundaries.tail_start
    told = f"kept the newest {kept} message{'' if kept == 1 else 's'} as {'it was' if kept == 1 else 'they were'}"
    if report.latest_user_repeated:
        told += ", and your latest request"
    if kept > wanted:
        told += f", not {wanted}: a call is not parted from its results"
    elif kept < wanted:
        told += f", not {wanted}: with more it would be over the threshold of {threshold:,} tokens"
    return told


def _preview(desk: Desk, focus: str) -> None:
    """Show what a compaction would do, on a copy and without a model, so that it costs nothing."""
    from everlong.caching.editing import worth_editing  # noqa: PLC0415 - the prompt comes before this is loaded
    from everlong.caching.rules import model_rules  # noqa: PLC0415 - as above
    from everlong.lossless import LosslessEngine  # noqa: PLC0415 - as above

    agent = desk.agent
    engine, messages = agent.engine, agent.conversation.messages
    if not isinstance(engine, everlong.context.ContextCompressor):
        raise ChatError(f"the engine {engine.name} cannot say beforehand what it would do")
    options: dict[str, Any] = {
        "settings": desk.settings.compression,
        "summarizer": everlong.context.ExtractiveSummarizer(),
        "model": agent.connection.model,
        "overhead_tokens": engine.overhead_tokens,
    }
    twin = (
        LosslessEngine(engine.context_length, lcm=desk.settings.lcm, **options)
        if isinstance(engine, LosslessEngine)
        else everlong.context.ContextCompressor(engine.context_length, **options)
    )
    result = twin.compress(messages, focus_topic=focus or None)
    report = twin.last_report
    before, after = agent.compactor.tokens, twin.estimate_tokens(result)
    if report is None or report.outcome == "unchanged":
        desk.show.line("there is nothing to compact: all of it is recent or protected")
        return
    desk.show.line(f"{before:,} → about {after:,} tokens, {len(messages)} → {len(result)} messages ({report.outcome})")
    kept = {id(message) for message in result}
    # A compaction puts its note into the system prompt, which is another message then and not gone.
    gone = [message for message in messages if id(message) not in kept and not is_system(message)]
    for message in gone[:_MOST_GONE]:
        desk.show.line(f"  − {message.get('role'):<9} {' '.join(text_of(message).split())[:90]}", "dim")
    if len(gone) > _MOST_GONE:
        desk.show.line(f"  − and {len(gone) - _MOST_GONE} more", "dim")
    cache = agent.asker.cache
    is_cold = cache is None or cache.choice.strategy != "ledger" or cache.is_cold()
    decision = worth_editing(before - after, after, is_cold=is_cold, is_due=True, model=agent.connection.model)
    rules = model_rules(agent.connection.model)
    desk.show.line(f"cache: {decision.explain()}")
    desk.show.line(
        f"the summary's own call reads {before:,} tokens ({rules.read:g} of the price where they are cached)"
    )


# -- commands that change the conversation -----------------------------------------------------------------------------


def undo(desk: Desk, words: str) -> None:
    """Take back the last exchange, or the newest compaction if that came later."""
    conversation = desk.agent.conversation
    if words == "compaction" or (not words and _is_compacted_last(desk.agent)):
        if not conversation.undo_compaction():
            raise ChatError("there is no compaction to undo")
        desk.show.line("the newest compaction is undone; its words stand there again")
        return
    if words:
        raise ChatError("say /undo, or /undo compaction")
    said = conversation.rewind()
    if said is None:
        raise ChatError("nothing was said yet")
    desk.agent.engine.update_from_response({})  # the last usage report counted the messages that are gone
    desk.show.line(f"taken back, with its answer: {' '.join(text_of(said).split())[:100]}")


def _is_compacted_last(agent: Agent) -> bool:
    branch, store = agent.conversation.branch, agent.conversation.store
    if branch is None:
        return False
    _, cover = store.view_items(branch)
    done = store.compactions(branch=branch.id)
    entries = store.entries(branch, branch.depth - 1)
    return bool(cover and done and entries and done[-1].at > entries[-1].ts)


def retry(desk: Desk, words: str) -> None:
    """Ask for another answer to the last prompt."""
    del words
    if desk.agent.retry() is None:
        raise ChatError("nothing was said yet")


def branch(desk: Desk, words: str) -> None:
    """Go on in a session of its own, so that this one stays as it is."""
    conversation = desk.agent.conversation
    if conversation.branch is None or conversation.session is None:
        raise ChatError("nothing was said yet")
    old = conversation.session
    conversation.store.sessions.end(old.id, "branch")
    new = conversation.store.sessions.start(
        conversation.branch,
        model=conversation.model,
        system_prompt=conversation.system_prompt,
        title=words or old.title,
        client=old.client,
        folder=old.folder,
        works_for=old.conversation,
        from_depth=0,
    )
    conversation.session = conversation.store.sessions.rewind(new.id, conversation.branch.depth)
    desk.agent.tools.context.session_id = new.id
    desk.show.line(f"this is session {new.id} now; /resume {old.conversation} goes back to where it was")


def pin(desk: Desk, words: str) -> None:
    """Keep a message in its own words through every compaction: the last thing you said, or one that was found."""
    conversation = desk.agent.conversation
    if conversation.branch is None:
        raise ChatError("nothing was said yet")
    if words:
        if not words.isdigit() or not 1 <= int(words) <= len(desk.found):
            raise ChatError("say /pin for the last thing you said, or /pin N for a hit of the last /search")
        node = desk.found[int(words) - 1]
    else:
        users = [e for e in conversation.store.entries(conversation.branch) if e.message.get("role") == "user" and e.id]
        if not users or users[-1].id is None:
            raise ChatError("nothing was said yet")
        node = users[-1].id
    conversation.store.pin(node)
    desk.show.line("pinned: it is told in its own words after every compaction")


def model(desk: Desk, words: str) -> None:
    """Show the model, or switch to another one."""
    if not words:
        info = desk.agent.connection.info
        desk.show.line(f"{info.name}: a window of {info.context_length:,} tokens ({info.context_source})")
        return

    desk.agent.switch_model(providers.connect(words, desk.settings))
    desk.show.line(f"now with {desk.agent.asker.model}; {desk.agent.caching_line}")


def title(desk: Desk, words: str) -> None:
    """Show or change the conversation's title."""
    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    whole = conversation.store.conversations
    if words:
        whole.rename(conversation.session.id, words)
        conversation.session = conversation.store.sessions.get(conversation.session.id)
    one = whole.get(conversation.session.id)
    desk.show.line(f"{one.title or 'no title'} ({one.id})")


def new(desk: Desk, words: str) -> None:
    """End this session and begin another one."""
    del words
    desk.agent.reset()
    desk.show.line(f"a new session: {desk.agent.conversation.session_id}")


def resume(desk: Desk, words: str) -> None:
    """Go on with another conversation, or list the newest ones."""
    store = desk.agent.conversation.store
    if not words:
        for one in store.conversations.newest(15):
            where = f"  {one.folder}" if one.folder else ""
            desk.show.line(
                f"{one.id}  {datetime.fromtimestamp(one.active).astimezone():%Y-%m-%d %H:%M}  "
                f"{one.title or 'no title'}{where}"
            )
        return
    if desk.open_agent is None:
        raise ChatError("this chat cannot change its session")
    found = store.conversations.find(words)
    old = desk.agent
    desk.state.agent = desk.open_agent(found.parts[-1])
    old.close()
    desk.show.last_exchange(desk.agent.conversation)


def leave(desk: Desk, words: str) -> None:
    """Leave the chat."""
    del words
    desk.state.is_over = True
    desk.state.changed()


# -- rules -------------------------------------------------------------------------------------------------------------


def rules(desk: Desk, words: str) -> None:
    """List the rules in force, add one, or remove one by its number."""
    what, _, rest = words.partition(" ")
    rest = rest.strip()
    if not words:
        _list_rules(desk)
    elif what == "add" and rest:
        desk.agent.edit_rules(added=[rest])
        desk.show.line(f"in force from now on: {' '.join(rest.split())}")
    elif what == "remove" and rest:
        if not desk.agent.rules.lines:
            raise ChatError("there are no rules to remove")
        rule = _pick(desk.agent.rules.lines, rest, "; /rules lists them")
        desk.agent.edit_rules(removed=[rule.text])
        desk.show.line(f"no longer in force: {rule.text}")
    else:
        raise ChatError(_RULES_USAGE)


def _list_rules(desk: Desk) -> None:
    found = desk.agent.rules
    if not found.lines and not found.older:
        desk.show.line("no rules yet: say what always or never holds, or /rules add TEXT")
    for number, rule in enumerate(found.lines, 1):
        origin = "project instructions" if rule.source == "project" else "you"
        kind = "a preference, " if rule.kind == "preference" else ""
        desk.show.line(f"{number}  {rule.text}  ({kind}{origin}, turn {rule.turn})")
    if found.older:
        many = len(found.older)
        desk.show.line(
            f"{many} older rule{'' if many == 1 else 's'} had no room after the summary: {', '.join(found.older)}",
            "dim",
        )


# -- all commands ------------------------------------------------------------------------------------------------------

COMMANDS = [
    Command("context", "", "Where the window goes: system, tools, memory, summary, pinned, tail, free.", context),
    Command("history", "[N]", "The compactions so far; with a number, one of them and what it covered.", history),
    Command("search", "WORDS | N", "Find what was said, ever; with a number, open a hit.", search),
    Command("tools", "[N]", "The tool calls so far; with a number, the whole result of one.", tools),
    Command("help", "", "This list.", show_help),
    Command("usage", "[all]", "What was paid for, and what caching and compactions did to it.", usage),
    Command("memory", "", "What is remembered from session to session.", memory),
    Command(
        "compress", "[focus] | --preview | here N", "Compact now; say what that would do; keep N messages.", compress
    ),
    Command("undo", "[compaction]", "Take back the last exchange, or the newest compaction.", undo),
    Command("retry", "", "Ask for another answer to the last prompt.", retry),
    Command("branch", "[title]", "Go on in a session of its own.", branch),
    Command("pin", "[N]", "Keep what you said last (or a hit of /search) word for word.", pin),
    Command("model", "[provider:model]", "Which model; or go on with another.", model),
    Command("title", "[text]", "The conversation's title.", title),
    Command("new", "", "End this session and begin another.", new),
    Command("reset", "", "The same as /new.", new),
    Command("resume", "[id or title]", "Go on with another conversation.", resume),
    Command("quit", "", "Leave; the session can be resumed.", leave),
    Command("exit", "", "The same as /quit.", leave),
    Command("rules", "[add TEXT | remove N]", "The rules you laid down; add one, or remove one.", rules),
]


# -- commands of plugins -----------------------------------------------------------------------------------------------


def register_plugin_commands(registry: Registry, offers: Iterable[CommandOffer], warn: Callable[[str], None]) -> None:
    """Register the commands of plugins, in place of the plugins' earlier ones."""
    registry.replace_plugged([])
    taken = []
    for offer in offers:
        if offer.name in registry.commands:
            warn(f"plugin {offer.plugin!r} brings a command /{offer.name}, which the chat has already; it is left out")
        else:
            about = f"{offer.description or 'a command'} (plugin {offer.plugin})"
            taken.append(Command(offer.name, offer.takes, about, _make_runner(offer)))
    registry.replace_plugged(taken)


def _make_runner(offer: CommandOffer) -> Callable[[Desk, str], None]:
    def run(desk: Desk, words: str) -> None:
        from everlong.memory.contain import describe_error  # noqa: PLC0415 - the prompt comes before this is loaded
        from everlong.plugins.hooks import run_awaitable  # noqa: PLC0415 - as above

        try:
            answer = offer.handler(words)
            if inspect.isawaitable(answer):
                answer = run_awaitable(answer)
        except (Exception, SystemExit) as error:
            raise ChatError(f"/{offer.name} of the plugin {offer.plugin!r} failed: {describe_error(error)}") from error
        if answer is not None:
            desk.show.text(str(answer))

    return run
