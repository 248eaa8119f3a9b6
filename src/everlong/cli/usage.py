"""``everlong usage``: what was paid for, what the cache saved, and what compactions saved or cost on top.

The figures and their meaning are `everlong.agent.accounting`'s; amounts are rounded here and nowhere else.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from everlong.cli.chosen_store import (
    find_conversation,
    for_each_tenant,
    open_chosen_store,
    parse_time,
    print_json,
    store_option,
    tenant_options,
)
from everlong.cli.files import write_output
from everlong.cli.output import counted, json_option, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from everlong.agent.accounting import Account, Books, By
    from everlong.config import Settings
    from everlong.gateway.audit import Audit, Audited
    from everlong.store import Store

__all__ = ["money", "print_books", "show_audit", "usage_command"]

_HEADS = ("calls", "plain", "read", "written", "out", "paid", "uncached")
_SIDE = {
    "summary": ("call for a summary", "calls for summaries"),
    "memory": ("memory flush", "memory flushes"),
    "ping": ("ping", "pings"),
    "plugin": ("call of a plugin", "calls of plugins"),
}


@click.command("usage")
@click.option("--since", callback=parse_time, metavar="WHEN", help="Only calls since this: 2026-01-31, today, 7d …")
@click.option(
    "--by", type=click.Choice(["model", "session", "day"]), default="model", show_default=True, help="What to group by."
)
@click.option("--session", metavar="ID|TITLE", help="Only this conversation.")
@click.option("--audit", is_flag=True, help="What the gateway would have done to requests of its audit mode.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw the running totals: an .svg or .png file.")
@json_option
@store_option(hidden=False)
@tenant_options(hidden=False)
@for_each_tenant
def usage_command(
    since: float | None, by: By, session: str | None, audit: bool, plot: str | None, as_json: bool
) -> None:
    """Show what models were paid for: tokens by kind, US dollars, and what caching and compactions did to them.

    Amounts are tokens as the providers reported them, times the prices of the catalogue or of the settings.
    """
    from everlong.agent.accounting import account  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.config import load_settings  # noqa: PLC0415 - as above

    if plot and not plot.lower().endswith((".svg", ".png")):
        raise click.UsageError(f"--plot is {plot!r}, but must end in .svg or .png")
    if plot and audit:
        raise click.UsageError("--plot draws what was paid, and cannot be had with --audit")
    settings = load_settings().settings
    with open_chosen_store() as store:
        only = _named(store, session)
        if audit:
            show_audit(store, settings, since=since, session=only, as_json=as_json)
            return
        books = account(store, settings, by=by, since=since, session=only)
    if plot:
        _plot(plot, books)
    if as_json:
        print_json({**books.to_dict(), "session": only})
        return
    if not books.total.calls and not books.total.unanswered:
        say("nothing was asked of a model" + (" in that time" if since is not None else " yet"))
        return
    from everlong.cli.picture import console  # noqa: PLC0415 - as above

    print_books(books, console())


def _named(store: Store, session: str | None) -> str | None:
    return None if session is None else find_conversation(store, session).parts[0]


def _plot(path: str, books: Books) -> None:
    from everlong.agent.accounting import draw  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.caching.simulation import to_png  # noqa: PLC0415 - as above

    picture = draw(books)
    if path.lower().endswith(".svg"):
        write_output(path, picture)
    else:
        to_png(picture, path)
    say(f"wrote {path}")


def print_books(books: Books, out: Console) -> None:
    """Print what was paid for as a table, and what is to be said about it."""
    from rich.table import Table  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.text import Text  # noqa: PLC0415 - as above

    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False)
    table.add_column(books.by)
    for head in _HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for name, one in books.groups.items():
        title = books.titles.get(name)
        table.add_row(Text(one_line(name if title is None else f"{name}  {title}")), *_figures(one))
    if len(books.groups) > 1:
        table.add_row(Text("in total", style="bold"), *_figures(books.total))
    out.print(table)
    for line in _remarks(books):
        out.print(Text(line))


def _figures(one: Account) -> list[str]:
    tokens = one.tokens
    numbers = (one.calls, tokens.plain, tokens.cache_read, tokens.written, tokens.output)
    amounts = [money(one.cost), money(one.uncached_cost)] if one.has_prices else ["?", "?"]
    return [*(f"{number:,}" for number in numbers), *amounts]


def _remarks(books: Books) -> list[str]:
    total = books.total
    side = [
        f"{_counted(kind.calls, *_SIDE[name])} {_paid(total, kind.cost)}"
        for name, kind in total.kinds.items()
        if name in _SIDE and kind.calls
    ]
    lines = [f"on the side, in these figures: {', '.join(side)}"] if side else []
    if total.uncached_cost:
        saved = total.uncached_cost - total.cost
        word = "saved" if saved >= 0 else "cost"
        lines.append(f"caching {word} {money(abs(saved))}, {abs(saved) / total.uncached_cost:.0%} of what was due")
    lines += _on_misses(total)
    lines += _on_compactions(total)
    if books.unpriced:
        names = ", ".join(books.unpriced)
        lines.append(
            f"no price is known for {counted(total.unpriced_calls, 'call')} to {names}: no amount has them; "
            "set models.NAME.input_price and output_price"
        )
    if total.unanswered:
        lines.append(f"{counted(total.unanswered, 'request')} brought no answer; what they cost, nobody told")
    return lines


def _on_compactions(total: Account) -> list[str]:
    if not total.compactions and not total.unsent.tokens:
        return []
    anew, unsent = total.rewritten, total.unsent
    return [
        f"{counted(total.compactions, 'compaction')}:",
        f"  cost   {_paid(total, total.kinds['summary'].cost)} for summaries",
        f"  cost   {_paid(total, anew.cost)} more for {anew.tokens:,} tokens that had to be sent anew (estimated)",
        f"  saved  {_paid(total, unsent.cost)} for {unsent.tokens:,} tokens that were not sent again (estimated)",
    ]


def _on_misses(total: Account) -> list[str]:
    """Say why providers did not read what they had read before."""
    from everlong.caching.misses import REASONS  # noqa: PLC0415 - keeps `everlong --help` quick

    if not total.misses:
        return []
    by_size = sorted(total.misses.items(), key=lambda one: -one[1].missed.tokens)
    tokens = sum(one.missed.tokens for _, one in by_size)
    cost = sum((one.missed.cost for _, one in by_size), Decimal(0))
    calls = counted(sum(one.calls for _, one in by_size), "call")
    return [
        f"{calls} missed the cache: {tokens:,} tokens paid for again, {_paid(total, cost)} more than to read them",
        *(
            f"  {reason:10}  {one.calls:>5,} x {one.missed.tokens:>11,}  {_paid(total, one.missed.cost):>9}  {why}"
            for reason, one in by_size
            for why in [REASONS[reason]]  # type: ignore[index]  # only known ones are counted
        ),
    ]


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _paid(one: Account, value: Decimal) -> str:
    return money(value) if one.has_prices else "$?"


def money(value: Decimal) -> str:
    """Return US dollars, rounded for people: to the cent, or to a hundredth of a cent where that is little."""
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"


_USAGE_AUDIT_HEADS = ("requests", "compactions", "sent", "would be", "paid", "would be")
_REQUEST_HEADS = ("sent", "read", "paid", "would be", "read", "paid")


def show_audit(store: Store, settings: Settings, *, since: float | None, session: str | None, as_json: bool) -> None:
    """Print an audit: by conversation, or request by request where one conversation is asked for."""
    from everlong.cli.picture import console  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.gateway.audit import audit  # noqa: PLC0415 - as above

    found = audit(store, settings, since=since, session=session)
    if as_json:
        print_json({**found.to_dict(), "since": since, "session": session})
        return
    if not found.requests:
        say("no answered request was passed on in audit mode; everlong serve does that with gateway.mode: audit")
        return
    out = console()
    if session is None:
        _print_conversations(found, out)
    else:
        _print_requests(found.requests, out)
    for line in _usage_audit_remarks(found):
        out.print(line, highlight=False, markup=False)


def _print_conversations(found: Audit, out: Console) -> None:
    from rich.table import Table  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.text import Text  # noqa: PLC0415 - as above

    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False)
    table.add_column("session")
    for head in _USAGE_AUDIT_HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    groups = found.conversations
    for session, requests in groups.items():
        title = found.titles.get(session or "")
        name = session or "(no session)"
        table.add_row(Text(one_line(name if title is None else f"{name}  {title}")), *_usage_audit_figures(requests))
    if len(groups) > 1:
        table.add_row(Text("in total", style="bold"), *_usage_audit_figures(found.requests))
    out.print(table)


def _usage_audit_figures(requests: Sequence[Audited]) -> list[str]:
    compactions = sum(bool(one.compaction) for one in requests)
    sent, shown = sum(one.tokens.prompt for one in requests), sum(one.shown.prompt for one in requests)
    return [
        *(f"{number:,}" for number in (len(requests), compactions, sent, shown)),
        _sum([one.cost for one in requests]),
        _sum([one.shown_cost for one in requests]),
    ]


def _print_requests(requests: Sequence[Audited], out: Console) -> None:
    from rich.table import Table  # noqa: PLC0415 - keeps `everlong --help` quick

    table = Table(box=None, pad_edge=False)
    table.add_column("time", no_wrap=True)
    for head in _REQUEST_HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("what the gateway would have done")
    for one in requests:
        table.add_row(
            f"{datetime.fromtimestamp(one.at).astimezone():%Y-%m-%d %H:%M:%S}",
            *(f"{one.tokens.prompt:,}", f"{one.tokens.cache_read:,}", _sum([one.cost])),
            *(f"{one.shown.prompt:,}", f"{one.shown.cache_read:,}", _sum([one.shown_cost])),
            _deeds(one),
        )
    out.print(table)


def _deeds(one: Audited) -> str:
    done = [f"put in {counted(one.markers, 'marker')}"] if one.markers else []
    if one.shown.prompt < one.tokens.prompt:
        done.append("sent it by its view")
    if one.compaction == "threshold":
        done.append(f"compacted after it: {one.freed:,} tokens less from the next request on")
    elif one.compaction:
        done.append(f"compacted before it: {one.freed:,} tokens less")
    return ", ".join(done) or "nothing"


def _usage_audit_remarks(found: Audit) -> list[str]:
    marked = sum(bool(one.markers) for one in found.requests)
    compactions = sum(bool(one.compaction) for one in found.requests)
    lines = [
        f"markers: {counted(marked, 'request')} would have got some; {_effect(found.saved_by_markers)} (estimated)"
        if marked
        else "markers: none would have been put in; the client places its own, or the provider takes none"
    ]
    if compactions:
        lines.append(
            f"{counted(compactions, 'compaction')}: {_effect(found.saved_by_compactions)} (estimated), "
            "with summaries that need no model; written by the conversation's own model, "
            f"they would cost {_money(found.summaries_cost)}"
        )
    else:
        lines.append("compactions: none would have been made")
    if found.unpriced:
        lines.append(f"no price is known for {', '.join(found.unpriced)}: no amount has them")
    return lines


def _effect(saved: Decimal) -> str:
    return f"they would have {'saved' if saved >= 0 else 'cost'} {_money(abs(saved))}"


def _sum(amounts: Sequence[Decimal | None]) -> str:
    known = [amount for amount in amounts if amount is not None]
    return _money(sum(known, Decimal(0))) if known else "?"


def _money(value: Decimal) -> str:
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"
