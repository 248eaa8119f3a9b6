"""``everlong sessions``: the group of commands for the conversations in the store, and those that read it.

``sessions_change.py`` has rename, delete, forget, verify, backup and maintain; ``sessions_transfer.py`` has
import and export. The filters of ``list`` reach `Conversations.newest` in ``store/conversations.py`` by their names.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from everlong.agent.commands.books import money
from everlong.cli.chosen_store import (
    all_tenants_option,
    chosen_options,
    command,
    find_conversation,
    index_pending,
    open_chosen_store,
    other_tenants,
    parse_time,
    print_json,
    store_option,
    tenant_option,
)
from everlong.cli.main import LazyGroup
from everlong.cli.output import counted, fold, json_option, say
from everlong.cli.picture import print_table
from everlong.cli.screen import show_in_pager, styled
from everlong.errors import NotStored
from everlong.lossless.graph import describe
from everlong.model import called_tools, whole_text
from everlong.store import Conversation
from everlong.store.conversations import CompactionMark, ConversationLine
from everlong.store.summaries import StoredGraph
from everlong.store.transcripts import one_line, pieces_of, plain
from everlong.store.transcripts.parts import broken_words, compaction_line, facts_of, moment, name_of

if TYPE_CHECKING:
    from everlong.store import Compaction, Store, Turn
    from everlong.store.search import Hit, Page
    from everlong.store.search.snippets import Snippet

_FOLDER_CHARS = 28
_SHOWN_CHARS, _PROMPT_CHARS = 2_000, 400
"""Characters that are shown of each text of a conversation, and of its system prompt."""
_ROLE_COLOURS = {"user": "blue", "assistant": "green", "tool": "yellow"}
_INDEX_SECONDS = 2.0
"""Seconds a search may first spend on indexing new messages."""
_SEARCH_SECONDS = 30.0
"""Seconds a search through texts may take: whoever waits longer has forgotten the question."""
_NARROW = "--session, --since or --before search less, and find more of it"

_CHANGE, _TRANSFER = (f"everlong.cli.sessions_{name}" for name in ("change", "transfer"))
_COMMANDS = {
    "backup": (f"{_CHANGE}:backup", "Copy the store into a new file."),
    "compactions": (f"{__name__}:compactions", "Show the compaction history of one conversation, or of all."),
    "delete": (f"{_CHANGE}:delete", "Delete conversations."),
    "export": (f"{_TRANSFER}:export", "Write conversations to files: JSONL, JSON or Markdown."),
    "forget": (f"{_CHANGE}:forget", "Remove messages for good: by a text, or by name."),
    "import": (f"{_TRANSFER}:import_", "Import conversations from files, folders, or the logs of other clients."),
    "list": (f"{__name__}:list_", "List conversations, the last active one first."),
    "maintain": (f"{_CHANGE}:maintain", "Index all messages, apply the retention settings, and free disk space."),
    "rename": (f"{_CHANGE}:rename", "Give a conversation another title."),
    "search": (f"{__name__}:search", "Find messages, tool calls, results and summaries."),
    "show": (f"{__name__}:show", "Show a conversation."),
    "verify": (f"{_CHANGE}:verify", "Check every hash and every reference."),
}
"""The place of each command, and its line in ``everlong sessions --help``."""


@click.group("sessions", cls=LazyGroup, lazy=_COMMANDS)
@store_option
@tenant_option
@all_tenants_option
def sessions_group() -> None:
    """Read, search, import, export and clean up the conversations in the store."""


# -- list --------------------------------------------------------------------------------------------------------------


@command("list", "each")
@click.option("--source", help="Only from this source, such as cli or claude-code.")
@click.option("--folder", type=click.Path(), help="Only those that work in this folder; . for the current one.")
@click.option(
    "--since",
    callback=parse_time,
    metavar="WHEN",
    help="Only those active at or after this time: 2026-01-31, or 7d for seven days ago.",
)
@click.option("--side", is_flag=True, help="Side requests of clients, and sub-agents, instead of conversations.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show at most this many."
)
@json_option
def list_(limit: int, as_json: bool, side: bool, **given: Any) -> None:
    """List conversations, the one that was last active first."""
    if given["folder"] is not None:
        given["folder"] = str(Path(given["folder"]).expanduser().resolve())
    if side:
        given["kinds"] = ("side", "agent")
    with open_chosen_store() as store:
        found = store.conversations.newest(limit + 1, **given)
        if as_json:
            print_json([one.to_dict() for one in found[:limit]])
            return
        rows = [_conversation_row(one) for one in found[:limit]]
        elsewhere = "" if rows else other_tenants(store)
    _print_rows(rows, elsewhere, is_filtered=any(value is not None for value in given.values()))
    if len(found) > limit:
        say(f"there are more; --limit {limit * 5} shows more of them")


def _print_rows(rows: list[list[str]], elsewhere: str, *, is_filtered: bool) -> None:
    if not rows:
        nothing = f"no conversations yet; {elsewhere or '`everlong sessions import FILE` adds some'}"
        say("; ".join(filter(None, ("no conversation matches these options", elsewhere))) if is_filtered else nothing)
        return
    heads = ["session", "active", "messages", "compactions", "model", "cost", "from", "title"]
    print_table(heads, rows, right={2, 3, 5}, spare=(4, 5, 3, 6))


def _conversation_row(one: Conversation) -> list[str]:
    name = one_line(one.title or "")
    if one.kind != "main":
        whom = f" for {one.works_for}" if one.works_for else ""
        name = f"{name}  ↳ {'agent' if one.kind == 'agent' else 'on the side'}{whom}"
    if one.agents:
        name = f"{name}  +{counted(one.agents, 'agent')}"
    where = [one_line(one.client or one.source)]
    if one.folder:
        where.append(_short_folder(one_line(one.folder)))
    cost = money(one.cost) if one.cost else ""
    return [
        *(one.id, moment(one.active)[:16], f"{one.messages:,}", f"{one.compactions:,}" if one.compactions else ""),
        *(one_line(one.model or ""), cost, " ".join(where), name),
    ]


def _short_folder(folder: str) -> str:
    home = str(Path.home())
    if folder == home or folder.startswith(f"{home}/"):
        folder = f"~{folder[len(home) :]}"
    return folder if len(folder) <= _FOLDER_CHARS else f"…{folder[1 - _FOLDER_CHARS :]}"


# -- show --------------------------------------------------------------------------------------------------------------


@command("show")
@click.argument("session")
@click.option(
    "--message",
    "number",
    type=click.IntRange(min=1),
    help="Only this message, in full, by the number that show and search print.",
)
@json_option
def show(session: str, number: int | None, as_json: bool) -> None:
    """Show a conversation, named by its title, or by the id (or its beginning) of any of its parts.

    Marks show where it was compacted, which replies broke off and which requests failed. The id of a summary (s-…)
    shows what stands under it.
    """
    with open_chosen_store() as store:
        if session.startswith("s-"):
            _show_summary(store, session, as_json=as_json)
            return
        one = find_conversation(store, session)
        if number is not None:
            _show_message(store, one, number, as_json=as_json)
        elif as_json:
            print_json(_conversation_json(store, one))
        else:
            show_in_pager(fold(piece, sys.stdout) for piece in _render(store, one))


def _conversation_json(store: Store, one: Conversation) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    compactions: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    failed = _failed_requests(store, one)
    for line in store.conversations.entries(one.id):
        if isinstance(line, CompactionMark):
            compactions.append({"before_message": len(messages), **line.to_dict()})
            continue
        messages.append(_line_json(line))
        failures += [
            {"turn": line.turn, "at": request.began, "model": request.model, "error": request.error}
            for request in failed.get(line.entry.id, ())
        ]
    facts = one.to_dict() | {"system_prompt": store.conversations.system_prompt(one.id)}
    told = {"messages": messages, "compactions": compactions, "failures": failures}
    return {"session": facts, "parts": list(one.parts), **told}


def _failed_requests(store: Store, one: Conversation) -> dict[bytes | None, list[Turn]]:
    """Return the requests that brought no answer, by the message that each ended with."""
    found: dict[bytes | None, list[Turn]] = {}
    for turn in (turn for part in one.parts for turn in store.turns.of_session(part)):
        if turn.status == "failed" and turn.reply is None:
            found.setdefault(turn.node, []).append(turn)
    return found


def _line_json(line: ConversationLine) -> dict[str, Any]:
    entry = line.entry
    broken = {} if line.status is None else {"status": line.status, "error": line.error}
    return {
        "turn": line.turn,
        "node": entry.id.hex() if entry.id else None,
        "at": entry.ts,
        "forgotten": entry.forgotten,
        "message": entry.message,
        **broken,
    }


def _render(store: Store, one: Conversation) -> Iterator[str]:
    yield styled(name_of(one), bold=True) + "\n"
    for name, value in facts_of(one):
        yield f"{name + ':':<11} {value}\n"
    prompt = store.conversations.system_prompt(one.id)
    if prompt:
        shown = _shorten(prompt, _PROMPT_CHARS, "")
        yield from ("\n", styled("system", bold=True), "\n", shown, "\n")
    tools: dict[str, str] = {}
    failed = _failed_requests(store, one)
    for line in store.conversations.entries(one.id):
        if isinstance(line, CompactionMark):
            yield "\n" + styled(f"── {compaction_line(line)} ──", dim=True) + "\n"
            continue
        tools |= called_tools(line.entry.message)
        yield from _render_message(one, line, _SHOWN_CHARS, tools)
        for request in failed.get(line.entry.id, ()):
            why = one_line(request.error or "the reason is unknown")
            yield f"\n{styled(f'request failed: {why}', fg='red')}  {styled(moment(request.began), dim=True)}\n"


def _render_message(one: Conversation, line: ConversationLine, chars: int, tools: dict[str, str]) -> Iterator[str]:
    entry = line.entry
    role = one_line(str(entry.message.get("role")))
    number = "" if line.turn is None else f"{line.turn} "
    who = styled(f"{number}{role}", bold=True, fg=_ROLE_COLOURS.get(role))
    broken = f"  {styled(broken_words(line), fg='red')}" if line.status else ""
    yield f"\n{who}  {styled(moment(entry.ts), dim=True)}{broken}\n"
    more = f"; everlong sessions{chosen_options()} show {one.id} --message {line.turn}"
    rest = more if line.turn is not None else ""
    for piece in pieces_of(entry.message, tools):
        label = one_line(piece.label)
        if piece.kind == "image":
            yield "[image]\n"
            continue
        if piece.kind != "text":
            name = {"call": f"→ {label}", "result": f"← {label}"}.get(piece.kind, label)
            yield styled(name, fg="cyan") + "\n"
        yield _shorten(piece.body, chars, rest) + "\n"


def _shorten(text: str, chars: int, rest: str) -> str:
    """Return the beginning of a text, safe for a terminal, and how to see the rest."""
    if not chars or len(text) <= chars + 200:  # to cut for less than a line would only annoy
        return plain(text)
    more = f"… {len(text) - chars:,} more characters{rest}"
    return plain(text[:chars]) + "\n" + styled(more, dim=True)


def _show_message(store: Store, one: Conversation, number: int, *, as_json: bool) -> None:
    listed = [line for line in store.conversations.entries(one.id) if isinstance(line, ConversationLine)]
    place = next((at for at, line in enumerate(listed) if (line.turn or 0) >= number), None)
    if place is None:
        last = max((line.turn or 0 for line in listed), default=0)
        raise NotStored(f"session {one.id} has no message {number}; its last is {last}")
    end = place + 1
    while end < len(listed) and listed[end].status is not None:  # replies to it that broke off have its number
        end += 1
    if as_json:
        shown = [_line_json(line) for line in listed[place:end]]
        print_json(shown if len(shown) > 1 else shown[0])
        return
    tools: dict[str, str] = {}
    for line in listed[:end]:
        tools |= called_tools(line.entry.message)
    show_in_pager(fold(text, sys.stdout) for line in listed[place:end] for text in _render_message(one, line, 0, tools))


def _show_summary(store: Store, ident: str, *, as_json: bool) -> None:
    """Show a summary of the lossless engine, and the summaries or messages that it was made from."""
    graph = StoredGraph(store, lambda: None)
    node = graph.get(ident)
    if node is None:
        raise NotStored(f"there is no summary {ident}; a summary goes when its messages are forgotten")
    if node.made.children:
        under = [(child.id, child.made.text) for child in graph.newest(node.made.children) if child is not None]
    else:
        said = graph.messages(node.made.after, node.made.last)
        under = [(f"{place[:12]} {message['role']}", whole_text(message)) for place, message in said]
    if as_json:
        print_json({**describe(node), "text": node.made.text, "under_it": dict(under)})
    else:
        parts = [(node.id, node.made.text), *under]
        show_in_pager(f"{styled(name, bold=True)}\n{plain(text)}\n\n" for name, text in parts)


# -- search ------------------------------------------------------------------------------------------------------------


@command("search", "each")
@click.argument("query", nargs=-1, required=True)
@click.option("--substring", "mode", flag_value="substring", help="Find the whole query anywhere, also within words.")
@click.option("--regex", "mode", flag_value="regex", help="The query is a regular expression; (?i) ignores case.")
@click.option("--session", help="Only in this conversation.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool", "summary"]), help="Only what this role said.")
@click.option("--tool", help="Only calls of this tool and its answers.")
@click.option(
    "--since",
    callback=parse_time,
    metavar="WHEN",
    help="Only what was said at or after this time: 2026-01-31, or 7d for seven days ago.",
)
@click.option("--before", callback=parse_time, metavar="WHEN", help="Only what was said before this time.")
@click.option(
    "--by",
    type=click.Choice(["relevance", "time", "oldest"]),
    default="relevance",
    show_default=True,
    help="The order of the hits; by time, the newest first; or the oldest first.",
)
@click.option("-n", "--limit", type=click.IntRange(1, 1_000), default=10, show_default=True, help="The most hits.")
@json_option
def search(query: tuple[str, ...], mode: str | None, by: str, limit: int, as_json: bool, **given: Any) -> None:
    """Find messages, tool calls, results and summaries about QUERY.

    Messages with any of the words match, best first. Put "an exact phrase" in double quotes.
    """
    from everlong.store.search import Filters  # noqa: PLC0415 - the other commands need no search

    with open_chosen_store() as store:
        index_pending(store, _INDEX_SECONDS)
        if given["session"] is not None:
            given["session"] = find_conversation(store, given["session"]).id
        filters = Filters(**given)
        options = {"mode": mode or "auto", "order": by, "filters": filters, "limit": limit, "seconds": _SEARCH_SECONDS}
        shown = store.search(" ".join(query), **options)
    if as_json:
        hits = [hit.to_dict() for hit in shown.hits]
        print_json({"hits": hits, "more": shown.cursor is not None, "is_partial": shown.is_partial})
        return
    _print_page(shown, limit)


def _print_page(shown: Page, limit: int) -> None:
    for number, hit in enumerate(shown.hits, start=1):
        click.echo("\n".join(fold(line, sys.stdout, " " * 5) for line in hit_lines(number, hit)))
    if not shown.hits:
        say("nothing was found" + (f" in {_SEARCH_SECONDS:g} seconds; {_NARROW}" if shown.is_partial else ""))
    elif shown.is_partial:
        say(f"these were found in {_SEARCH_SECONDS:g} seconds; {_NARROW}")
    if shown.cursor is not None and shown.hits:
        say(f"{counted(len(shown.hits), 'hit')} shown; --limit {limit * 5} shows more")


def hit_lines(number: int, hit: Hit) -> list[str]:
    """Return two lines that show a hit."""
    where = f"{hit.session}:{hit.turn}" if hit.session else "(in no conversation)"
    title = f"  {one_line(hit.title)}" if hit.title else ""
    speaker = f" ({one_line(hit.speaker)})" if hit.speaker else ""
    beside = "" if hit.is_match else "  (next to a match)"
    if hit.status:
        beside += f"  ({hit.status})"
    head = f"{number:>3}  {moment(hit.at)[:16]}  {styled(one_line(hit.role), bold=True)}{speaker}  {where}{title}"
    return [head + beside, f"     {_mark_matches(hit.snippet)}"]


def _mark_matches(snippet: Snippet) -> str:
    """Return a snippet with its matches in colour, or between asterisks where stdout is no terminal."""
    in_colour = sys.stdout.isatty()
    pieces, end = [], 0
    for start, stop in snippet.marks:
        inside = plain(snippet.text[start:stop])
        shown = styled(inside, fg="yellow", bold=True) if in_colour else f"**{inside}**"
        pieces += [plain(snippet.text[end:start]), shown]
        end = stop
    return "".join([*pieces, plain(snippet.text[end:])]).replace("\n", " ")


# -- compactions -----------------------------------------------------------------------------------------------------


@command("compactions", "each")
@click.argument("session", required=False)
@json_option
def compactions(session: str | None, as_json: bool) -> None:
    """Show the compaction history of a conversation, or of all: when, why, how much, how good."""
    with open_chosen_store() as store:
        named = None if session is None else find_conversation(store, session).id
        history = list(_read_history(store, named))
    if as_json:
        print_json([asdict(row.of) | {"number": row.number, "is_undone": row.is_undone} for row in history])
        return
    if not history:
        say("no compaction yet")
        return
    heads = ["#", "when", "session", "why", "tokens", "cost", "messages", "written by", "quality"]
    rows = [_compaction_row(row, "" if named is not None else row.conversation) for row in history]
    print_table(heads, rows, right={0, 5}, spare=(8, 6, 7, 0, 5, 1, 2))


class _HistoryRow(NamedTuple):
    """A compaction and its place in the history of its conversation."""

    of: Compaction
    conversation: str
    number: int | None
    """Its number, from 1, by which `/history` and `/summary` show it; None if it is in no conversation."""
    is_undone: bool


def _read_history(store: Store, named: str | None) -> Iterator[_HistoryRow]:
    """Yield the compactions of a conversation, or of all, oldest first."""
    from everlong.store.whereabouts import is_undone, standing_views  # noqa: PLC0415 - it loads the search

    whole = {one.id: one.conversation for one in store.sessions.newest()}
    numbers: Counter[str] = Counter()
    standing: dict[str, set[int]] = {}
    for one in store.compactions() if named is None else store.conversations.compactions(named):
        name = whole.get(one.session or "")
        if name is None:
            yield _HistoryRow(one, "", None, is_undone=False)
            continue
        if name not in standing:
            standing[name] = standing_views(store, store.conversations.path(name))
        numbers[name] += 1
        yield _HistoryRow(one, name, numbers[name], is_undone(one, standing[name]))


def _compaction_row(row: _HistoryRow, session: str) -> list[str]:
    from everlong.agent.commands.compaction import REASONS  # noqa: PLC0415 - keeps `--help` quick

    one = row.of
    return [
        str(row.number or ""),
        moment(one.at)[:16],
        session,
        REASONS.get(one.reason, one_line(one.reason)) + (", undone" if row.is_undone else ""),
        f"{one.tokens_before or 0:,} → {one.tokens_after or 0:,}",
        "" if one.cost is None else money(one.cost),
        f"{one.messages_before:,} → {one.messages_after:,}",
        one_line(one.summarizer or one.engine),
        one_line("; ".join(filter(None, (f"fell back: {one.fallback}" if one.fallback else "", one.findings)))),
    ]
