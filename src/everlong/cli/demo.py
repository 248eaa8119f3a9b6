"""``everlong demo``: plays a long agent session in a small window, without a key and without a network.

The shipped session runs through the real engine as in an agent: check before each request, and compact when due. Then
the command shows the size of the context over time, each compaction, and which early facts are still known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import click

import everlong.context
from everlong.cli.output import print_values, say
from everlong.model import calls_of, is_system, text_of

if TYPE_CHECKING:
    from rich.console import Console

    from everlong.context import CompactionReport, ContextCompressor
    from everlong.model import Message


@click.command("demo")
@click.option(
    "--window", type=click.IntRange(min=2048), default=32_768, show_default=True, help="The model's window in tokens."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--web", is_flag=True, help="Open the inspector on the played session in the browser.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="With --web: the port.  [default: any free]")
@click.option("--browser/--no-browser", default=True, help="With --web: open the browser.  [default: browser]")
def demo_command(window: int, as_json: bool, web: bool, port: int, browser: bool) -> None:
    """Play a long agent session in a small window and show what compaction does to it."""
    session, facts = load_session()
    if web:
        from everlong.cli.demo_web import show_demo  # noqa: PLC0415 - keeps `everlong --help` quick

        show_demo(session, window, port=port, opens_browser=browser)
        return
    say(f"playing {len(session):,} messages of an agent session in a {window:,}-token window")
    played = play(session, window)
    known = [bool(still_known(fact, played.context)) for fact in facts]
    if as_json:
        print_values(_figures(played, facts, known))
        return
    _show(played, facts, known)


@dataclass(slots=True)
class Played:
    """The record of a played session."""

    window: int
    threshold: int
    sizes: list[int] = field(default_factory=list)
    """Tokens of the context before each request."""
    raw_sizes: list[int] = field(default_factory=list)
    """Tokens of the context before each request without compaction."""
    compactions: list[tuple[int, CompactionReport]] = field(default_factory=list)
    """The message at which each compaction happened, and its report."""
    context: list[Message] = field(default_factory=list)


def load_session() -> tuple[list[Message], list[dict[str, Any]]]:
    """Return the shipped session and the facts that it states."""
    folder = files("everlong.cli") / "demo_session"
    lines = (folder / "session.jsonl").read_text(encoding="utf-8").splitlines()
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    return [json.loads(line) for line in lines], facts


def play(session: Sequence[Message], window: int) -> Played:
    """Run a recorded session through the engine as an agent would."""
    engine = everlong.context.ContextCompressor(window)
    played = Played(window, engine.threshold_tokens)
    raw = 0
    for index, message in enumerate(session):
        if message["role"] == "assistant":  # an agent calls the model here, so the context must fit now
            _compact_if_due(engine, played, index)
            played.sizes.append(engine.counter.total(played.context))
            played.raw_sizes.append(raw)
        played.context.append(message)
        raw += engine.counter.count(message)
    return played


def _compact_if_due(engine: ContextCompressor, played: Played, index: int) -> None:
    if engine.should_compress_preflight(played.context):
        played.context = engine.compress(played.context)
        assert engine.last_report is not None  # noqa: S101 - compress always leaves one
        played.compactions.append((index, engine.last_report))


def still_known(fact: dict[str, Any], context: Sequence[Message]) -> str:
    """Return the words that still state a fact in a context; empty if none do."""
    texts = [
        text for m in context if not is_system(m) for text in (text_of(m), *(call.arguments for call in calls_of(m)))
    ]
    return next((needle for needle in fact["needle"] if any(needle in text for text in texts)), "")


def _figures(played: Played, facts: Sequence[dict[str, Any]], known: Sequence[bool]) -> dict[str, Any]:
    return {
        "window": played.window,
        "threshold": played.threshold,
        "requests": len(played.sizes),
        "largest_request": max(played.sizes),
        "largest_without": max(played.raw_sizes),
        "compactions": [{"message": index, **report.to_dict()} for index, report in played.compactions],
        "facts": [{**fact, "known": is_known} for fact, is_known in zip(facts, known, strict=True)],
    }


def _show(played: Played, facts: Sequence[dict[str, Any]], known: Sequence[bool]) -> None:
    from everlong.cli.picture import console  # noqa: PLC0415 - keeps `--help` quick

    out = console()
    _show_curve(played, out)
    _show_compactions(played, out)
    _show_facts(played, facts, known, out)


def _show_curve(played: Played, out: Console) -> None:
    from everlong.cli.picture import curve  # noqa: PLC0415 - keeps `--help` quick

    out.print(f"\n[bold]Context size before each of {len(played.sizes):,} requests[/]")
    width = min(100, out.width - 12)
    lines = curve(played.sizes, played.window, 10, width)
    for level, line in enumerate(lines):
        mark = f"{played.window:>8,}" if level == 0 else " " * 8
        if round((1 - played.threshold / played.window) * len(lines)) == level:
            mark = f"{played.threshold:>8,}"
        out.print(f"{mark} │[cyan]{line}[/]")
    out.print(" " * 9 + "└" + "─" * width)
    out.print(f"          largest request: {max(played.sizes):,} tokens")
    times = max(played.raw_sizes) / played.window
    out.print(f"          without compaction: {max(played.raw_sizes):,}, {times:.1f} times the window\n")


def _show_compactions(played: Played, out: Console) -> None:
    from rich.table import Table  # noqa: PLC0415 - keeps `--help` quick

    table = Table(title=f"{len(played.compactions)} compactions", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("at message", "tokens before", "after", "saved", "messages", "summary", "quality", "ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for index, report in played.compactions:
        table.add_row(
            f"{index:,}",
            f"{report.tokens_before:,}",
            f"{report.tokens_after:,}",
            f"{report.saved_share:.0%}",
            f"{report.messages_before} → {report.messages_after}",
            f"{report.summary_tokens:,}",
            f"{report.quality.score:.2f}" if report.quality else "–",
            f"{sum(report.stages.values()) * 1000:.0f}",
        )
    out.print(table)


def _show_facts(played: Played, facts: Sequence[dict[str, Any]], known: Sequence[bool], out: Console) -> None:
    from rich.markup import escape  # noqa: PLC0415 - keeps `--help` quick

    from everlong.cli.picture import fit  # noqa: PLC0415 - as above

    first = played.compactions[0][0] if played.compactions else len(played.context)
    early = [(fact, is_known) for fact, is_known in zip(facts, known, strict=True) if fact["message"] < first]
    later = [(fact, is_known) for fact, is_known in zip(facts, known, strict=True) if fact["message"] >= first]
    for title, group in (("from before the first compaction", early), ("stated later", later)):
        if not group:
            continue
        out.print(f"\n[bold]Facts {title}: {sum(k for _, k in group)} of {len(group)} still known at the end[/]")
        for fact, is_known in group:
            mark = "[green]✓[/]" if is_known else "[red]✗[/]"
            out.print(f" {mark} {escape(fit(fact['question'] + '  ' + fact['needle'][0], out.width - 4))}")
    out.print()
