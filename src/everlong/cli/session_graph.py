"""The graph of summaries of the lossless engine: drawn, opened and built by commands of ``everlong sessions``.

``show --graph`` draws it, ``show s-…`` opens a summary, ``maintain --graph`` builds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.chosen_store import print_json
from everlong.cli.output import counted, say, track
from everlong.cli.picture import console, fit
from everlong.cli.screen import show_in_pager, styled
from everlong.config import load_settings
from everlong.context.compressor import DEFAULT_CONTEXT_LENGTH
from everlong.errors import NotStored
from everlong.lossless import LosslessEngine
from everlong.lossless.graph import describe
from everlong.lossless.tools import EXPAND
from everlong.store.summaries import GraphStatus, StoredGraph, read_figures, read_status
from everlong.store.transcripts import one_line, plain
from everlong.store.transcripts.parts import moment, name_of

if TYPE_CHECKING:
    from everlong.lossless import SummaryNode
    from everlong.store import Branch, Conversation, Store


def _newest_place(store: Store, one: Conversation) -> Branch | None:
    """Return the place of a conversation's newest message; None if it has no messages."""
    runs = store.conversations.path(one.id).runs
    return store.branch(runs[-1].branch, runs[-1].high) if runs and runs[-1].high else None


# -- showing -----------------------------------------------------------------------------------------------------------


def show_graph(store: Store, one: Conversation, *, as_json: bool) -> None:
    """Draw the graph of a conversation: each summary on a line, and under it those that it was made from.

    Raises:
        NotStored: the conversation has no graph.
    """
    at = _newest_place(store, one)
    status = None if at is None else read_status(store, at)
    if status is None or not status.graph.count():
        build = f"everlong sessions maintain --graph {one.id}"
        raise NotStored(f"the conversation {one.id} has no graph of summaries; `{build}` makes one")
    in_context = {node.id for node in status.shown}
    figures = read_figures(status)
    if as_json:
        roots = [{"in_context": node.id in in_context, **_to_dict(status, node)} for node in status.roots]
        print_json({"session": one.id, **figures, "forgotten": status.lost, "summaries": roots})
        return
    free = status.messages - status.covered
    lines = [
        f"{name_of(one)}  {counted(status.messages, 'message')}",
        *_draw(status, status.roots, in_context, free),
    ]
    out = console()
    for line in lines:
        click.echo(fit(line, out.width) if out.is_terminal else line)  # a file or pipe has no width
    writers = ", ".join(f"{one_line(model)} ({count:,})" for model, count in figures["models"].items())
    say(f"{status.covered:,} of {counted(status.messages, 'message')} under summaries; writers: {writers or 'none'}")
    if in_context:
        say("the context stands on the summaries with a star; `everlong sessions show s-…` opens one")
    else:
        say("the context shows no summary of this graph; `everlong sessions show s-…` opens one")


def _to_dict(status: GraphStatus, node: SummaryNode) -> dict[str, Any]:
    """Return a summary with its text and those under it."""
    shown: dict[str, Any] = {**describe(node), "text": node.made.text}
    if node.made.children:
        shown["under_it"] = [_to_dict(status, child) for child in _children(status, node)]
    return shown


def _children(status: GraphStatus, node: SummaryNode) -> list[SummaryNode]:
    return [child for child in status.graph.newest(node.made.children) if child is not None]


def _draw(
    status: GraphStatus, nodes: Sequence[SummaryNode], in_context: set[str], free: int = 0, before: str = ""
) -> Iterator[str]:
    """Yield the lines of some neighbouring summaries, and of the messages after them that no summary covers."""
    for place, node in enumerate(nodes):
        is_last = place == len(nodes) - 1 and not free
        yield f"{before}{'└─' if is_last else '├─'} {_node_line(node, is_shown=node.id in in_context)}"
        yield from _draw(status, _children(status, node), in_context, before=f"{before}{'   ' if is_last else '│  '}")
    if free:
        yield f"{before}└─ {counted(free, 'message')} under no summary"


def _node_line(node: SummaryNode, *, is_shown: bool) -> str:
    made = node.made
    level = f"level {made.level}" if made.level else "leaf"
    when = "" if node.started is None else f"  {moment(node.started)[:16]}"
    state = "" if node.state == "good" else f"  {node.state}"
    figures = f"{counted(made.messages, 'message')}, {counted(made.tokens, 'token')}"
    return f"{node.id}{'*' if is_shown else ''}  {level}  {figures}{when}{state}  {_first_line(made.text)}"


def _first_line(text: str) -> str:
    """Return the first line of a summary that is no heading."""
    lines = [line.strip() for line in text.splitlines()]
    told = next((line for line in lines if line and not line.startswith("#")), "")
    return one_line(told.removeprefix("- "))


def show_summary(store: Store, ident: str, *, as_json: bool) -> None:
    """Show a summary: its words, and the summaries or messages under it, as the tool `lcm_expand` opens it.

    Raises:
        NotStored: there is no summary of this id.
    """
    pages: list[dict[str, Any]] = []
    engine = LosslessEngine(graph=StoredGraph(store, lambda: None))
    while not pages or pages[-1].get("more") or pages[-1].get("pages", 1) > len(pages):
        arguments = {"ids": [ident], "page": len(pages) + 1}
        (page,) = json.loads(engine.handle_tool_call(EXPAND, arguments))["opened"]
        if "error" in page:
            raise NotStored(f"there is no summary {ident}; a summary goes when its messages are forgotten")
        pages.append(page)
    if as_json:
        whole = {"id": ident, "summaries": pages[0].get("summaries", [])}
        whole["messages"] = [message for page in pages for message in page.get("messages", [])]
        print_json({**whole, "text": "".join(page.get("text", "") for page in pages)})
    else:
        show_in_pager(text for page in pages for text in _page_texts(page))


def _page_texts(page: dict[str, Any]) -> Iterator[str]:
    for part in page.get("messages") or [page]:
        rest = f"\n… {counted(part['chars'], 'character')} in all" if "rest" in part else ""
        yield f"{styled(part['id'], bold=True)}\n{plain(part['text'])}{rest}\n\n"


# -- building ----------------------------------------------------------------------------------------------------------


def build_graphs(store: Store, conversations: Sequence[Conversation]) -> list[dict[str, Any]]:
    """Summarize all messages of conversations that no summary covers; return what was done for each.

    The context that they are sent with stays as it is. A build that was interrupted goes on when it is run again.
    """
    settings = load_settings().settings
    done: list[dict[str, Any]] = []
    for one in track(conversations, "summarizing"):
        at = _newest_place(store, one)
        if at is not None:
            engine = LosslessEngine(DEFAULT_CONTEXT_LENGTH, settings=settings.compression, model=one.model)
            store.build_graph(at, engine)
            status = read_status(store, at)
            done.append({"session": one.id, "messages": status.messages, "covered": status.covered})
    return done
