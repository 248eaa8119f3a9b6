"""``everlong sessions verify|stats|backup|vacuum``: the state of the store, and its upkeep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.sessions_common import (
    command,
    counted,
    json_option,
    opened,
    opened_for_all,
    put_json,
    say,
    size,
    store_settings,
)
from everlong.cli.sessions_index import bar

if TYPE_CHECKING:
    from everlong.store.verify import Verified


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
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

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
    from everlong.store.maintenance import DAY, size_of  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.maintenance import vacuum as clean  # noqa: PLC0415 - as above
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
