"""``everlong inspect``: the tokens of a conversation by role, by tool and by message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.chosen_store import store_option, tenant_option
from everlong.cli.files import read_input
from everlong.cli.output import counted, json_option, print_values
from everlong.model import calls_of, find_groups

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.tokens import MessageCounter
    from everlong.wire import TranscriptConversation


@click.command("inspect")
@click.argument("file", required=False)
@click.option("--model", help="Count tokens as this model does.  [default: the one the file names]")
@click.option("--largest", type=click.IntRange(min=0), default=8, show_default=True, help="How many messages to list.")
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
    largest: int,
    web: bool,
    port: int,
    browser: bool,
    as_json: bool,
) -> None:
    """Show where the tokens of the conversation(s) in FILE go: by role, by tool, the largest messages.

    With --web, a page shows what the model gets, what was cut and why, and what it cost. FILE may then be a transcript
    or a store; without it, the page shows the configured store.
    """
    if file is not None and not (web and "://" in file):
        click.Path(exists=True, dir_okay=False, allow_dash=True).convert(file, None, click.get_current_context())
    if web:
        from everlong.cli.inspect_web import show_web  # noqa: PLC0415 - keeps `--help` quick

        show_web(file, port=port, opens_browser=browser, model=model)
        return
    if file is None:
        raise click.UsageError("give a FILE, or --web for a page over your store")
    from everlong.tokens import MessageCounter, counter_for  # noqa: PLC0415 - keeps `everlong --help` quick

    transcript = read_input(file)
    figures: list[dict[str, Any]] = []
    counters: dict[str | None, MessageCounter] = {}
    for conversation in transcript.conversations:
        chosen = model or conversation.model
        counter = counters.setdefault(chosen, MessageCounter(counter_for(chosen)))
        figures.append(inspect_conversation(conversation, counter, largest))
    if as_json:
        print_values({"format": transcript.kind, "conversations": figures})
        return
    for figure in figures:
        _print(figure)


def inspect_conversation(conversation: TranscriptConversation, counter: MessageCounter, largest: int) -> dict[str, Any]:
    """Return the figures of one conversation as JSON-ready data."""
    from everlong.cli.picture import headline  # noqa: PLC0415 - keeps `everlong --help` quick

    messages = conversation.messages
    counts = counter.counts(messages)
    roles: Counter[str] = Counter()
    for message, tokens in zip(messages, counts, strict=True):
        roles[message["role"]] += tokens
    schemas = counter.count_tools(conversation.tools)
    grouping = find_groups(messages)
    order = sorted(range(len(messages)), key=lambda place: -counts[place])[:largest]
    return {
        "id": conversation.id,
        "counter": counter.counter.name,
        "messages": len(messages),
        "tokens": sum(counts) + schemas,
        "tool_schemas": schemas,
        "by_role": dict(roles.most_common()),
        "by_tool": {
            name: {"calls": calls, "call_tokens": asked, "result_tokens": given}
            for name, (calls, asked, given) in _by_tool(messages, counts, counter).items()
        },
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


def _by_tool(messages: list[Message], counts: list[int], counter: MessageCounter) -> dict[str, tuple[int, int, int]]:
    """Return the number of calls, their tokens and the tokens of their results for each tool, largest first."""
    calls: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    given: Counter[str] = Counter()
    for group in find_groups(messages).groups:
        names = {}
        for call in calls_of(messages[group.start]):
            names[call.id] = call.name
            calls[call.name] += 1
            asked[call.name] += counter.count_text(call.arguments)
        for answer in group.answers:
            given[names.get(answer.call_id, "?")] += counts[answer.at]
    ranked = sorted(calls, key=lambda name: -(asked[name] + given[name]))
    return {name: (calls[name], asked[name], given[name]) for name in ranked}


def _print(figure: dict[str, Any]) -> None:
    from rich.text import Text  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.cli.picture import bars, console  # noqa: PLC0415 - as above

    out = console()
    name = f"{figure['id']}: " if figure["id"] else ""
    kind = "estimated" if figure["counter"] == "estimate" else f"exact: {figure['counter']}"
    messages, total = counted(figure["messages"], "message"), figure["tokens"]
    out.print(Text(f"{name}{total:,} tokens in {messages} ({kind})"), style="bold")
    roles = [(role, tokens, "") for role, tokens in figure["by_role"].items()]
    if figure["tool_schemas"]:
        roles.append(("tool schemas", figure["tool_schemas"], ""))
    bars(roles, total, out, "\nby role")
    tools = [
        (
            tool,
            entry["call_tokens"] + entry["result_tokens"],
            f"{counted(entry['calls'], 'call')}, results {entry['result_tokens']:,}",
        )
        for tool, entry in figure["by_tool"].items()
    ]
    if tools:
        bars(tools[:15], total, out, "\nby tool (calls and results)")
    largest = [
        (f"#{entry['index'] + 1} {entry['role']}", entry["tokens"], entry["text"]) for entry in figure["largest"]
    ]
    if largest:
        bars(largest, total, out, "\nlargest messages")
    for key, one, end in (("unanswered_calls", "call", "a result"), ("orphaned_results", "result", "a call")):
        if figure[key]:
            out.print(f"{counted(figure[key], one)} without {end}", style="yellow")
    out.print()
