"""``everlong usage --audit``: what the gateway would have done to the requests that it only watched.

The figures are `everlong.gateway.audit`'s; amounts are rounded here and nowhere else.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from everlong.cli.sessions_common import counted, put_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from everlong.config import Settings
    from everlong.gateway.audit import Audit, Audited
    from everlong.store import Store

__all__ = ["show_audit"]

_HEADS = ("requests", "compactions", "sent", "would be", "paid", "would be")
_REQUEST_HEADS = ("sent", "read", "paid", "would be", "read", "paid")


def show_audit(store: Store, settings: Settings, *, since: float | None, session: str | None, as_json: bool) -> None:
    """Print an audit: by conversation, or request by request where one conversation is asked for."""
    from everlong.cli.picture import console  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.gateway.audit import audit  # noqa: PLC0415 - as above

    found = audit(store, settings, since=since, session=session)
    if as_json:
        put_json({**found.to_dict(), "since": since, "session": session})
        return
    if not found.requests:
        say("no answered request was passed on in audit mode; everlong serve does that with gateway.mode: audit")
        return
    out = console()
    if session is None:
        _print_conversations(found, out)
    else:
        _print_requests(found.requests, out)
    for line in _remarks(found):
        out.print(line, highlight=False, markup=False)


def _print_conversations(found: Audit, out: Console) -> None:
    from rich.table import Table  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.text import Text  # noqa: PLC0415 - as above

    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False)
    table.add_column("session")
    for head in _HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    groups = found.conversations
    for session, requests in groups.items():
        title = found.titles.get(session or "")
        name = session or "(no session)"
        table.add_row(Text(one_line(name if title is None else f"{name}  {title}")), *_figures(requests))
    if len(groups) > 1:
        table.add_row(Text("in total", style="bold"), *_figures(found.requests))
    out.print(table)


def _figures(requests: Sequence[Audited]) -> list[str]:
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


def _remarks(found: Audit) -> list[str]:
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
