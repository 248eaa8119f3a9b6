"""``everlong usage``: what calls cost, what caching saved, and what compactions saved or cost.

`everlong.agent.accounting` computes the figures, `everlong.gateway.audit` those of ``--audit``. Amounts are rounded
here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from everlong import config
from everlong.cli.chosen_store import (
    find_conversation,
    for_each_tenant,
    open_chosen_store,
    parse_time,
    print_json,
    store_option,
    tenant_options,
)
from everlong.cli.files import check_picture_name, write_charts
from everlong.cli.output import counted, json_option, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from everlong.agent.accounting import Account, Books, By
    from everlong.config import Settings
    from everlong.gateway.audit import Audit, Audited
    from everlong.store import Store

__all__ = ["money", "print_books", "usage_command"]

_BOOK_HEADS = ("calls", "plain", "read", "written", "out", "paid", "uncached")
_AUDIT_HEADS = ("requests", "compactions", "sent", "would be", "paid", "would be")
_REQUEST_HEADS = ("sent", "read", "paid", "would be", "read", "paid")
_SIDE_CALLS = {
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
@click.option("--audit", is_flag=True, help="Show what the gateway would have done to requests of its audit mode.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    callback=check_picture_name,
    help="Draw the running totals to an .svg or .png file, or to the terminal (-).",
)
@json_option
@store_option(hidden=False)
@tenant_options(hidden=False)
@for_each_tenant
def usage_command(
    since: float | None, by: By, session: str | None, audit: bool, plot: str | None, as_json: bool
) -> None:
    """Show what models cost: tokens by kind, US dollars, and the effect of caching and compactions.

    Amounts are the tokens that providers reported, times the prices of the catalogue or the settings.
    """
    from everlong.agent.accounting import account, charts_of  # noqa: PLC0415 - keeps `--help` quick

    if plot and audit:
        raise click.UsageError("--plot draws what was paid; leave it or --audit out")
    if plot == "-" and as_json:
        raise click.UsageError("--plot - and --json both print; leave one of them out")
    settings = config.load_settings().settings
    with open_chosen_store() as store:
        only = None if session is None else find_conversation(store, session).parts[0]
        if audit:
            _print_audit(store, settings, since=since, session=only, as_json=as_json)
            return
        books = account(store, settings, by=by, since=since, session=only)
    if plot:
        write_charts(plot, "What models were paid", charts_of(books))
    if as_json:
        print_json({**books.to_dict(), "session": only})
        return
    if not books.total.calls and not books.total.unanswered:
        say("no model was called" + (" in that time" if since is not None else " yet"))
        return
    from everlong.cli.picture import console  # noqa: PLC0415 - --json and --plot need no rich

    print_books(books, console())


def money(value: Decimal) -> str:
    """Return US dollars, rounded to the cent, or to a hundredth of a cent below one dollar."""
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"


def _new_table(first: str, heads: Sequence[str]) -> Table:
    """Return a table whose first column is text and whose other columns are figures."""
    from rich.table import Table  # noqa: PLC0415 - --json and --plot need no rich

    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _add_row(table: Table, name: str, title: str | None, cells: Sequence[str]) -> None:
    from rich.text import Text  # noqa: PLC0415 - --json and --plot need no rich

    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `--help` quick

    table.add_row(Text(one_line(name if title is None else f"{name}  {title}")), *cells)


def _print_lines(lines: Sequence[str], out: Console) -> None:
    from rich.text import Text  # noqa: PLC0415 - --json and --plot need no rich

    for line in lines:
        out.print(Text(line))


# -- what was paid -----------------------------------------------------------------------------------------------------


def print_books(books: Books, out: Console) -> None:
    """Print what was paid as a table, with remarks below it."""
    table = _new_table(books.by, _BOOK_HEADS)
    for name, one in books.groups.items():
        _add_row(table, name, books.titles.get(name), _account_cells(one))
    if len(books.groups) > 1:
        table.add_row("[bold]in total[/]", *_account_cells(books.total))
    out.print(table)
    _print_lines(_book_remarks(books), out)


def _account_cells(one: Account) -> list[str]:
    tokens = one.tokens
    numbers = (one.calls, tokens.plain, tokens.cache_read, tokens.written, tokens.output)
    amounts = [money(one.cost), money(one.uncached_cost)] if one.has_prices else ["?", "?"]
    return [*(f"{number:,}" for number in numbers), *amounts]


def _book_remarks(books: Books) -> list[str]:
    total = books.total
    side = [
        f"{_side_calls(kind.calls, *_SIDE_CALLS[name])} {_amount(total, kind.cost)}"
        for name, kind in total.kinds.items()
        if name in _SIDE_CALLS and kind.calls
    ]
    lines = [f"on the side, in these figures: {', '.join(side)}"] if side else []
    if total.uncached_cost:
        saved = total.uncached_cost - total.cost
        word = "saved" if saved >= 0 else "cost"
        lines.append(
            f"caching {word} {money(abs(saved))}, {abs(saved) / total.uncached_cost:.0%} of the price without it"
        )
    lines += _miss_remarks(total)
    lines += _compaction_remarks(total)
    if books.unpriced:
        names = ", ".join(books.unpriced)
        lines.append(
            f"no price is known for {counted(total.unpriced_calls, 'call')} to {names}, so no amount includes them; "
            "set models.NAME.input_price and output_price"
        )
    if total.unanswered:
        lines.append(f"{counted(total.unanswered, 'request')} failed; their cost is unknown")
    return lines


def _compaction_remarks(total: Account) -> list[str]:
    if not total.compactions and not total.unsent.tokens:
        return []
    anew, unsent = total.rewritten, total.unsent
    return [
        f"{counted(total.compactions, 'compaction')}:",
        f"  cost   {_amount(total, total.kinds['summary'].cost)} for summaries",
        f"  cost   {_amount(total, anew.cost)} more for {anew.tokens:,} tokens that had to be sent anew (estimated)",
        f"  saved  {_amount(total, unsent.cost)} for {unsent.tokens:,} tokens that were not sent again (estimated)",
    ]


def _miss_remarks(total: Account) -> list[str]:
    """Return remarks on cache misses: how many, what they cost, and why they happened."""
    from everlong.caching.misses import REASONS  # noqa: PLC0415 - keeps `--help` quick

    if not total.misses:
        return []
    by_size = sorted(total.misses.items(), key=lambda one: -one[1].missed.tokens)
    tokens = sum(one.missed.tokens for _, one in by_size)
    cost = sum((one.missed.cost for _, one in by_size), Decimal(0))
    calls = counted(sum(one.calls for _, one in by_size), "call")
    return [
        f"{calls} missed the cache: {tokens:,} tokens paid for again, {_amount(total, cost)} more than to read them",
        *(
            f"  {reason:10}  {one.calls:>5,} x {one.missed.tokens:>11,}  {_amount(total, one.missed.cost):>9}  {why}"
            for reason, one in by_size
            for why in [REASONS[reason]]  # type: ignore[index]  # only known ones are counted
        ),
    ]


def _side_calls(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _amount(one: Account, value: Decimal) -> str:
    return money(value) if one.has_prices else "$?"


# -- what the gateway would have done (--audit) ------------------------------------------------------------------------


def _print_audit(store: Store, settings: Settings, *, since: float | None, session: str | None, as_json: bool) -> None:
    """Print an audit: a row for each conversation, or for each request if one conversation is chosen."""
    from everlong.cli.picture import console  # noqa: PLC0415 - keeps `--help` quick
    from everlong.gateway.audit import audit  # noqa: PLC0415 - as above

    found = audit(store, settings, since=since, session=session)
    if as_json:
        print_json({**found.to_dict(), "since": since, "session": session})
        return
    if not found.requests:
        say("no request was answered in audit mode yet; set gateway.mode to audit and run everlong serve")
        return
    out = console()
    if session is None:
        _print_audited_conversations(found, out)
    else:
        _print_audited_requests(found.requests, out)
    _print_lines(_audit_remarks(found), out)


def _print_audited_conversations(found: Audit, out: Console) -> None:
    table = _new_table("session", _AUDIT_HEADS)
    groups = found.conversations
    for session, requests in groups.items():
        _add_row(table, session or "(no session)", found.titles.get(session or ""), _audit_cells(requests))
    if len(groups) > 1:
        table.add_row("[bold]in total[/]", *_audit_cells(found.requests))
    out.print(table)


def _audit_cells(requests: Sequence[Audited]) -> list[str]:
    compactions = sum(bool(one.compaction) for one in requests)
    sent, shown = sum(one.tokens.prompt for one in requests), sum(one.shown.prompt for one in requests)
    return [
        *(f"{number:,}" for number in (len(requests), compactions, sent, shown)),
        _sum_costs([one.cost for one in requests]),
        _sum_costs([one.shown_cost for one in requests]),
    ]


def _print_audited_requests(requests: Sequence[Audited], out: Console) -> None:
    table = _new_table("time", _REQUEST_HEADS)
    table.columns[0].no_wrap = True
    table.add_column("what the gateway would have done")
    for one in requests:
        table.add_row(
            f"{datetime.fromtimestamp(one.at).astimezone():%Y-%m-%d %H:%M:%S}",
            *(f"{one.tokens.prompt:,}", f"{one.tokens.cache_read:,}", _sum_costs([one.cost])),
            *(f"{one.shown.prompt:,}", f"{one.shown.cache_read:,}", _sum_costs([one.shown_cost])),
            _describe_changes(one),
        )
    out.print(table)


def _describe_changes(one: Audited) -> str:
    done = [f"put in {counted(one.markers, 'marker')}"] if one.markers else []
    if one.shown.prompt < one.tokens.prompt:
        done.append("sent its compacted view")
    if one.compaction == "threshold":
        done.append(f"compacted after it: {one.freed:,} tokens less from the next request on")
    elif one.compaction:
        done.append(f"compacted before it: {one.freed:,} tokens less")
    return ", ".join(done) or "nothing"


def _audit_remarks(found: Audit) -> list[str]:
    marked = sum(bool(one.markers) for one in found.requests)
    compactions = sum(bool(one.compaction) for one in found.requests)
    lines = [
        f"markers: {counted(marked, 'request')} would have got some; "
        f"{_describe_saving(found.saved_by_markers)} (estimated)"
        if marked
        else "markers: none would have been put in; the client places its own, or the provider takes none"
    ]
    if compactions:
        lines.append(
            f"{counted(compactions, 'compaction')}: {_describe_saving(found.saved_by_compactions)} (estimated), "
            "with summaries that need no model; written by the conversation's own model, "
            f"they would cost {money(found.summaries_cost)}"
        )
    else:
        lines.append("compactions: none would have been made")
    if found.unpriced:
        lines.append(f"no price is known for {', '.join(found.unpriced)}, so no amount includes them")
    return lines


def _describe_saving(saved: Decimal) -> str:
    return f"they would have {'saved' if saved >= 0 else 'cost'} {money(abs(saved))}"


def _sum_costs(amounts: Sequence[Decimal | None]) -> str:
    known = [amount for amount in amounts if amount is not None]
    return money(sum(known, Decimal(0))) if known else "?"
