"""``everlong sessions delete|forget``: taking things out, after asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everlong.cli.sessions_common import (
    command,
    confirm,
    counted,
    found,
    found_part,
    json_option,
    opened,
    put_json,
    say,
    yes_option,
)

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.store.search import Hit

LISTED = 10


@command("delete")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("--parts", is_flag=True, help="Only the parts that are named, not their whole conversations.")
@yes_option
@json_option
def delete(sessions: tuple[str, ...], parts: bool, yes: bool, as_json: bool) -> None:
    """Delete conversations; their messages go with them unless another conversation needs them.

    What was recorded within the last day is only removed by a later `everlong sessions vacuum`. To have words gone at
    once and for good, use `everlong sessions forget`.
    """
    from everlong.store.maintenance import collect_garbage  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.stretch import message_counts  # noqa: PLC0415 - as above
    from everlong.store.transcripts.facts import name_of  # noqa: PLC0415 - as above

    noun = "part" if parts else "conversation"
    with opened() as store:
        if parts:
            named = {one.id: one for one in (found_part(store, name) for name in sessions)}
            counts = message_counts(store, list(named.values()))
            listed = [(one.id, counts[one.id], name_of(one)) for one in named.values()]
            idents = list(named)
        else:
            chosen = {one.id: one for one in (found(store, name) for name in sessions)}
            listed = [(one.id, one.messages, name_of(one)) for one in chosen.values()]
            idents = [part for one in chosen.values() for part in one.parts]
        for ident, count, name in listed[:LISTED]:
            say(f"{ident}  {counted(count, 'message')}  {name}")
        confirm(f"Delete {counted(len(listed), noun)}?", yes)
        for ident in idents:
            store.sessions.delete(ident)
        removed = collect_garbage(store).messages
    if as_json:
        put_json({"sessions": [ident for ident, _, _ in listed], "messages": removed})
    say(f"deleted {counted(len(listed), noun)} and {counted(removed, 'message')}")
    if removed < sum(count for _, count, _ in listed):
        say(
            "messages that other conversations need stay; what came within the last day goes with a later "
            "`everlong sessions vacuum`, or now with --all"
        )


@command("forget", "each")
@click.argument("text", required=False)
@click.option(
    "--turn",
    "turns",
    multiple=True,
    metavar="SESSION:TURN",
    help="This message, by the numbers that search and show give.",
)
@click.option(
    "--node", "nodes", multiple=True, metavar="ID", help="This message, by its id in the JSON of show and search."
)
@click.option(
    "--session", help="All messages of this conversation that no other shows; the same words said elsewhere stay."
)
@yes_option
@json_option
def forget(
    text: str | None, turns: tuple[str, ...], nodes: tuple[str, ...], session: str | None, yes: bool, as_json: bool
) -> None:
    """Forget messages for good: every one that holds TEXT, in whatever case, or the ones that are named.

    Their words go out of the store, the search, titles, logs, the gateway's journal, what was typed in the chat, and
    every summary that was made with them in sight, and are not stored again. This cannot be undone. Files that were
    exported, backups and notes keep what they have.
    """
    _check_one_is_named(text, turns or nodes, session)
    from everlong.cli.traces import forget_traces, old_copies, store_journal  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.forget import Forgotten  # noqa: PLC0415 - as above

    with opened() as store:
        store_journal(store)
        if session is not None:
            one = found(store, session)
            confirm(f"Forget all messages of {one.id} for good?", yes)
            gone = store.conversations.forget(one.id)
        else:
            chosen = _holding(store, text) if text else [_node_at(store, turn) for turn in turns]
            chosen += [_node_id(node) for node in nodes]
            titled = [one.id for one in store.conversations.newest(title=text)] if text else []
            if not chosen and not titled:
                forget_traces(store, text)
                say("nothing was found, so nothing was forgotten")
                if as_json:
                    put_json({"messages": 0, "summaries": 0, "spared": 0})
                return
            if titled:
                say(f"and the titles of {counted(len(titled), 'conversation')}")
            confirm(f"Forget {counted(len(chosen), 'message')} for good?", yes)
            gone = store.forget(chosen) if chosen else Forgotten(0, 0)
            if text:
                store.forget_titles(text)
        forget_traces(store, text)
        copies = old_copies(store)
    if as_json:
        put_json({"messages": gone.messages, "summaries": gone.views, "spared": gone.spared})
    voided = f", and with them {counted(gone.views, 'compaction')} that had seen them" if gone.views else ""
    say(f"forgot {counted(gone.messages, 'message')}{voided}")
    if gone.spared:
        kept = counted(gone.spared, "message")
        say(f"kept {kept} that other conversations show too; to forget them, name them or a TEXT")
    say("`everlong sessions vacuum` takes their last traces out of the file")
    for copy in copies:
        say(f"{copy} is a copy from before an update and still has them; delete it if you do not need it")


def _check_one_is_named(text: str | None, messages: tuple[str, ...], session: str | None) -> None:
    """Raise a usage error unless exactly one kind of thing to forget is named."""
    if sum(bool(given) for given in (text, messages, session)) != 1:
        raise click.UsageError("name what to forget: a TEXT, or messages with --turn and --node, or one --session")
    if not text and click.get_current_context().meta.get("everlong.all_tenants"):
        raise click.UsageError("--all-tenants goes with a TEXT; what is named is one tenant's")


def _holding(store: Store, text: str) -> list[bytes]:
    """The ids of all messages that hold a text; the first ones are listed."""
    from everlong.cli.sessions_search import hit_lines  # noqa: PLC0415 - only where something is listed

    hits: list[Hit] = []
    cursor = None
    while True:
        page = store.search(text, mode="substring", order="time", limit=1_000, cursor=cursor, seconds=60.0)
        hits += [hit for hit in page.hits if hit.node is not None]
        cursor = page.cursor
        if cursor is None:
            break
    for number, hit in enumerate(hits[:LISTED], start=1):
        click.echo("\n".join(hit_lines(number, hit)), err=True)
    if len(hits) > LISTED:
        say(f"… and {len(hits) - LISTED:,} more")
    nodes = dict.fromkeys(hit.node for hit in hits if hit.node is not None)
    outputs = [node for node in store.outputs.holding(text) if node not in nodes]
    if outputs:
        say(f"and {counted(len(outputs), 'tool result')} of which only the whole output holds it")
    return [*nodes, *outputs]


def _node_at(store: Store, place: str) -> bytes:
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick

    name, colon, number = place.rpartition(":")
    if not colon or not number.isdecimal():
        raise click.UsageError(f"--turn {place}: write SESSION:TURN, such as 20260131_142501_a1b2c3:57")
    one = found(store, name)
    node = store.conversations.node_at(one.id, int(number))
    if node is None:
        raise NotStored(f"session {one.id} has no message that ends at turn {number}; `everlong sessions show` tells")
    return node


def _node_id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.UsageError(f"--node {text}: an id is 32 hexadecimal digits, as in `show --json`") from None
