"""``everlong lcm show``, ``tree``, ``grep``, ``expand`` and ``stats``: reading the graph of a conversation.

``grep`` and ``expand`` call the tools of the model (``lossless/tools.py``) and show their answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from everlong.cli.chosen_store import (
    command,
    find_conversation,
    index_pending,
    message_filters,
    open_chosen_store,
    print_json,
)
from everlong.cli.output import counted, json_option, say
from everlong.cli.picture import console, fit, print_table
from everlong.cli.screen import styled
from everlong.errors import NotStored, QueryError
from everlong.lossless import LosslessEngine, SummaryNode
from everlong.lossless.graph import describe
from everlong.lossless.tools import EXPAND, GREP
from everlong.store.graph_status import GraphStatus, read_figures, read_status
from everlong.store.shown_path import find_message
from everlong.store.summaries import StoredGraph
from everlong.store.transcripts import one_line, plain
from everlong.store.transcripts.parts import moment, name_of

if TYPE_CHECKING:
    from everlong.store import Branch, Conversation, Store

_INDEX_SECONDS = 2.0
"""Seconds a search may first spend on indexing new messages; it looks through the rest directly."""
_DEPTH = 3

# -- the conversation --------------------------------------------------------------------------------------------------


class ChosenGraph(NamedTuple):
    """A conversation, its newest place in the tree, and the state of its graph."""

    conversation: Conversation
    at: Branch
    status: GraphStatus


def choose_conversation(store: Store, name: str | None) -> Conversation:
    """Return the conversation of that name; without a name, the one that was last active."""
    if name is not None:
        return find_conversation(store, name)
    newest = store.conversations.newest(1)
    if not newest:
        raise NotStored("there is no conversation yet; `everlong sessions import FILE` adds some")
    return newest[0]


def newest_place(store: Store, one: Conversation) -> Branch:
    """Return the place of a conversation's newest message."""
    runs = store.conversations.path(one.id).runs
    if not runs or not runs[-1].high:
        raise NotStored(f"the conversation {one.id} has no messages")
    return store.branch(runs[-1].branch, runs[-1].high)


def _choose_graph(store: Store, name: str | None) -> ChosenGraph:
    one = choose_conversation(store, name)
    at = newest_place(store, one)
    status = read_status(store, at)
    if not status.roots and not status.graph.count():
        raise NotStored(f"{_called(one)} has no graph; `everlong lcm build {one.id}` makes one")
    return ChosenGraph(one, at, status)


def _called(one: Conversation) -> str:
    name = name_of(one)
    return f"the conversation {one.id}" if name == one.id else f"the conversation {name!r} ({one.id})"


# -- show --------------------------------------------------------------------------------------------------------------


@command("show")
@click.argument("session", required=False)
@json_option
def show(session: str | None, as_json: bool) -> None:
    """List the summaries that the context of a conversation stands on, oldest first.

    SESSION is named as in `everlong sessions show`; without it, the conversation that was last active is meant.
    """
    with open_chosen_store() as store:
        chosen = _choose_graph(store, session)
    status, one = chosen.status, chosen.conversation
    nodes = status.shown or status.ahead
    if as_json:
        summaries = [{**describe(node), "text": node.made.text} for node in nodes]
        figures = {"messages": status.messages, "newer_messages": status.newer, "forgotten": status.lost}
        print_json({"session": one.id, "in_context": bool(status.shown), "summaries": summaries, **figures})
        return
    heads = ["summary", "level", "messages", "tokens", "from", "to", "state", "quality", "first line"]
    print_table(heads, [_row(node) for node in nodes], right={1, 2, 3, 7}, spare=(5, 7, 4, 6))
    if status.shown:
        under = status.messages - status.newer
        say(
            f"the context of {_called(one)} stands on {count_summaries(len(nodes))} over {counted(under, 'message')}; "
            f"{counted(status.newer, 'newer message')} follow{'s' if status.newer == 1 else ''}"
        )
    else:
        say(f"the context of {_called(one)} shows no summary of its graph; these are the highest")
    for ident in status.lost:
        say(f"{ident} was forgotten with its messages; the next compaction leaves it out")


def _row(node: SummaryNode) -> list[str]:
    made = node.made
    times = ["" if at is None else moment(at)[:16] for at in (node.started, node.ended)]
    figures = [f"{made.level}", f"{made.messages:,}", f"{made.tokens:,}"]
    return [node.id, *figures, *times, node.state, f"{made.quality:.2f}", _first_line(made.text)]


def _first_line(text: str) -> str:
    """Return the first line of a summary that is no heading."""
    lines = [line.strip() for line in text.splitlines()]
    told = next((line for line in lines if line and not line.startswith("#")), "")
    return one_line(told.removeprefix("- "))


def count_summaries(count: int) -> str:
    """Return a number of summaries with its noun."""
    return f"{count:,} summar{'y' if count == 1 else 'ies'}"


# -- tree --------------------------------------------------------------------------------------------------------------


@command("tree")
@click.argument("session", required=False)
@click.option(
    "--depth", type=click.IntRange(min=1), default=_DEPTH, show_default=True, help="Show this many levels of summaries."
)
@json_option
def tree(session: str | None, depth: int, as_json: bool) -> None:
    """Draw the graph of a conversation: each summary on a line, and under it those that it was made from.

    A star marks the summaries that the context stands on.
    """
    with open_chosen_store() as store:
        chosen = _choose_graph(store, session)
        status, one = chosen.status, chosen.conversation
        in_context = {node.id for node in status.shown}
        free = status.messages - status.covered
        if as_json:
            roots = [{"in_context": node.id in in_context, **_branch(status, node, depth)} for node in status.roots]
            print_json({"session": one.id, "messages": status.messages, "summaries": roots, "uncovered": free})
            return
        title = f"{name_of(one)}  {counted(status.messages, 'message')}"
        lines = [title, *_drawn(status, status.roots, in_context, depth, free)]
    out = console()
    for line in lines:
        click.echo(fit(line, out.width) if out.is_terminal else line)  # a file or pipe has no width


def _branch(status: GraphStatus, node: SummaryNode, depth: int) -> dict[str, Any]:
    """Return a summary with those under it, as many levels as are wanted."""
    shown: dict[str, Any] = {**describe(node), "first_line": _first_line(node.made.text)}
    if depth > 1 and node.made.children:
        shown["under_it"] = [_branch(status, child, depth - 1) for child in _children(status, node)]
    return shown


def _children(status: GraphStatus, node: SummaryNode) -> list[SummaryNode]:
    return [child for child in status.graph.newest(node.made.children) if child is not None]


def _drawn(
    status: GraphStatus, nodes: Sequence[SummaryNode], in_context: set[str], depth: int, free: int = 0, before: str = ""
) -> Iterator[str]:
    """Yield the lines of some neighbouring summaries, and of the messages after them that no summary covers."""
    for place, node in enumerate(nodes):
        is_last = place == len(nodes) - 1 and not free
        yield f"{before}{'└─' if is_last else '├─'} {_node_line(node, is_shown=node.id in in_context)}"
        below = f"{before}{'   ' if is_last else '│  '}"
        if depth > 1:
            yield from _drawn(status, _children(status, node), in_context, depth - 1, before=below)
        elif node.made.children:
            yield f"{below}└─ … {count_summaries(len(node.made.children))} under it; --depth shows more"
    if free:
        yield f"{before}└─ {counted(free, 'message')} under no summary"


def _node_line(node: SummaryNode, *, is_shown: bool) -> str:
    made = node.made
    level = f"level {made.level}" if made.level else "leaf"
    when = "" if node.started is None else f"  {moment(node.started)[:16]}"
    state = "" if node.state == "good" else f"  {node.state}"
    figures = f"{counted(made.messages, 'message')}, {counted(made.tokens, 'token')}"
    return f"{node.id}{'*' if is_shown else ''}  {level}  {figures}{when}{state}  {_first_line(made.text)}"


# -- grep and expand ---------------------------------------------------------------------------------------------------


@command("grep")
@click.argument("query", nargs=-1, required=True)
@click.option("--session", help="Only in this conversation.  [default: the one that was last active]")
@click.option("--all", "everywhere", is_flag=True, help="In all conversations.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "phrase", "substring", "regex"]),
    default="auto",
    show_default=True,
    help="How the query is meant.",
)
@message_filters
@click.option("--page", type=click.IntRange(min=1), default=1, help="Which page to show, counted from 1.")
@json_option
def grep(query: tuple[str, ...], session: str | None, everywhere: bool, as_json: bool, **given: Any) -> None:
    """Find messages, tool calls, results and summaries about QUERY, as the tool `lcm_grep` of the model does.

    Messages with any of the words match, best first. `everlong lcm expand` opens a hit by its id.
    """
    if session is not None and everywhere:
        raise click.UsageError("say --session or --all, not both")
    if everywhere and given["role"] == "summary":
        raise click.UsageError("summaries are searched in one conversation; name it with --session, without --all")
    with open_chosen_store() as store:
        index_pending(store, _INDEX_SECONDS)
        at = None if everywhere else newest_place(store, choose_conversation(store, session))
        scope = "all" if everywhere else "conversation"
        answer = _ask(StoredGraph(store, lambda: at), GREP, {"query": " ".join(query), "scope": scope, **given})
        hits = [{**hit, **_whereabouts(store, hit)} for hit in answer["hits"]]
    if as_json:
        print_json({"hits": hits, "page": given["page"], "more": bool(answer.get("more"))})
        return
    for hit in hits:
        where = f"  {hit['session']}:{hit['turn']}" if hit.get("session") else ""
        click.echo(f"{styled(hit['id'], bold=True)}  {hit['role']}  {hit.get('at', '')}{where}")
        click.echo("".join(f"     {line}\n" for line in plain(hit["text"]).splitlines() if line.strip()), nl=False)
    if not hits:
        say("nothing was found")
    elif answer.get("more"):
        say(f"{counted(len(hits), 'hit')} shown; --page {given['page'] + 1} shows more")


def _whereabouts(store: Store, hit: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation and the turn of a hit, if it is a message."""
    if hit["role"] == "summary":
        return {}
    found = find_message(store, hit["id"])
    return {"session": found.session, "turn": found.turn}


def _ask(graph: StoredGraph, tool: str, args: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of one of the model's tools."""
    answer: dict[str, Any] = json.loads(LosslessEngine(graph=graph).handle_tool_call(tool, args))
    if "error" in answer:
        raise QueryError(str(answer["error"]))
    return answer


@command("expand")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--page", type=click.IntRange(min=1), default=1, help="Which page to show, counted from 1.")
@json_option
def expand(ids: tuple[str, ...], page: int, as_json: bool) -> None:
    """Open summaries (s-…) or messages by their ids, as the tool `lcm_expand` of the model does.

    A summary opens to the summaries or messages under it, a message to its own words.
    """
    with open_chosen_store() as store:
        answer = _ask(StoredGraph(store, lambda: None), EXPAND, {"ids": list(ids), "page": page})
    unknown = [one["id"] for one in answer["opened"] if "error" in one]
    if as_json:
        print_json(answer)
    else:
        for one in answer["opened"]:
            _print_opened(one, page)
    if unknown:
        told = "there is no summary and no message of this id; a summary goes when its messages are forgotten"
        for ident in unknown:
            say(f"{one_line(ident)}: {told}")
        raise click.exceptions.Exit(1)


def _print_opened(one: dict[str, Any], page: int) -> None:
    if "messages" in one:
        for message in one["messages"]:
            click.echo(styled(message["id"], bold=True))
            click.echo(plain(message["text"]) + "\n")
            if "rest" in message:
                say(
                    f"{counted(message['chars'], 'character')} in all; `everlong lcm expand {message['id']}` shows them"
                )
    elif "text" in one:
        click.echo(styled(one["id"], bold=True))
        click.echo(plain(one["text"]) + "\n")
    is_more = one.get("more") or one.get("pages", 1) > page
    if is_more:
        say(f"{one['id']} goes on; --page {page + 1} shows more")


# -- stats -------------------------------------------------------------------------------------------------------------


@command("stats")
@click.argument("session", required=False)
@json_option
def stats(session: str | None, as_json: bool) -> None:
    """Show the figures of a graph: summaries by level and state, tokens, models, and how much they cover."""
    with open_chosen_store() as store:
        chosen = _choose_graph(store, session)
        figures = read_figures(chosen.status)
    if as_json:
        print_json({"session": chosen.conversation.id, **figures})
        return
    states = ["good", "degraded", "replaced", "void"]
    rows = [
        [f"{one['level']}", *(f"{one.get(state, 0):,}" for state in states), f"{one['tokens']:,}"]
        for one in figures["levels"]
    ]
    print_table(["level", *states, "tokens"], rows, right={0, 1, 2, 3, 4, 5})
    covered, total = figures["messages_under_summaries"], figures["messages"]
    facts = {
        "messages": f"{covered:,} of {total:,} under summaries ({covered / max(1, total):.0%})",
        "in context": count_summaries(figures["summaries_in_context"]),
        "tokens": f"{figures['source_tokens']:,} of messages in {figures['tokens']:,} of the highest summaries"
        + (f" ({figures['ratio']:.1f} to 1)" if figures["ratio"] else ""),
        "written by": ", ".join(f"{one_line(model)} ({count:,})" for model, count in figures["models"].items()),
    }
    for name, value in facts.items():
        click.echo(f"{name + ':':<11} {value}")
