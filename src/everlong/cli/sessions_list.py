"""``everlong sessions list|tail|compactions|rename``: what there is and what came last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.screen import styled
from everlong.cli.sessions_common import command, counted, found, json_option, opened, put_json, put_line, say, when

if TYPE_CHECKING:
    from everlong.store import Conversation, Session, Store
    from everlong.store.stretch import Newest

POLL_SECONDS = 0.5
_TITLE = 30
"""Cells that the title shall have at least; columns that people miss least make room for it."""
_FOLDER = 28


@command("list", "each")
@click.option("--source", help="Only from this source, such as cli or claude-code.")
@click.option("--folder", type=click.Path(), help="Only those that work in this folder; . for the current one.")
@click.option(
    "--since", callback=when, metavar="WHEN", help="Active at or after this: 2026-01-31, or 7d for seven days ago."
)
@click.option("--before", callback=when, metavar="WHEN", help="Begun before this.")
@click.option("--title", help="Only those with this in their title.")
@click.option("--side", is_flag=True, help="What clients ask on the side, and sub-agents, with what they work for.")
@click.option("--parts", is_flag=True, help="The parts of conversations: a compaction begins a new one.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@json_option
def list_(limit: int, as_json: bool, side: bool, parts: bool, **given: Any) -> None:
    """List conversations, the one that was last active first."""
    if side and parts:
        raise click.UsageError("say --side or --parts, not both")
    if given["folder"] is not None:
        given["folder"] = str(Path(given["folder"]).expanduser().resolve())
    with opened() as store:
        if parts:
            rows, is_more = _parts(store, limit, given, as_json=as_json)
        else:
            rows, is_more = _conversations(store, limit, given, side=side, as_json=as_json)
    if as_json:
        return
    if not rows:
        is_filtered = side or any(value is not None for value in given.values())
        nothing = "no conversations yet; `everlong sessions import FILE` adds some"
        say("no conversation is like that" if is_filtered else nothing)
        return
    heads = ["session", "started", "messages", "source", "title or first words"]
    if parts:
        _table(heads, rows, right={2})
    else:
        heads = ["session", "active", "messages", "compactions", "model", "cost", "from", "title or first words"]
        _table(heads, rows, right={2, 3, 5}, spare=(4, 5, 3, 6))
    if is_more:
        say(f"there are more; --limit {limit * 5} shows more of them")


def _conversations(
    store: Store, limit: int, given: dict[str, Any], *, side: bool, as_json: bool
) -> tuple[list[list[str]], bool]:
    found = store.conversations.newest(limit + 1, kinds=("side", "agent") if side else ("main",), **given)
    shown = found[:limit]
    if as_json:
        put_json([one.to_dict() for one in shown])
        return [], False
    return [_row(store, one) for one in shown], len(found) > limit


def _row(store: Store, one: Conversation) -> list[str]:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    name = one_line(one.title or "") or _first_words(store, one)
    if one.kind != "main":
        whom = f" for {one.works_for}" if one.works_for else ""
        name = f"{name}  ↳ {'agent' if one.kind == 'agent' else 'on the side'}{whom}"
    if one.agents:
        name = f"{name}  +{counted(one.agents, 'agent')}"
    where = [one_line(one.client or one.source)]
    if one.folder:
        where.append(_short(one_line(one.folder)))
    cost = f"${one.cost:,.2f}" if one.cost >= 1 else f"${one.cost:,.4f}" if one.cost else ""
    return [
        *(one.id, moment(one.active)[:16], f"{one.messages:,}", f"{one.compactions:,}" if one.compactions else ""),
        *(one_line(one.model or ""), cost, " ".join(where), name),
    ]


def _short(folder: str) -> str:
    home = str(Path.home())
    if folder == home or folder.startswith(f"{home}/"):
        folder = f"~{folder[len(home) :]}"
    return folder if len(folder) <= _FOLDER else f"…{folder[1 - _FOLDER :]}"


def _parts(store: Store, limit: int, given: dict[str, Any], *, as_json: bool) -> tuple[list[list[str]], bool]:
    from everlong.store.stretch import message_counts  # noqa: PLC0415 - keeps `everlong --help` quick

    title, folder = given["title"], given["folder"]
    is_filtered = title is not None or folder is not None
    times = {name: given[name] for name in ("source", "since", "before")}
    sessions = store.sessions.newest(limit=None if is_filtered else limit + 1, **times)
    if title is not None:
        sessions = [one for one in sessions if title.lower() in (one.title or "").lower()]
    if folder is not None:
        sessions = [one for one in sessions if one.folder == folder]
    shown = sessions[:limit]
    counts = message_counts(store, shown)
    if as_json:
        put_json([one.to_dict() | {"messages": counts[one.id]} for one in shown])
        return [], False
    return [_part_row(store, one, counts[one.id]) for one in shown], len(sessions) > limit


def _part_row(store: Store, one: Session, count: int) -> list[str]:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    name = one_line(one.title or "") or _first_words(store, one)
    if one.parent:
        name = f"{name}  ↳ {one.parent}"
    return [one.id, moment(one.started)[:16], f"{count:,}", one_line(one.source), name]


def _first_words(store: Store, one: Conversation | Session) -> str:
    from itertools import islice  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.model import typed_words  # noqa: PLC0415 - as above
    from everlong.store.conversations import Line  # noqa: PLC0415 - as above
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above
    from everlong.store.transcripts.write import lines_of  # noqa: PLC0415 - as above

    for line in islice(lines_of(store, one), 12):
        words = one_line(typed_words(line.entry.message)[:400]) if isinstance(line, Line) else ""
        if words:
            return f"“{words[:80]}{'…' if len(words) > 80 else ''}”"
    return ""


def _table(heads: list[str], rows: list[list[str]], right: set[int], spare: Sequence[int] = ()) -> None:
    """Print a table; where it is too wide for its last column, the columns of ``spare`` are left out, one by one."""
    from rich.cells import cell_len  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.text import Text  # noqa: PLC0415 - as above

    from everlong.cli.picture import console, fit  # noqa: PLC0415 - as above

    out = console()
    widths = [max(cell_len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    kept = [at for at in range(len(heads)) if at not in spare or any(row[at] for row in rows)]
    for at in spare:
        if not out.is_terminal or sum(widths[one] + 2 for one in kept[:-1]) + min(_TITLE, widths[-1]) <= out.width:
            break
        kept = [one for one in kept if one != at]
    if not out.is_terminal:  # whoever reads it from a file has room
        out.width = max(out.width, sum(widths[one] + 2 for one in kept))
    for place, row in enumerate([heads, *rows]):
        cells = [row[at].rjust(widths[at]) if at in right else row[at].ljust(widths[at]) for at in kept]
        out.print(Text(fit("  ".join(cells).rstrip(), out.width), style="bold" if place == 0 else ""))


@command("tail")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="How many messages.")
@click.option("-f", "--follow", is_flag=True, help="Go on and show messages as they come, until Ctrl-C.")
@json_option
def tail(limit: int, follow: bool, as_json: bool) -> None:
    """Show the messages that were recorded last; with --json, one object on each line."""
    from everlong.store.stretch import newest_messages  # noqa: PLC0415 - keeps `everlong --help` quick

    with opened() as store:
        newest = newest_messages(store, max(limit, 1))
        last = newest[-1].seq if newest else 0
        for one in newest[len(newest) - min(limit, len(newest)) :]:
            _put(one, as_json)
        if not newest and not follow:
            say("no messages yet; `everlong sessions import FILE` adds some")
        while follow:
            time.sleep(POLL_SECONDS)
            for one in newest_messages(store, 500, after=last):
                _put(one, as_json)
                last = one.seq


def _put(one: Newest, as_json: bool) -> None:
    from everlong.cli.picture import headline  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    if as_json:
        put_line({**one._asdict(), "node": one.node.hex()})
        return
    words = one_line(headline(one.message)[:2_000])
    where = f"{one.session}:{one.turn}" if one.session else "(in no conversation)"
    head = f"{moment(one.at)}  {where}  {styled(one_line(one.role), bold=True)}"
    click.echo(f"{head}  {words[:300]}{'…' if len(words) > 300 else ''}")


@command("compactions", "each")
@click.argument("session", required=False)
@json_option
def compactions(session: str | None, as_json: bool) -> None:
    """Show the compaction history of a conversation, or of all: when, why, how much, how good."""
    with opened() as store:
        named = None if session is None else found(store, session).id
        history = store.compactions() if named is None else store.conversations.compactions(named)
        whole = {one.id: one.conversation for one in store.sessions.newest()} if named is None else {}
    if as_json:
        put_json([asdict(one) for one in history])
        return
    if not history:
        say("no compaction yet")
        return
    heads = ["when", "session", "why", "engine", "tokens", "messages", "seconds", "cost", "quality", "remark"]
    rows = [_compaction_row(one, named or whole.get(one.session or "", "")) for one in history]
    _table(heads, rows, right={6, 7, 8})


def _compaction_row(one: Any, conversation: str) -> list[str]:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    def figure(value: float | None, form: str) -> str:
        return "?" if value is None else format(value, form)

    writers = dict.fromkeys(one_line(name) for name in (one.engine, one.summarizer, one.model) if name)
    return [
        moment(one.at)[:16],
        conversation,
        one_line(one.reason),
        ", ".join(writers),
        f"{figure(one.tokens_before, ',')} → {figure(one.tokens_after, ',')}",
        f"{one.messages_before:,} → {one.messages_after:,}",
        f"{one.seconds:.1f}",
        figure(one.cost, ".4f"),
        figure(one.quality, ".2f"),
        f"fell back: {one_line(one.fallback)}" if one.fallback else "",
    ]


@command("rename")
@click.argument("session")
@click.argument("title")
@json_option
def rename(session: str, title: str, as_json: bool) -> None:
    """Give a conversation another TITLE."""
    with opened() as store:
        renamed = store.conversations.rename(found(store, session).id, title)
    if as_json:
        put_json(renamed.to_dict())
    say(f"{renamed.id} is now called {renamed.title!r}")
