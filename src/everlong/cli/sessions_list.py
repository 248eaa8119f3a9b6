"""``everlong sessions list|tail|compactions|rename``: what there is and what came last."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.sessions_common import command, found, json_option, opened, put_json, put_line, say, when

if TYPE_CHECKING:
    from everlong.store import Session, Store
    from everlong.store.stretch import Newest

POLL_SECONDS = 0.5


@command("list")
@click.option("--source", help="Only sessions from this source, such as cli or claude-code.")
@click.option(
    "--since", callback=when, metavar="WHEN", help="Begun at or after this: 2026-01-31, or 7d for seven days ago."
)
@click.option("--before", callback=when, metavar="WHEN", help="Begun before this.")
@click.option("--title", help="Only sessions with this in their title.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@json_option
def list_(
    source: str | None, since: float | None, before: float | None, title: str | None, limit: int, as_json: bool
) -> None:
    """List sessions, the newest first."""
    from everlong.store.stretch import message_counts  # noqa: PLC0415 - keeps `everlong --help` quick

    with opened() as store:
        asked = None if title is not None else limit + 1
        sessions = store.sessions.newest(limit=asked, source=source, since=since, before=before)
        if title is not None:
            sessions = [one for one in sessions if title.lower() in (one.title or "").lower()]
        is_more = len(sessions) > limit
        sessions = sessions[:limit]
        counts = message_counts(store, sessions)
        if as_json:
            put_json([one.to_dict() | {"messages": counts[one.id]} for one in sessions])
            return
        rows = [_row(store, one, counts[one.id]) for one in sessions]
    if not rows:
        is_filtered = any(value is not None for value in (source, since, before, title))
        say("no session is like that" if is_filtered else "no sessions yet; `everlong sessions import FILE` adds some")
        return
    _table(["session", "started", "messages", "source", "title or first words"], rows, right={2})
    if is_more:
        say(f"there are more; --limit {limit * 5} shows more of them")


def _row(store: Store, one: Session, count: int) -> list[str]:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    name = one_line(one.title or "") or _first_words(store, one)
    if one.parent:
        name = f"{name}  ↳ {one.parent}"
    return [one.id, moment(one.started)[:16], f"{count:,}", one_line(one.source), name]


def _first_words(store: Store, one: Session) -> str:
    from everlong.model import text_of  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.stretch import entries_of  # noqa: PLC0415 - as above
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above

    for entry in entries_of(store, one, high=12):
        words = one_line(text_of(entry.message)[:400])
        if entry.message.get("role") == "user" and words and not words.startswith("<"):
            return f"“{words[:80]}{'…' if len(words) > 80 else ''}”"
    return ""


def _table(heads: list[str], rows: list[list[str]], right: set[int]) -> None:
    from rich.text import Text  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.cli.picture import console, fit  # noqa: PLC0415 - as above

    out = console()
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    for place, row in enumerate([heads, *rows]):
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
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
    where = f"{one.session}:{one.turn}" if one.session else "(no session)"
    head = f"{moment(one.at)}  {where}  {click.style(one_line(one.role), bold=True)}"
    click.echo(f"{head}  {words[:300]}{'…' if len(words) > 300 else ''}")


@command("compactions")
@click.argument("session", required=False)
@json_option
def compactions(session: str | None, as_json: bool) -> None:
    """Show the compaction history of SESSION and its lineage, or of all sessions: when, why, how much, how good."""
    with opened() as store:
        history = store.compactions()
        if session is not None:
            line = {one.id for one in store.sessions.lineage(found(store, session).id)}
            history = [one for one in history if one.session in line or one.child in line]
    if as_json:
        put_json([asdict(one) for one in history])
        return
    if not history:
        say("no compaction yet")
        return
    heads = ["when", "session", "why", "engine", "tokens", "messages", "seconds", "cost", "quality", "remark"]
    _table(heads, [_compaction_row(one) for one in history], right={6, 7, 8})


def _compaction_row(one: Any) -> list[str]:
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    def figure(value: float | None, form: str) -> str:
        return "?" if value is None else format(value, form)

    writers = dict.fromkeys(one_line(name) for name in (one.engine, one.summarizer, one.model) if name)
    return [
        moment(one.at)[:16],
        one.session or "",
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
    """Give SESSION another TITLE; no two sessions have the same."""
    with opened() as store:
        renamed = store.sessions.rename(found(store, session).id, title)
    if as_json:
        put_json(renamed.to_dict())
    say(f"{renamed.id} is now called {renamed.title!r}")
