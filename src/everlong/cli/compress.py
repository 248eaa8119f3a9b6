"""``everlong compress``: compacts the conversations of a file, with or without a model that writes the summary.

The result goes to stdout or a file, in the format of the input; the report goes to stderr, or to stdout as JSON.
`everlong.context` does the compaction.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from rich.text import Text

import everlong.context
from everlong import config, providers
from everlong.cli.files import read_input, write_output
from everlong.cli.output import counted, print_values, tracked
from everlong.cli.picture import fit, print_changes
from everlong.cli.screen import console
from everlong.cli.trust import tell_notices
from everlong.context.report import compare_lists
from everlong.errors import ConfigError, TargetUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from everlong.config import Settings
    from everlong.context import CompactionReport, ContextCompressor, Summarizer
    from everlong.context.explanation import ExplainedLine, Explanation, Fate, Verdict
    from everlong.model import Message
    from everlong.providers.auxiliary import AskModel
    from everlong.wire import Transcript, TranscriptConversation


@click.command("compress")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--context-length", type=click.IntRange(min=1), help="The model's window in tokens.  [default: 200000]")
@click.option("--threshold", help="Share of the window at which compaction starts (0.0 to 1.0, or auto).")
@click.option("--budget", type=click.IntRange(min=1), help="Make each conversation fit this many tokens.")
@click.option("--focus", help="A topic that the summary puts first.")
@click.option("--model", help="Count tokens as this model does.  [default: the one the file names]")
@click.option(
    "--summarizer", metavar="PROVIDER:MODEL", help="Let this model write the summary; auto for the configured one."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the conversation here, not to stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
@click.option("--diff", is_flag=True, help="Show what was kept, summarized and cleared instead of the conversation.")
@click.option("--explain", is_flag=True, help="Say for every line why it was kept or dropped, instead of the result.")
@click.option("--why", metavar="TEXT", help="Like --explain, only for lines that contain TEXT.")
def compress_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    file: str,
    context_length: int | None,
    threshold: str | None,
    budget: int | None,
    focus: str | None,
    model: str | None,
    summarizer: str | None,
    output: str | None,
    as_json: bool,
    diff: bool,
    explain: bool,
    why: str | None,
) -> None:
    """Compact the conversation(s) in FILE, or in standard input for "-".

    FILE is a message list or a request body in the OpenAI or Anthropic format, JSONL of messages or of conversations,
    or a Claude Code session log. The result has the same format; of a log, its messages. Nothing is sent anywhere
    unless --summarizer names a model.
    """
    transcript = read_input(file)
    explain = explain or why is not None
    make_engine = _make_engines(
        {} if threshold is None else {"compression.threshold": threshold}, context_length, summarizer
    )
    compacted, reports, explanations = _compact(transcript, make_engine, model, budget, focus, explain=explain)
    if why is not None:
        explanations = [explanation.about(why) for explanation in explanations]
    if output:
        write_output(output, transcript.render(compacted))
        click.echo(f"everlong: wrote {output}", err=True)
    if as_json:
        report = _json_report(transcript, reports, explanations, compacted if diff else [])
        print_values(report)
    else:
        if diff:
            _print_changes(transcript, compacted)
        if explain:
            _print_explanations(transcript, explanations)
        _print_reports(transcript, reports)
    if why is not None and not any(explanation.lines for explanation in explanations):
        click.echo(f"everlong: no line contains {why!r}", err=True)
    if not (output or diff or as_json or explain):
        sys.stdout.write(transcript.render(compacted))


def _compact(
    transcript: Transcript,
    make_engine: Callable[[str | None], ContextCompressor],
    model: str | None,
    budget: int | None,
    focus: str | None,
    *,
    explain: bool,
) -> tuple[list[list[Message]], list[CompactionReport], list[Explanation]]:
    results: list[list[Message]] = []
    reports: list[CompactionReport] = []
    explanations: list[Explanation] = []
    for conversation in tracked(transcript.conversations, "compacting"):
        engine = make_engine(model or conversation.model)
        engine.overhead_tokens = engine.counter.count_tools(conversation.tools)
        target = None if budget is None else _subtract_overhead(budget, engine.overhead_tokens)
        if explain:
            told = engine.explain(conversation.messages, focus_topic=focus, force=True, target_tokens=target)
            explanations.append(told)
            results.append(told.messages)
        else:
            made = engine.compress(conversation.messages, focus_topic=focus, force=True, target_tokens=target)
            results.append(made)
        assert engine.last_report is not None  # noqa: S101 - compress always leaves one
        reports.append(engine.last_report)
    return results, reports, explanations


def _make_engines(
    overrides: dict[str, Any], context_length: int | None, summarizer: str | None
) -> Callable[[str | None], ContextCompressor]:
    """Return a function that returns the engine for a model, the same one each time."""
    from everlong.caching.rules import prices_for  # noqa: PLC0415 - keeps `--help` quick
    from everlong.context.compressor import DEFAULT_CONTEXT_LENGTH  # noqa: PLC0415 - as above

    loaded = config.load_settings(overrides)
    tell_notices(loaded)
    settings = loaded.settings
    writer = None if summarizer is None else open_summarizer(summarizer, settings)
    window = context_length or DEFAULT_CONTEXT_LENGTH

    @cache
    def engine_for(model: str | None) -> everlong.context.ContextCompressor:
        engine = everlong.context.ContextCompressor(
            window, settings=settings.compression, summarizer=writer, model=model
        )
        engine.prices = prices_for(model or "")
        return engine

    return engine_for


def open_summarizer(name: str, settings: Settings, ask: AskModel | None = None) -> Summarizer:
    """Return the summarizer of a model that ``--summarizer`` names; of the configured one for ``auto``."""
    from everlong.providers.auxiliary import ask_plainly  # noqa: PLC0415 - most runs ask no model

    ask = ask or ask_plainly
    if name != "auto":
        return providers.ProviderSummarizer(providers.connect(name, settings), ask=ask)
    found = providers.summarizer_for(settings, ask=ask)
    if found is None:
        raise ConfigError(
            "--summarizer auto finds no model: no provider has a key, and auxiliary.compression names none; "
            "store a key with everlong auth set PROVIDER, or leave the option out",
            key="auxiliary.compression.provider",
        )
    return found


def _subtract_overhead(budget: int, overhead: int) -> int:
    if budget <= overhead:
        raise TargetUnreachable(budget, overhead + 1)
    return budget - overhead


def _json_report(
    transcript: Transcript,
    reports: list[CompactionReport],
    explanations: list[Explanation],
    compacted: list[list[Message]],
) -> dict[str, Any]:
    """Return the reports, with the fate of each message and line if that was asked for."""
    accounts: list[dict[str, Any]] = [{} for _ in reports]  # empty if not asked for
    for account, explanation in zip(accounts, explanations, strict=False):
        account["explanation"] = explanation.to_dict()
    for account, conversation, messages in zip(accounts, transcript.conversations, compacted, strict=False):
        account["changes"] = _listed_changes(conversation.messages, messages)
    return {
        "format": transcript.kind,
        "tokens_before": sum(report.tokens_before for report in reports),
        "tokens_after": sum(report.tokens_after for report in reports),
        "conversations": [
            {"id": conversation.id, **report.to_dict(), **account}
            for conversation, report, account in zip(transcript.conversations, reports, accounts, strict=True)
        ],
    }


def _listed_changes(before: list[Message], after: list[Message]) -> list[dict[str, Any]]:
    return [
        {"source": one.source, "fate": one.fate, "role": one.message["role"]} for one in compare_lists(before, after)
    ]


def _print_changes(transcript: Transcript, compacted: list[list[Message]]) -> None:
    for conversation, messages in zip(transcript.conversations, compacted, strict=True):
        print_changes(conversation.messages, messages)


def _print_explanations(transcript: Transcript, explanations: list[Explanation]) -> None:
    for conversation, explanation in zip(transcript.conversations, explanations, strict=True):
        if explanation.lines:
            print_explanation(explanation, _name(conversation, len(explanations)).removesuffix(": "))


def _print_reports(transcript: Transcript, reports: list[CompactionReport]) -> None:
    pairs = list(zip(transcript.conversations, reports, strict=True))
    for conversation, report in pairs[:20]:
        click.echo(f"everlong: {_name(conversation, len(pairs))}{describe(report)}", err=True)
    if len(pairs) > 20:
        before = sum(report.tokens_before for report in reports)
        after = sum(report.tokens_after for report in reports)
        click.echo(f"everlong: … {len(pairs) - 20} more; in all {before:,} → {after:,} tokens", err=True)
    if all(report.outcome == "unchanged" for report in reports):
        click.echo(
            "everlong: nothing to compact: all messages are protected. Use a smaller --context-length, or --budget N "
            "for an exact size",
            err=True,
        )


def _name(conversation: TranscriptConversation, total: int) -> str:
    return f"{conversation.id or 'conversation'}: " if total > 1 else ""


def describe(report: CompactionReport) -> str:
    """Return one line on a compaction: the outcome and the sizes before and after."""
    if report.outcome == "unchanged":
        return f"unchanged, {report.tokens_before:,} tokens in {counted(report.messages_before, 'message')}"
    line = (
        f"{report.outcome}, {report.tokens_before:,} → {report.tokens_after:,} tokens "
        f"({report.saved_share:.0%} saved), {report.messages_before:,} → {counted(report.messages_after, 'message')}"
    )
    if report.quality is not None:
        line += f", quality {report.quality.score:.2f}"
    if report.fallback_reason:
        line += f"; fell back to the extractive summary: {report.fallback_reason}"
    if report.rules_by_id:
        line += f"; no room for {counted(report.rules_by_id, 'older rule')}, named by id"
    return line


_STYLES: dict[Fate, str] = {
    "kept": "default",
    "quoted": "green",
    "told": "green",
    "partly": "cyan",
    "unclear": "yellow",
    "dropped": "red",
}
_UNBOUNDED = 1_000_000
_MOST_LOST = 4
_LEAST_REMARKABLE = 8
"""Least characters of a text for a remark that it also stands elsewhere."""

_LineVerdict: TypeAlias = "tuple[ExplainedLine, Verdict]"


def print_explanation(explanation: Explanation, name: str = "") -> None:
    """Print every line with its reason, then the number of lines for each fate."""
    out = console(highlight=False)
    if not out.is_terminal:  # grep needs whole lines
        out = console(highlight=False, width=_UNBOUNDED)
    if name:
        out.print(Text(f"== {name}", style="bold"))
    for index, lines in explanation.by_message():
        out.print(Text(f"message {index}, {lines[0].role}", style="bold"))
        for run in _group_runs(lines):
            _print_run(run, out)
    total = len(explanation.lines)
    figures = ", ".join(f"{number:,} {fate}" for fate, number in explanation.fates.items())
    out.print(Text(f"{total:,} line{'' if total == 1 else 's'}: {figures}", style="bold"))


def _group_runs(lines: Sequence[ExplainedLine]) -> Iterator[list[_LineVerdict]]:
    """Yield runs of neighbouring verdicts that say the same."""
    told = ((line, part) for line in lines for part in line.parts)
    for _, run in groupby(told, key=lambda pair: _heading(pair[1])):
        yield list(run)


def _heading(verdict: Verdict) -> tuple[Fate, str, str]:
    """Return what a run of lines shares: the fate, the reason, and the summary's words if they differ."""
    where = f"{verdict.section}: " if verdict.section and verdict.fate in ("quoted", "told") else ""
    item = verdict.item or ""
    says_more = item.removeprefix("- ") != verdict.text
    return verdict.fate, where + verdict.reason, item if says_more else ""


def _print_run(run: list[_LineVerdict], out: Console) -> None:
    fate, reason, item = _heading(run[0][1])
    out.print(Text(f"  {fate:<8} {reason}", style=_STYLES[fate]))
    for line, verdict in run:
        call = f"{line.call}: " if line.call and not verdict.text.startswith(f"{line.call}(") else ""
        row, remark = f"    {line.line:>5} │ {call}{_plain(verdict.text)}", _remark(verdict)
        shown = fit(row, max(out.width // 2, out.width - len(remark)))
        out.print(Text(fit(shown + remark, out.width), style="dim" if fate == "dropped" else ""))
    if item:
        out.print(Text(fit(f"          = {_plain(item)}", out.width), style=_STYLES[fate]))


def _remark(verdict: Verdict) -> str:
    """Return where else the same words stand, or what is lost with them."""
    if verdict.also is not None and len(verdict.text) >= _LEAST_REMARKABLE:
        return f"  (also in message {verdict.also} of the result)"
    lost = [name for name in verdict.lost if len(name) > 2 or not name.isdigit()]  # a line number is no loss
    if not lost:
        return ""
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    return f"  (lost: {', '.join(lost[:_MOST_LOST])}{more})"


def _plain(text: str) -> str:
    return " ".join(text.split())
