"""``everlong compress``: compacts the conversations of a file, with or without a model that writes the summary.

The result goes to stdout or a file, in the format of the input; the report goes to stderr, or to stdout as JSON.
`everlong.context` does the compaction.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from everlong import config, providers
from everlong.caching.rules import prices_for
from everlong.cli.output import counted, print_values, read_input, say, track, write_output
from everlong.cli.picture import print_changes
from everlong.cli.trust import tell_notices
from everlong.context import ContextCompressor
from everlong.context.compressor import DEFAULT_CONTEXT_LENGTH
from everlong.context.literals import is_summary, summary_body
from everlong.context.report import compare_lists
from everlong.errors import ConfigError, TargetUnreachable

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import CompactionReport, Summarizer
    from everlong.model import Message
    from everlong.wire import Transcript


@click.command("compress")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--context-length", type=click.IntRange(min=1), help="The model's window in tokens.  [default: 200000]")
@click.option("--budget", type=click.IntRange(min=1), help="Make each conversation fit this many tokens.")
@click.option("--focus", help="A topic that the summary puts first.")
@click.option("--model", help="Count tokens as this model does.  [default: the one the file names]")
@click.option(
    "--summarizer", metavar="PROVIDER:MODEL", help="Let this model write the summary; auto for the configured one."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the conversation here, not to stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
@click.option("--diff", is_flag=True, help="Show what was kept, summarized and cleared instead of the conversation.")
def compress_command(file: str, as_json: bool, **given: Any) -> None:
    """Compact the conversation(s) in FILE, or in standard input for "-".

    FILE is a message list or a request body in the OpenAI or Anthropic format, JSONL of messages or of conversations,
    or a Claude Code session log. The result has the same format; of a log, its messages. Nothing is sent anywhere
    unless --summarizer names a model.
    """
    transcript = read_input(file)
    compacted, reports = _compact(transcript, given)
    output, diff = given["output"], given["diff"]
    if output:
        write_output(output, transcript.render(compacted))
        say(f"wrote {output}")
    if as_json:
        print_values(_json_report(transcript, reports, compacted if diff else []))
    else:
        if diff:
            _print_changes(transcript, compacted)
        _print_reports(transcript, reports)
    if not (output or diff or as_json):
        sys.stdout.write(transcript.render(compacted))


def _compact(transcript: Transcript, given: dict[str, Any]) -> tuple[list[list[Message]], list[CompactionReport]]:
    loaded = config.load_settings()
    tell_notices(loaded)
    settings, budget = loaded.settings, given["budget"]
    writer = None if given["summarizer"] is None else _open_summarizer(given["summarizer"], settings)
    engines: dict[str | None, ContextCompressor] = {}
    results: list[list[Message]] = []
    reports: list[CompactionReport] = []
    for conversation in track(transcript.conversations, "compacting"):
        model = given["model"] or conversation.model
        if model not in engines:
            window = given["context_length"] or DEFAULT_CONTEXT_LENGTH
            engines[model] = ContextCompressor(window, settings=settings.compression, summarizer=writer, model=model)
            engines[model].prices = prices_for(model or "")
        engine = engines[model]
        engine.overhead_tokens = engine.counter.count_tools(conversation.tools)
        if budget is not None and budget <= engine.overhead_tokens:
            raise TargetUnreachable(budget, engine.overhead_tokens + 1)
        target = None if budget is None else budget - engine.overhead_tokens
        focus = given["focus"]
        results.append(engine.compress(conversation.messages, focus_topic=focus, force=True, target_tokens=target))
        assert engine.last_report is not None  # noqa: S101 - compress always leaves one
        # As `inspect` counts the file: with the schemas of its tools, and without repairs.
        before = sum(engine.counter.counts(conversation.messages)) + engine.overhead_tokens
        after = engine.last_report.tokens_after + engine.overhead_tokens
        reports.append(replace(engine.last_report, tokens_before=before, tokens_after=after))
    return results, reports


def _open_summarizer(name: str, settings: Settings) -> Summarizer:
    """Return the summarizer of a model that ``--summarizer`` names; of the configured one for ``auto``."""
    from everlong.providers.auxiliary import ask_plainly  # noqa: PLC0415 - most runs ask no model

    if name != "auto":
        return providers.ProviderSummarizer(providers.connect(name, settings), ask=ask_plainly)
    found = providers.summarizer_for(settings, ask=ask_plainly)
    if found is None:
        raise ConfigError(
            "--summarizer auto finds no model: no provider has a key, and auxiliary.compression names none; "
            "set a variable such as ANTHROPIC_API_KEY, or leave the option out",
            key="auxiliary.compression.provider",
        )
    return found


def _json_report(
    transcript: Transcript, reports: list[CompactionReport], compacted: list[list[Message]]
) -> dict[str, Any]:
    """Return the reports, with the fate of each message if there are compacted lists."""
    accounts: list[dict[str, Any]] = [{} for _ in reports]
    for account, conversation, messages in zip(accounts, transcript.conversations, compacted, strict=False):
        account["changes"] = [
            {"source": one.source, "fate": one.fate, "role": one.message["role"]}
            for one in compare_lists(conversation.messages, messages)
        ]
    return {
        "format": transcript.kind,
        "tokens_before": sum(report.tokens_before for report in reports),
        "tokens_after": sum(report.tokens_after for report in reports),
        "conversations": [
            {"id": conversation.id, **report.to_dict(), **account}
            for conversation, report, account in zip(transcript.conversations, reports, accounts, strict=True)
        ],
    }


def _print_changes(transcript: Transcript, compacted: list[list[Message]]) -> None:
    for conversation, messages in zip(transcript.conversations, compacted, strict=True):
        print_changes(conversation.messages, messages)
        for message in filter(is_summary, messages):
            click.echo(f"\n{summary_body(message)}\n")


def _print_reports(transcript: Transcript, reports: list[CompactionReport]) -> None:
    pairs = list(zip(transcript.conversations, reports, strict=True))
    for conversation, report in pairs[:20]:
        name = f"{conversation.id or 'conversation'}: " if len(pairs) > 1 else ""
        say(f"{name}{describe(report)}")
    if len(pairs) > 20:
        before = sum(report.tokens_before for report in reports)
        after = sum(report.tokens_after for report in reports)
        say(f"… {len(pairs) - 20} more; in all {before:,} → {after:,} tokens")
    if all(report.outcome == "unchanged" for report in reports):
        say(
            "nothing to compact: all messages are protected. Use a smaller --context-length, or --budget N "
            "for an exact size"
        )


def describe(report: CompactionReport) -> str:
    """Return one line on a compaction: the outcome and the sizes before and after."""
    if report.outcome == "unchanged":
        return f"unchanged, {report.tokens_before:,} tokens in {counted(report.messages_before, 'message')}"
    line = (
        f"{report.outcome}, {report.tokens_before:,} → {report.tokens_after:,} tokens "
        f"({report.saved_share:.0%} saved), {report.messages_before:,} → {counted(report.messages_after, 'message')}"
    )
    if report.quality is not None:
        line += f"; {report.quality.in_words(is_stored=False)}"
    if report.fallback_reason:
        line += f"; built-in rules wrote the summary: {report.fallback_reason}"
    if report.rules_by_id:
        line += f"; no room for {counted(report.rules_by_id, 'older rule')}, named by id"
    return line
