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
from everlong.agent.commands.books import add_row, money, new_table, print_books, print_lines
from everlong.cli.chosen_store import (
    all_tenants_option,
    find_conversation,
    open_chosen_store,
    parse_time,
    print_json,
    run_for_each_tenant,
    store_option,
    tenant_option,
)
from everlong.cli.output import counted, json_option, say

if TYPE_CHECKING:
    from rich.console import Console

    from everlong.agent.accounting import By
    from everlong.config import Settings
    from everlong.gateway.audit import Audit, Audited
    from everlong.store import Store

_AUDIT_HEADS = ("requests", "compactions", "sent", "would be", "paid", "would be")
_REQUEST_HEADS = ("sent", "read", "paid", "would be", "read", "paid")


@click.command("usage")
@click.option("--since", callback=parse_time, metavar="WHEN", help="Only calls since this: 2026-01-31, today, 7d …")
@click.option(
    "--by", type=click.Choice(["model", "session", "day"]), default="model", show_default=True, help="What to group by."
)
@click.option("--session", metavar="ID|TITLE", help="Only this conversation.")
@click.option("--audit", is_flag=True, help="Show what the gateway would have done to requests of its audit mode.")
@json_option
@store_option
@tenant_option
@all_tenants_option
@run_for_each_tenant
def usage_command(since: float | None, by: By, session: str | None, audit: bool, as_json: bool) -> None:
    """Show what models cost: tokens by kind, US dollars, and the effect of caching and compactions.

    Amounts are the tokens that providers reported, times the prices of the catalogue or the settings.
    """
    from everlong.agent.accounting import account  # noqa: PLC0415 - keeps `--help` quick

    settings = config.load_settings().settings
    with open_chosen_store() as store:
        only = None if session is None else find_conversation(store, session).parts[0]
        if audit:
            _print_audit(store, settings, since=since, session=only, as_json=as_json)
            return
        books = account(store, settings, by=by, since=since, session=only)
    if as_json:
        print_json({**books.to_dict(), "session": only})
        return
    if not books.total.calls and not books.total.unanswered:
        say("no model was called" + (" in that time" if since is not None else " yet"))
        return
    from everlong.cli.picture import console  # noqa: PLC0415 - --json needs no rich

    print_books(books, console())


# -- what the gateway would have done (--audit) ------------------------------------------------------------------------


def _print_audit(store: Store, settings: Settings, *, since: float | None, session: str | None, as_json: bool) -> None:
    """Print an audit: a row for each conversation, or for each request if one conversation is chosen."""
    from everlong.cli.picture import console  # noqa: PLC0415 - keeps `--help` quick
    from everlong.cli.serve import check_installed  # noqa: PLC0415 - as above

    check_installed()
    from everlong.gateway.audit import audit  # noqa: PLC0415 - it needs the gateway's packages

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
    print_lines(_audit_remarks(found), out)


def _print_audited_conversations(found: Audit, out: Console) -> None:
    table = new_table("session", _AUDIT_HEADS)
    groups = found.conversations
    for session, requests in groups.items():
        add_row(table, session or "(no session)", found.titles.get(session or ""), _audit_cells(requests))
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
    table = new_table("time", _REQUEST_HEADS)
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
            "with summaries that need no model; "
            + (
                "what a model's would cost is not known yet"
                if found.summaries_cost is None
                else f"a model's would cost {money(found.summaries_cost)}, by the ones that were paid"
            )
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
