"""``everlong inspect``: the tokens of a conversation by role, by tool, by file and by message."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from everlong.cli.chosen_store import store_option, tenant_option
from everlong.cli.output import counted, json_option, print_values, read_input
from everlong.cli.picture import bars, console, headline
from everlong.inspector.pages.now import path_of, share_tokens
from everlong.model import find_groups
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.wire import TranscriptConversation

_LARGEST = 8
"""Messages that are listed."""


@click.command("inspect")
@click.argument("file", required=False)
@click.option("--model", help="Count tokens as this model does.  [default: the one the file names]")
@click.option("--web", is_flag=True, help="Open the inspector in the browser, over FILE, a store, or your own store.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="With --web: the port.  [default: any free one]"
)
@click.option("--browser/--no-browser", default=True, help="With --web: open the browser.  [default: browser]")
@json_option
@store_option
@tenant_option
def inspect_command(
    file: str | None,
    model: str | None,
    web: bool,
    port: int,
    browser: bool,
    as_json: bool,
) -> None:
    """Show where the tokens of the conversation(s) in FILE go: by role, tool and file, the largest messages.

    With --web, a page shows what the model gets, what was cut and why, and what it cost. FILE may then be a transcript
    or a store; without it, the page shows the configured store.
    """
    if file is not None and not (web and "://" in file):
        if not web and file != "-" and not Path(file).exists():
            raise click.UsageError(f"there is no file {file!r}; for a stored conversation: everlong inspect --web")
        click.Path(exists=True, dir_okay=False, allow_dash=True).convert(file, None, click.get_current_context())
    if web:
        from everlong.cli.inspect_web import show_web  # noqa: PLC0415 - keeps `--help` quick

        show_web(file, port=port, opens_browser=browser, model=model)
        return
    if file is None:
        raise click.UsageError("give a FILE, or --web for a page over your store")
    transcript = read_input(file)
    figures: list[dict[str, Any]] = []
    counters: dict[str | None, MessageCounter] = {}
    for conversation in transcript.conversations:
        chosen = model or conversation.model
        counter = counters.setdefault(chosen, MessageCounter(counter_for(chosen)))
        figures.append(inspect_conversation(conversation, counter))
    if as_json:
        print_values({"format": transcript.kind, "conversations": figures})
        return
    for figure in figures:
        _print(figure)
    if len(figures) > 1:
        tokens, messages = (sum(figure[key] for figure in figures) for key in ("tokens", "messages"))
        console().print(f"{len(figures)} conversations: {tokens:,} tokens in {messages:,} messages", style="bold")


def inspect_conversation(conversation: TranscriptConversation, counter: MessageCounter) -> dict[str, Any]:
    """Return the figures of one conversation as JSON-ready data."""
    messages = conversation.messages
    counts = counter.counts(messages)
    roles: Counter[str] = Counter()
    for message, tokens in zip(messages, counts, strict=True):
        roles[message["role"]] += tokens
    schemas = counter.count_tools(conversation.tools)
    grouping = find_groups(messages)
    order = sorted(range(len(messages)), key=lambda place: -counts[place])[:_LARGEST]
    return {
        "id": conversation.id,
        "counter": counter.counter.name,
        "messages": len(messages),
        "tokens": sum(counts) + schemas,
        "tool_schemas": schemas,
        "by_role": dict(roles.most_common()),
        "by_tool": {one.name: one._asdict() for one in share_tokens(messages, counts, counter, lambda call: call.name)},
        "by_file": {one.name: one._asdict() for one in share_tokens(messages, counts, counter, path_of)},
        "unanswered_calls": sum(len(group.missing) for group in grouping.groups),
        "orphaned_results": len(grouping.orphans),
        "largest": [
            {
                "index": place,
                "role": messages[place]["role"],
                "tokens": counts[place],
                "text": headline(messages[place])[:120],
            }
            for place in order
        ],
    }


def _print(figure: dict[str, Any]) -> None:
    out = console()
    name = f"{figure['id']}: " if figure["id"] else ""
    kind = "estimated" if figure["counter"] == "estimate" else f"exact: {figure['counter']}"
    messages, total = counted(figure["messages"], "message"), figure["tokens"]
    out.print(Text(f"{name}{total:,} tokens in {messages} ({kind})"), style="bold")
    roles = [(role, tokens, "") for role, tokens in figure["by_role"].items()]
    if figure["tool_schemas"]:
        roles.append(("tool schemas", figure["tool_schemas"], ""))
    bars(roles, total, out, "\nby role")
    for key, title in (("by_tool", "\nby tool (calls and results)"), ("by_file", "\nby file (calls and results)")):
        rows = [
            (
                name if len(name) <= 36 else f"…{name[-35:]}",  # a path says at its end which file it is
                one["call_tokens"] + one["result_tokens"],
                f"{counted(one['calls'], 'call')}, results {one['result_tokens']:,}",
            )
            for name, one in figure[key].items()
        ]
        if rows:
            bars(rows[:15], total, out, title)
    largest = [
        (f"#{entry['index'] + 1} {entry['role']}", entry["tokens"], entry["text"]) for entry in figure["largest"]
    ]
    if largest:
        bars(largest, total, out, "\nlargest messages")
    for key, one, end in (("unanswered_calls", "call", "a result"), ("orphaned_results", "result", "a call")):
        if figure[key]:
            out.print(f"{counted(figure[key], one)} without {end}", style="yellow")
    out.print()
