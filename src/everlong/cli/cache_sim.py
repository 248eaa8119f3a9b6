"""``everlong cache-sim``: the cost of a conversation under every caching strategy, by the providers' rules.

Replays a conversation request by request. Nothing is sent anywhere.
`everlong.caching` has the rules and the strategies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from everlong import config
from everlong.caching.simulation import MODEL, replay, requests_of
from everlong.cli.output import counted, json_option, print_values, read_input, track
from everlong.cli.picture import console, fit
from everlong.providers.catalogue import Catalogue
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.caching.simulation import Replay


@click.command("cache-sim")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--model", help="The model whose caching rules apply.  [default: the one the file names, else claude-sonnet-4-6]"
)
@click.option("--gap", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds between requests.")
@json_option
def cache_sim_command(file: str, model: str | None, gap: float, as_json: bool) -> None:
    """Show what the conversation(s) in FILE would cost under each caching strategy.

    FILE is anything that `everlong compress` reads. Costs are those of the input, at the list price of the model.
    """
    results: list[Replay] = []
    for one in track(read_input(file).conversations, "simulating"):
        chosen = model or one.model or MODEL
        calls = requests_of(one.messages, one.tools, gap=gap)
        results.append(replay(one.id or "", calls, chosen, counter=MessageCounter(counter_for(chosen))))
    prices = [_input_price(result) for result in results]
    if as_json:
        listed = [
            result.to_dict() | {"dollars_per_token": price} for result, price in zip(results, prices, strict=True)
        ]
        print_values({"sessions": listed})
        return
    for result, price in zip(results, prices, strict=True):
        _print(result, price)


def _input_price(result: Replay) -> float | None:
    """Return the US dollars for a fresh input token of the session's model; None if no list has it."""
    # Clouds ask for Claude what its maker asks.
    provider = "anthropic" if result.provider in {"bedrock", "vertex"} else result.provider
    settings = config.load_settings().settings
    prices = Catalogue(settings.models, settings.providers).rates(f"{provider}:{result.model}")
    return float(prices.input) / 1_000_000 if prices is not None and prices.input else None


_ABOUT = {
    "off": "no caching",
    "system_and_3": "system prompt and the 3 newest messages are marked",
    "ledger": "Everlong's own",
    "ledger, 1h": "everything for an hour",
    "automatic": "the provider's own; nothing to set",
    "best possible": "reads all that was sent before, writes the rest once",
}


def _print(result: Replay, price: float | None) -> None:
    out = console()
    name = f"{result.name}: " if result.name else ""
    out.print(Text(f"{name}{counted(result.requests, 'request')} to {result.model} ({result.provider})"), style="bold")
    totals = result.totals
    any_totals = next(iter(totals.values()))
    costs = {strategy: one.cost for strategy, one in totals.items()}
    costs["best possible"] = min(any_totals.oracle, *costs.values())  # what is never read again need not be written
    amounts = {strategy: _amount(cost, price) for strategy, cost in costs.items()}
    rows = [
        [strategy for strategy in amounts if amounts[strategy] == amount] for amount in dict.fromkeys(amounts.values())
    ]  # strategies that cost the same are one row
    width = max(map(len, [*amounts.values(), "input cost"]))
    label = max(len(", ".join(names)) for names in rows) + 2
    unit = "" if price else "  (in tokens: the price is not known)"
    out.print(Text(f"{'strategy':<{label}}{'input cost':>{width}}{'saved':>8}{'cached':>8}{unit}"))
    for first, *others in rows:
        saved = f"{1 - costs[first] / any_totals.uncached:.0%}" if any_totals.uncached else ""
        cached = f"{totals[first].hit_share:.0%}" if first in totals else ""
        row = Text(f"{', '.join([first, *others]):<{label}}{amounts[first]:>{width}}{saved:>8}{cached:>8}")
        if not others:
            row.append(fit(f"  {_ABOUT[first]}", max(1, out.width - len(row))), style="dim")
        out.print(row)
    for strategy, one in totals.items():
        reasons = [f"{reason} {tokens:,}" for reason, tokens in one.reasons.items() if tokens]
        if strategy != "off" and reasons:
            out.print(Text(f"{strategy}: tokens not read from the cache: {', '.join(reasons)}", style="dim"))
    out.print()


def _amount(cost: float, price: float | None) -> str:
    """Return a cost in US dollars, or in tokens if the price is not known."""
    if price is None:
        return f"{cost:,.0f}"
    dollars = cost * price
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:,.4f}"
