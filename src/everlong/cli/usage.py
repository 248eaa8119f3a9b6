"""``everlong usage``: what calls cost, what caching saved, and what compactions saved or cost.

`everlong.agent.accounting` computes the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everlong import config
from everlong.agent.commands.books import print_books
from everlong.cli.chosen_store import (
    all_tenants_option,
    find_conversation,
    open_chosen_store,
    other_tenants,
    parse_time,
    print_json,
    run_for_each_tenant,
    store_option,
    tenant_option,
)
from everlong.cli.output import json_option, say

if TYPE_CHECKING:
    from everlong.agent.accounting import By


@click.command("usage")
@click.option("--since", callback=parse_time, metavar="WHEN", help="Only calls since this: 2026-01-31, today, 7d …")
@click.option(
    "--by", type=click.Choice(["model", "session", "day"]), default="model", show_default=True, help="What to group by."
)
@click.option("--session", metavar="ID|TITLE", help="Only this conversation.")
@json_option
@store_option
@tenant_option
@all_tenants_option
@run_for_each_tenant
def usage_command(since: float | None, by: By, session: str | None, as_json: bool) -> None:
    """Show what models cost: tokens by kind, US dollars, and the effect of caching and compactions.

    Amounts are the tokens that providers reported, times the prices of the catalogue or the settings. Fresh tokens
    are full price, cached ones were read from the provider's cache; uncached is the price without any cache.
    """
    from everlong.agent.accounting import account  # noqa: PLC0415 - keeps `--help` quick

    settings = config.load_settings().settings
    with open_chosen_store() as store:
        only = None if session is None else find_conversation(store, session).parts[0]
        books = account(store, settings, by=by, since=since, session=only)
        elsewhere = other_tenants(store)
    if as_json:
        print_json({**books.to_dict(), "session": only})
        return
    if not books.total.calls and not books.total.unanswered:
        nothing = "no model was called" + (" in that time" if since is not None else " yet")
        say(f"{nothing}; {elsewhere}" if elsewhere else nothing)
        return
    from everlong.cli.picture import console  # noqa: PLC0415 - --json needs no rich

    print_books(books, console())
