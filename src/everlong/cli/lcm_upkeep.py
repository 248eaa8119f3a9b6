"""``everlong lcm build`` and ``doctor``: making the graph of a stored conversation, and checking it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.chosen_store import command, open_chosen_store, print_json
from everlong.cli.lcm_read import choose_conversation, count_summaries, newest_place
from everlong.cli.output import Step, counted, json_option, progress_bar, say
from everlong.config import load_settings
from everlong.context.compressor import DEFAULT_CONTEXT_LENGTH
from everlong.context.summarizers import ExtractiveSummarizer
from everlong.errors import NotStored
from everlong.lossless import LosslessEngine
from everlong.store.graph_status import check_graphs, check_reach, read_status

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.lossless import SummaryNode
    from everlong.model import Message
    from everlong.providers.base import CallOptions, Provider, Reply
    from everlong.store import Branch, Conversation, Store

__all__ = ["build", "build_graphs", "doctor", "summarizer_option"]

_MOST_LISTED = 20
"""Problems that are named one by one."""

summarizer_option = click.option(
    "--summarizer",
    metavar="PROVIDER:MODEL",
    help="Let this model write the summaries; auto for the configured one.  [default: the built-in summarizer]",
)


# -- build -------------------------------------------------------------------------------------------------------------


@command("build")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--all", "everything", is_flag=True, help="All conversations.")
@click.option(
    "--context-length",
    type=click.IntRange(min=1),
    default=DEFAULT_CONTEXT_LENGTH,
    show_default=True,
    help="The window that the graph is for; it decides the size of the summaries.",
)
@summarizer_option
@json_option
def build(
    sessions: tuple[str, ...], everything: bool, context_length: int, summarizer: str | None, as_json: bool
) -> None:
    """Summarize all messages of conversations that no summary covers; the context they are sent with stays as it is.

    A build that was interrupted goes on when it is run again. With --summarizer, the model also writes those summaries
    again that the built-in summarizer has written.
    """
    if sessions and everything:
        raise click.UsageError("name the conversations or say --all, not both")
    with open_chosen_store() as store:
        if everything:
            chosen = store.conversations.newest(where=lambda one: one.messages > 0)
        else:
            chosen = [choose_conversation(store, name) for name in sessions or (None,)]
        done = build_graphs(store, chosen, summarizer, context_length)
    if as_json:
        print_json(done)
    for one in done:
        say(
            f"{one['session']}: {one['leaves']:,} new {'leaf' if one['leaves'] == 1 else 'leaves'}"
            f"{', ' + count_summaries(one['rewritten']) + ' written again' if one['rewritten'] else ''}; "
            f"{one['covered']:,} of {counted(one['messages'], 'message')} under summaries"
        )
        if one["failure"]:
            say(f"{one['session']}: {one['failure']}; the built-in summarizer took over; build again to ask the model")
    if any(one["failure"] for one in done):
        raise click.exceptions.Exit(1)


def build_graphs(
    store: Store,
    conversations: Sequence[Conversation],
    summarizer: str | None = None,
    context_length: int = DEFAULT_CONTEXT_LENGTH,
) -> list[dict[str, Any]]:
    """Build the graphs of conversations, with a bar on a terminal; return what was done for each."""
    settings = load_settings().settings
    done: list[dict[str, Any]] = []
    total = sum(one.messages for one in conversations)
    before = 0
    with progress_bar("summarizing") as step:
        for one in conversations:
            writer = None if summarizer is None else _open_counted(store, one, summarizer, settings)
            if writer is not None and not done:
                say(f"{writer.name} writes the summaries")
            engine = LosslessEngine(
                context_length, settings=settings.compression, lcm=settings.lcm, summarizer=writer, model=one.model
            )
            done.append({"session": one.id, **_build(store, newest_place(store, one), engine, (step, before, total))})
            before += one.messages
            step(before, total)
    return done


def _open_counted(store: Store, one: Conversation, summarizer: str, settings: Settings) -> Summarizer:
    """Return the summarizer of a model; what its calls cost is stored with the conversation."""
    from everlong.agent.model_calls import SideCalls  # noqa: PLC0415 - loads the agent
    from everlong.cli.compress import open_summarizer  # noqa: PLC0415 - loads the providers

    account = SideCalls(store, lambda: one.parts[-1], say)

    def ask(provider: Provider, messages: Sequence[Message], call: CallOptions) -> Reply:
        reply = provider.complete(messages, **call)
        account.paid("summary", provider, reply.usage)
        return reply

    return open_summarizer(summarizer, settings, ask)


def _build(store: Store, at: Branch, engine: LosslessEngine, progress: tuple[Step, int, int]) -> dict[str, Any]:
    leaves: list[int] = []
    step, before, total = progress

    def note(node: SummaryNode) -> None:
        leaves.append(node.made.messages)
        step(before + sum(leaves), total)

    store.build_graph(at, engine, note)
    rewritten = _rewrite(store, at, engine)
    status = read_status(store, at)
    return {
        "leaves": len(leaves),
        "rewritten": rewritten,
        "messages": status.messages,
        "covered": status.covered,
        "failure": engine.author.failure,
    }


def _rewrite(store: Store, at: Branch, engine: LosslessEngine) -> int:
    """Have the model write those summaries again that it has not written; return how many it did."""
    if not engine.author.has_model:
        return 0
    graph, plain = store.graph(at), ExtractiveSummarizer.name
    waiting = [(node.made.level, node.id) for node in graph.all() if plain == node.made.model or node.state != "good"]
    done = 0
    for _, ident in sorted(waiting):
        node = graph.newest([ident])[0]
        if node is not None and engine.author.has_model:
            done += engine.rewrite(node)
    return done


# -- doctor ------------------------------------------------------------------------------------------------------------


@command("doctor")
@click.argument("session", required=False)
@json_option
def doctor(session: str | None, as_json: bool) -> None:
    """Check the graphs of all conversations, or of SESSION: every message must be in reach.

    Each message must be sent as it is or stand under exactly one summary of the context, and its words must be there.
    Each problem has a line, and the exit code is then 1.
    """
    problems: list[str] = []
    remarks: list[str] = []
    checked = 0
    with open_chosen_store() as store:
        chosen = [choose_conversation(store, session)] if session is not None else store.conversations.newest()
        problems += check_graphs(store)
        with progress_bar("checking") as step:
            for done, one in enumerate(chosen, start=1):
                checked += _examine(store, one, problems, remarks, is_named=session is not None)
                step(done, len(chosen))
    if as_json:
        print_json({"graphs": checked, "problems": problems, "remarks": remarks})
    else:
        for problem in problems[:_MOST_LISTED]:
            click.echo(problem)
        if len(problems) > _MOST_LISTED:
            say(f"… and {len(problems) - _MOST_LISTED:,} more; --json lists all")
    for remark in remarks[:_MOST_LISTED]:
        say(remark)
    if problems:
        say(
            f"{counted(len(problems), 'problem')}; `everlong sessions verify` says whether all messages are there, "
            "and a backup of the store has the summaries of its time"
        )
        raise click.exceptions.Exit(1)
    say(f"{counted(checked, 'graph')} checked: every message is in reach")


def _examine(store: Store, one: Conversation, problems: list[str], remarks: list[str], *, is_named: bool) -> int:
    """Check one conversation; return 1 if it has a graph, else 0."""
    try:
        at = newest_place(store, one)
    except NotStored:
        if is_named:
            raise
        return 0
    counts = store.graph(at).count()
    if not counts:
        if is_named:
            raise NotStored(f"the conversation {one.id} has no graph; `everlong lcm build {one.id}` makes one")
        return 0
    problems += (f"{one.id}: {problem}" for problem in check_reach(store, at))
    if degraded := counts.get("degraded", 0):
        remarks.append(
            f"{one.id}: {count_summaries(degraded)} degraded, because no model answered; "
            f"`everlong lcm build {one.id} --summarizer auto` writes them again"
        )
    status = read_status(store, at)
    if counts.get("void", 0) and status.covered < status.messages - (status.newer if status.shown else 0):
        remarks.append(
            f"{one.id}: summaries of forgotten messages are gone; `everlong lcm build {one.id}` writes new ones"
        )
    return 1
