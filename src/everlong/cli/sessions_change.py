"""``everlong sessions rename``, ``delete``, ``forget``, ``verify``, ``backup`` and ``maintain``.

These commands change or maintain the store. Those that delete ask first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong.cli.chosen_store import (
    command,
    embed_pending,
    find_conversation,
    index_pending,
    is_for_all_tenants,
    open_chosen_store,
    open_for_all_tenants,
    print_json,
    store_settings,
)
from everlong.cli.output import confirm, counted, fold, format_bytes, json_option, progress_bar, say, yes_option
from everlong.cli.sessions import hit_lines
from everlong.config.files import write_whole
from everlong.config.paths import data_home
from everlong.errors import NotStored
from everlong.store import Store
from everlong.store.store import apply_retention
from everlong.store.tombstones import forgotten_among
from everlong.store.transcripts.parts import name_of
from everlong.store.upkeep import garbage, maintenance
from everlong.store.upkeep.forget import Forgotten, find_prompts, forget_prompts, forget_titles

if TYPE_CHECKING:
    from everlong.store.search import Hit
    from everlong.store.upkeep.verify import Verified

_MOST_LISTED = 10
_HISTORY_ENTRY = re.compile(r"(?m)^(?:# .*\n)?(?:\+.*\n?)+")
"""One entry of the chat's history: a line with its time, then its lines, each after a plus."""

# -- rename and delete -------------------------------------------------------------------------------------------------


@command("rename")
@click.argument("session")
@click.argument("title")
def rename(session: str, title: str) -> None:
    """Give a conversation another TITLE."""
    with open_chosen_store() as store:
        renamed = store.conversations.rename(find_conversation(store, session).id, title)
    say(f"{renamed.id} is now called {renamed.title!r}")


@command("delete")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@yes_option
@json_option
def delete(sessions: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete conversations; their messages go with them unless another conversation needs them.

    Messages of the last day are only removed by a later `everlong sessions maintain`. To remove words at once and for
    good, use `everlong sessions forget`.
    """
    with open_chosen_store() as store:
        chosen = list({one.id: one for one in (find_conversation(store, name) for name in sessions)}.values())
        for one in chosen[:_MOST_LISTED]:
            say(f"{one.id}  {counted(one.messages, 'message')}  {name_of(one)}")
        confirm(f"Delete {counted(len(chosen), 'conversation')}?", yes)
        for part in [part for one in chosen for part in one.parts]:
            store.sessions.delete(part)
        removed = garbage.collect_garbage(store).messages
    if as_json:
        print_json({"sessions": [one.id for one in chosen], "messages": removed})
    say(f"deleted {counted(len(chosen), 'conversation')} and {counted(removed, 'message')}")
    if removed < sum(one.messages for one in chosen):
        say(
            "messages that other conversations need stay; messages of the last day are removed by a later "
            "`everlong sessions maintain`, or now by `everlong sessions maintain --all`"
        )


# -- forget ------------------------------------------------------------------------------------------------------------


@command("forget", "each")
@click.argument("text", required=False)
@click.option(
    "--message",
    "places",
    multiple=True,
    metavar="SESSION:NUMBER",
    help="Forget this message, by the number that search and show print.",
)
@click.option("--session", help="Forget all messages of this conversation that no other conversation shows.")
@yes_option
@json_option
def forget(text: str | None, places: tuple[str, ...], session: str | None, yes: bool, as_json: bool) -> None:
    """Forget messages for good: all that contain TEXT, in upper or lower case, or the ones you name.

    They are removed from the store, the search, titles, system prompts, logs, the gateway's journal and the chat's
    history, with every summary that was made from them, and are not stored again. This cannot be undone. Exported
    files, backups and notes are not touched.
    """
    _check_target(text, places, session)

    with open_chosen_store() as store:
        _store_journals(store)
        if session is not None:
            one = find_conversation(store, session)
            confirm(f"Forget all messages of {one.id} for good?", yes)
            gone = store.conversations.forget(one.id)
        else:
            chosen = _find_nodes(store, text) if text else [_node_at(store, place) for place in places]
            titled = [one.id for one in store.conversations.newest(title=text)] if text else []
            prompts = find_prompts(store, text) if text else []
            if not chosen and not titled and not prompts:
                _clean_traces(store, text)
                say("nothing was found, so nothing was forgotten")
                if as_json:
                    print_json({"messages": 0, "summaries": 0, "spared": 0})
                return
            if titled:
                say(f"and the titles of {counted(len(titled), 'conversation')}")
            if prompts:
                say(f"and {counted(len(prompts), 'system prompt')}")
            confirm(f"Forget {counted(len(chosen), 'message')} for good?", yes)
            gone = store.forget(chosen) if chosen else Forgotten(0, 0)
            if text:
                forget_titles(store, text)
                forget_prompts(store, prompts)
        _clean_traces(store, text)
    if as_json:
        print_json({"messages": gone.messages, "summaries": gone.views, "spared": gone.spared})
    voided = f", and with them {counted(gone.views, 'compaction')} that had seen them" if gone.views else ""
    say(f"forgot {counted(gone.messages, 'message')}{voided}")
    if gone.spared:
        kept = counted(gone.spared, "message")
        say(f"kept {kept} that other conversations show too; to forget them, name them with --message, or a TEXT")
    say("`everlong sessions maintain` removes their last traces from the file")


def _check_target(text: str | None, places: tuple[str, ...], session: str | None) -> None:
    """Raise a usage error unless exactly one kind of thing to forget is named."""
    if sum(bool(given) for given in (text, places, session)) != 1:
        raise click.UsageError("name what to forget: a TEXT, or messages with --message, or one --session")
    if not text and is_for_all_tenants():
        raise click.UsageError("--all-tenants needs a TEXT; --message and --session name messages of one tenant")


def _find_nodes(store: Store, text: str) -> list[bytes]:
    """List the first messages that contain a text, and return the ids of all."""
    hits: list[Hit] = []
    cursor = None
    while True:
        page = store.search(text, mode="substring", order="time", limit=1_000, cursor=cursor, seconds=60.0)
        hits += [hit for hit in page.hits if hit.node is not None]
        cursor = page.cursor
        if cursor is None:
            break
    for number, hit in enumerate(hits[:_MOST_LISTED], start=1):
        click.echo("\n".join(fold(line, indent=" " * 5) for line in hit_lines(number, hit)), err=True)
    if len(hits) > _MOST_LISTED:
        say(f"… and {len(hits) - _MOST_LISTED:,} more")
    nodes = dict.fromkeys(hit.node for hit in hits if hit.node is not None)
    outputs = [node for node in store.outputs.holding(text) if node not in nodes]
    if outputs:
        say(f"and {counted(len(outputs), 'tool result')} with TEXT only in the full output")
    return [*nodes, *outputs]


def _node_at(store: Store, place: str) -> bytes:
    name, colon, number = place.rpartition(":")
    if not colon or not number.isdecimal():
        raise click.UsageError(f"--message {place}: write SESSION:NUMBER, such as 20260131_142501_a1b2c3:57")
    one = find_conversation(store, name)
    node = store.conversations.node_at(one.id, int(number))
    if node is None:
        raise NotStored(f"session {one.id} has no message {number}; `everlong sessions show {one.id}` lists them")
    return node


def _store_journals(store: Store) -> None:
    """Store the journals of gateways that no longer run, so that their messages can be found and forgotten."""
    from everlong.gateway.upkeep import journal_folder, store_left_behind  # noqa: PLC0415 - only `forget` needs it

    where = store.database.backend.where
    store_left_behind(lambda tenant: Store(store.database, tenant), journal_folder(), where)


def _clean_traces(store: Store, text: str | None = None) -> None:
    """Remove forgotten messages from the journals and the chat's history, and history entries with this text."""
    from everlong.gateway.upkeep import clean_journal  # noqa: PLC0415 - only `forget` needs the gateway

    clean_journal(store.tenant)
    _clean_history(store, data_home() / "chat_history", text)


def _clean_history(store: Store, path: Path, text: str | None) -> None:
    try:
        told = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # nothing was typed yet
        return
    with store.database.read() as connection:

        def left(entry: re.Match[str]) -> str:
            lines = [line[1:] for line in entry[0].splitlines() if line.startswith("+")]
            typed = "\n".join(lines)
            blocks = store.chain.trace([store.cleaned({"role": "user", "content": typed})]).blocks
            is_gone = bool(forgotten_among(connection, store.tenant, blocks))
            return "" if is_gone or (text and text.casefold() in typed.casefold()) else entry[0]

        kept = _HISTORY_ENTRY.sub(left, told)
    if kept != told:
        write_whole(path, kept)


# -- verify, backup and maintain ---------------------------------------------------------------------------------------


@command("verify", "all")
@json_option
def verify(as_json: bool) -> None:
    """Recompute every hash and follow every reference, for all tenants; exit with 1 if anything is wrong."""
    with open_for_all_tenants() as stores, progress_bar("verifying") as step:
        found: dict[str, Verified] = {}
        for store in stores:
            found[store.tenant] = store.verify(step)
        checked = _merge_results(found)
    if as_json:
        print_json(checked._asdict())
    for remark in checked.remarks:
        say(f"note: {remark}")
    for problem in checked.problems:
        say(problem)
    looked = (
        f"{counted(checked.messages, 'message')}, {counted(checked.contents, 'content')}, "
        f"{checked.branches:,} branches, {counted(checked.views, 'view')}"
    )
    if checked.problems:
        say(f"{looked}: {counted(len(checked.problems), 'problem')}; restore a backup if you have one")
        raise click.exceptions.Exit(1)
    say(f"{looked}: all is well")


def _merge_results(found: dict[str, Verified]) -> Verified:
    """Merge the results of all tenants; a problem of only one of several tenants gets its name."""

    def told(lists: dict[str, list[str]]) -> list[str]:
        owners: dict[str, list[str]] = {}
        for name, texts in lists.items():
            for text in texts:
                owners.setdefault(text, []).append(name)
        return [text if len(found) == 1 or len(names) > 1 else f"{names[0]}: {text}" for text, names in owners.items()]

    problems = told({name: one.problems for name, one in found.items()})
    remarks = told({name: one.remarks for name, one in found.items()})
    return next(iter(found.values()))._replace(
        messages=sum(one.messages for one in found.values()),
        contents=sum(one.contents for one in found.values()),
        branches=sum(one.branches for one in found.values()),
        views=sum(one.views for one in found.values()),
        problems=problems,
        remarks=remarks,
    )


@command("backup", "all")
@click.argument("file", type=click.Path(dir_okay=False))
def backup(file: str) -> None:
    """Copy the store into a new FILE, even while it is being written to; completely or not at all."""
    path = Path(file)
    with open_chosen_store() as store:
        maintenance.backup(store, path)
    say(f"wrote {path}, {format_bytes(path.stat().st_size)}; `everlong sessions --store {path} verify` checks it")


@command("maintain", "all")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also remove unused messages of the last day; only while nothing else writes to the store.",
)
@json_option
def maintain(everything: bool, as_json: bool) -> None:
    """Index all messages, apply the retention settings, and free disk space, for all tenants.

    Messages get the vectors that search.embeddings asks for. Messages that no session needs are removed.
    """
    settings = store_settings()
    with open_chosen_store() as store:
        index_pending(store)
        unembedded = embed_pending(store)
    with open_for_all_tenants() as stores:
        before = maintenance.size_of(stores[0])
        expired = [ident for store in stores for ident in apply_retention(store, settings)]
        each = [maintenance.vacuum(store, 0.0 if everything else garbage.DAY) for store in stores]
        gone = each[0]._replace(**{name: sum(getattr(one, name) for one in each) for name in each[0]._fields})
        after = maintenance.size_of(stores[0])
    if as_json:
        sizes = {"bytes_before": before, "bytes_after": after}
        print_json({"unembedded": unembedded, "expired": expired, **gone._asdict(), **sizes})
    if expired:
        say(f"deleted {counted(len(expired), 'session')} that the retention settings no longer keep")
    change = f"{format_bytes(before)} → {format_bytes(after)}"
    say(f"indexed all messages, removed {counted(gone.messages, 'message')} that no session needs; {change}")
    if unembedded:
        without = f"{counted(unembedded, 'message')} without vectors"
        say(f"{without}: another process makes them, or `everlong doctor --call` says why not")
        raise click.exceptions.Exit(1)
