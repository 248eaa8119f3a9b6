"""Books as tables: what models, caching and compactions cost, for ``everlong usage`` and ``/usage``."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from everlong.agent.text import one_line
from everlong.model import counted

if TYPE_CHECKING:
    from rich.console import Console

    from everlong.agent.accounting import Account, Books

__all__ = ["money", "print_books"]

_BOOK_HEADS = ("calls", "fresh", "cached", "written", "out", "paid", "uncached")
_SIDE_CALLS = {
    "summary": ("call for a summary", "calls for summaries"),
    "memory": ("memory flush", "memory flushes"),
    "plugin": ("call of a plugin", "calls of plugins"),
}


def money(value: Decimal | float) -> str:
    """Return US dollars, rounded to the cent, or to a hundredth of a cent below one dollar."""
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"


def print_books(books: Books, out: Console) -> None:
    """Print what was paid as a table, with remarks below it."""
    from rich.table import Table  # noqa: PLC0415 - --json needs no rich
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False)
    table.add_column(books.by)
    for head in _BOOK_HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for name, one in books.groups.items():
        title = books.titles.get(name)
        table.add_row(Text(one_line(name if title is None else f"{name}  {title}", 400)), *_account_cells(one))
    if len(books.groups) > 1:
        table.add_row("[bold]in total[/]", *_account_cells(books.total))
    out.print(table)
    for line in _book_remarks(books):
        out.print(Text(line))


def _account_cells(one: Account) -> list[str]:
    used = one.tokens
    told = (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens, used.output_tokens)
    numbers = (one.calls, *told)
    amounts = [money(one.cost), money(one.uncached_cost)] if one.has_prices else ["?", "?"]
    return [*(f"{number:,}" for number in numbers), *amounts]


def _book_remarks(books: Books) -> list[str]:
    total = books.total
    side = [
        f"{kind.calls:,} {_SIDE_CALLS[name][kind.calls != 1]} {_amount(total, kind.cost)}"
        for name, kind in total.kinds.items()
        if name in _SIDE_CALLS and kind.calls
    ]
    lines = [f"on the side, in these figures: {', '.join(side)}"] if side else []
    if total.uncached_cost and (saved := total.uncached_cost - total.cost):
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
    if total.estimated_calls:
        lines.append(
            f"for {counted(total.estimated_calls, 'call')} the provider reported no usage; Everlong counted the tokens"
        )
    if total.unanswered:
        whose = "its" if total.unanswered == 1 else "their"
        lines.append(f"{counted(total.unanswered, 'request')} failed; {whose} cost is unknown")
    return lines


def _compaction_remarks(total: Account) -> list[str]:
    if not total.compactions and not total.unsent.tokens:
        return []
    anew, unsent = total.rewritten, total.unsent
    dearer = f"  cost   {_amount(total, anew.cost)} more for {anew.tokens:,} tokens that had left the cache (estimated)"
    return [
        f"{counted(total.compactions, 'compaction')}:",
        f"  cost   {_amount(total, total.kinds['summary'].cost)} for summaries",
        *([dearer] if anew.tokens else []),
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


def _amount(one: Account, value: Decimal) -> str:
    return money(value) if one.has_prices else "an unknown amount"
