"""``everlong cache-sim``: the cost of a conversation under every caching strategy, by the providers' rules.

Replays a conversation request by request, or a session generated from a seed. Nothing is sent anywhere.
`everlong.caching` has the rules and the strategies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlong.cli.files import check_picture_name, read_input, write_picture
from everlong.cli.output import print_values, tracked

if TYPE_CHECKING:
    from everlong.caching.simulation import Replay


@click.command("cache-sim")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), required=False)
@click.option(
    "--model", help="The model whose caching rules apply.  [default: the one the file names, else claude-sonnet-4-5]"
)
@click.option("--provider", help="Who serves it: anthropic, openrouter, bedrock, vertex, openai …")
@click.option("--gap", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds between requests.")
@click.option("--pauses", type=click.FloatRange(0, 1), default=0.0, help="Share of requests after a pause of 6-40 min.")
@click.option("--collapse-runs", is_flag=True, help="Count a run of calls, or of results, as one look-back position.")
@click.option(
    "--generate", metavar="PROFILE", help="Generate a session instead of reading FILE: serial, mixed or wide."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed for pauses and generated sessions.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    callback=check_picture_name,
    help="Draw the cost per request and in total to an .svg or .png file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
def cache_sim_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    file: str | None,
    model: str | None,
    provider: str | None,
    gap: float,
    pauses: float,
    collapse_runs: bool,
    generate: str | None,
    seed: int,
    plot: str | None,
    as_json: bool,
) -> None:
    """Show what the conversation(s) in FILE would cost under each caching strategy.

    FILE is anything that `everlong compress` reads. Costs are in units of one fresh input token.
    """
    from everlong.caching.blocks import rough_count  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.caching.plot import draw  # noqa: PLC0415 - as above
    from everlong.caching.simulated_sessions import PROFILES, make_session  # noqa: PLC0415 - as above
    from everlong.caching.simulation import replay, requests_of  # noqa: PLC0415 - as above
    from everlong.tokens import MessageCounter, counter_for  # noqa: PLC0415 - as above

    if (file is None) == (generate is None):
        raise click.UsageError("give a FILE, or --generate with serial, mixed or wide")
    if generate is not None and generate not in PROFILES:
        raise click.UsageError(f"--generate is {generate!r}, but must be one of {', '.join(PROFILES)}")
    sessions: list[tuple[str, str | None, Any]] = []
    if generate is not None:
        calls = [(call.at, call.body) for call in make_session(PROFILES[generate], seed)]
        sessions.append((f"{generate}, seed {seed}", None, calls))
    else:
        for conversation in read_input(str(file)).conversations:
            named = requests_of(conversation.messages, conversation.tools, gap=gap, pauses=pauses, seed=seed)
            sessions.append((conversation.id or "", conversation.model, named))
    results: list[Replay] = []
    for name, own, calls in tracked(sessions, "simulating"):
        chosen = model or own or "claude-sonnet-4-5"
        count = rough_count if generate else MessageCounter(counter_for(chosen)).count_text
        results.append(replay(name, calls, chosen, provider or "", per_block=not collapse_runs, count=count))
    if plot:
        write_picture(plot, draw(results))
    if as_json:
        print_values({"sessions": [result.to_dict() for result in results]})
        return
    for result in results:
        _print(result)


def _print(result: Replay) -> None:
    from rich.table import Table  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.text import Text  # noqa: PLC0415 - as above

    from everlong.cli.picture import console  # noqa: PLC0415 - as above

    out = console()
    name = f"{result.name}: " if result.name else ""
    out.print(Text(f"{name}{result.requests:,} requests to {result.model} ({result.provider})"), style="bold")
    table = Table(box=None, pad_edge=False)
    for heading in ("strategy", "cost", "over the oracle", "of uncached", "read", "missed tokens by reason"):
        table.add_column(heading, justify="left" if heading in ("strategy", "missed tokens by reason") else "right")
    for strategy, totals in result.totals.items():
        reasons = ", ".join(f"{reason} {tokens:,}" for reason, tokens in totals.reasons.items() if tokens)
        figures = f"{totals.over_oracle:.2f}", f"{totals.of_uncached:.1%}", f"{totals.hit_share:.1%}"
        table.add_row(strategy, f"{totals.cost:,.0f}", *figures, reasons or "-")
    any_totals = next(iter(result.totals.values()))
    table.add_row(
        "oracle", f"{any_totals.oracle:,.0f}", "1.00", f"{any_totals.oracle / any_totals.uncached:.1%}", "", ""
    )
    out.print(table)
    out.print()
