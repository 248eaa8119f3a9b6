"""``everlong sessions delete|forget``: taking things out, after asking."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.sessions_common import (
    bar,
    command,
    confirm,
    counted,
    found,
    found_part,
    json_option,
    opened,
    opened_for_all,
    put_json,
    say,
    size,
    store_settings,
    yes_option,
)

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.store.search import Hit
    from everlong.store.verify import Verified

__all__ = ["forget_traces", "old_copies", "store_journal"]

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
    from everlong.store.shown_path import message_counts  # noqa: PLC0415 - as above
    from everlong.store.transcripts.parts import name_of  # noqa: PLC0415 - as above

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
    from everlong.cli.sessions_change import forget_traces, old_copies, store_journal  # noqa: PLC0415 - keeps `everlong --help` quick
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
    from everlong.cli.sessions_read import hit_lines  # noqa: PLC0415 - only where something is listed

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


_ENTRY = re.compile(r"(?m)^(?:# .*\n)?(?:\+.*\n?)+")
"""One entry of the chat's history: a line with its time, then its lines, each after a plus."""


def store_journal(store: Store) -> None:
    """Store what gateways that run no more left in their journals, so that it can be found and forgotten."""
    from everlong.gateway.upkeep import store_left_behind  # noqa: PLC0415 - keeps `everlong --help` quick

    store_left_behind(lambda tenant: _of_tenant(store, tenant))


def forget_traces(store: Store, text: str | None = None) -> None:
    """Take what the store has forgotten out of the journals and of the chat's history; there also what holds a text."""
    from everlong.config.paths import data_home  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.gateway.upkeep import clean_journal  # noqa: PLC0415 - as above

    clean_journal(lambda tenant: _of_tenant(store, tenant))
    _clean_history(store, data_home() / "chat_history", text)


def old_copies(store: Store) -> list[Path]:
    """Return the copies of a store's file that were made before it was brought up to date."""
    from everlong.store.sqlite import SQLite  # noqa: PLC0415 - keeps `everlong --help` quick

    backend = store.database.backend
    if not isinstance(backend, SQLite):
        return []
    return sorted(backend.path.parent.glob(f"{backend.path.name}.before-*.bak"))


def _of_tenant(store: Store, tenant: str) -> Store:
    from everlong.store import Store as Opened  # noqa: PLC0415 - keeps `everlong --help` quick

    return Opened(store.database, tenant)


def _clean_history(store: Store, path: Path, text: str | None) -> None:
    from everlong.config.files import write_whole  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.tombstones import forgotten_among  # noqa: PLC0415 - as above

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

        kept = _ENTRY.sub(left, told)
    if kept != told:
        write_whole(path, kept)


@command("verify", "all")
@json_option
def verify(as_json: bool) -> None:
    """Derive every hash anew and follow every reference, for all tenants; leaves with 1 if anything is wrong."""
    with opened_for_all() as stores, bar("verifying") as step:
        checked = _together({store.tenant: store.verify(step) for store in stores})
    if as_json:
        put_json(checked._asdict())
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


def _together(found: dict[str, Verified]) -> Verified:
    """Return what was found for each tenant as one; what was found for one of several is told with its name."""

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


@command("stats", "all")
@json_option
def stats(as_json: bool) -> None:
    """Show how much the store holds of all tenants, how large it is, and how far the index is."""
    from everlong.store.maintenance import stats as figures  # noqa: PLC0415 - keeps `everlong --help` quick

    with opened_for_all() as stores:
        counts = {store.tenant: figures(store) for store in stores}
        found: dict[str, Any] = {"store": stores[0].database.backend.where, **counts["local"]}
        for name in found.keys() - {"store", "pending", "bytes"}:  # those two are of the whole store
            found[name] = sum(one[name] for one in counts.values())
        found["tenants"] = {name: one["sessions"] for name, one in counts.items()}
        sessions = [one for store in stores for one in store.sessions.newest()]
        begun = {one.conversation: one for one in reversed(sessions)}
        sources: dict[str, int] = {}
        for one in begun.values():
            sources[one.source] = sources.get(one.source, 0) + 1
        found["conversations"] = len(begun)
        found["open_sessions"] = sum(one.ended is None for one in sessions)
        found["sources"] = dict(sorted(sources.items(), key=lambda entry: -entry[1]))
        found["first"] = min((one.started for one in sessions), default=None)
        found["last"] = max((one.ended or one.started for one in sessions), default=None)
    if as_json:
        put_json(found)
        return
    _print(found)


def _print(found: dict[str, Any]) -> None:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.parts import moment  # noqa: PLC0415 - as above

    sources = ", ".join(f"{number:,} {one_line(name)}" for name, number in found["sources"].items())
    pending, is_open = found["pending"], found["open_sessions"]
    rows = [
        ("store", found["store"]),
        ("size", size(found["bytes"])),
        ("sessions", f"{found['conversations']:,}" + (f" ({sources}); {is_open:,} open" if sources else "")),
        ("messages", f"{found['messages']:,} in {found['branches']:,} branches"),
        ("outputs", f"{found['outputs']:,} kept whole beside tool results"),
        ("compactions", f"{found['compactions']:,}; {found['views']:,} views; {found['sessions']:,} parts of sessions"),
        ("index", "all messages are indexed" if not pending else f"{counted(pending, 'text')} not indexed yet"),
    ]
    if len(found["tenants"]) > 1:
        shares = ", ".join(f"{one_line(name)} ({number:,})" for name, number in found["tenants"].items())
        rows.append(("tenants", f"{shares}, by parts of sessions"))
    if found["first"] is not None:
        rows.append(("from … to", f"{moment(found['first'])[:16]} … {moment(found['last'])[:16]}"))
    for name, value in rows:
        click.echo(f"{name + ':':<13}{value}")


@command("backup", "all")
@click.argument("file", type=click.Path(dir_okay=False))
@json_option
def backup(file: str, as_json: bool) -> None:
    """Copy the store into a new FILE while others go on writing; as a whole or not at all."""
    from everlong.store.maintenance import backup as copy  # noqa: PLC0415 - keeps `everlong --help` quick

    path = Path(file)
    with opened() as store:
        copy(store, path)
    written = path.stat().st_size
    if as_json:
        put_json({"file": str(path), "bytes": written})
    say(f"wrote {path}, {size(written)}; `everlong sessions --store {path} verify` checks it")


@command("vacuum", "all")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also remove what was begun within the last day and is in no session; only while nothing else writes.",
)
@json_option
def vacuum(everything: bool, as_json: bool) -> None:
    """Apply the retention settings, remove what no session needs, and give the room back to the disk."""
    from everlong.store.maintenance import (  # noqa: PLC0415 - keeps `everlong --help` quick
        DAY,
        size_of,
        vacuum as clean,
    )
    from everlong.store.opening import apply_retention  # noqa: PLC0415 - as above

    with opened_for_all() as stores:
        before = size_of(stores[0])
        expired = [ident for store in stores for ident in apply_retention(store, store_settings())]
        each = [clean(store, 0.0 if everything else DAY) for store in stores]
        gone = each[0]._replace(**{name: sum(getattr(one, name) for one in each) for name in each[0]._fields})
        after = size_of(stores[0])
    if as_json:
        put_json({"expired": expired, **gone._asdict(), "bytes_before": before, "bytes_after": after})
    if expired:
        say(f"deleted {counted(len(expired), 'session')} that the retention settings say are too old or too much")
    say(f"removed {counted(gone.messages, 'message')} that no session needs; {size(before)} → {size(after)}")
