"""``everlong sessions show``: one conversation to read, long messages cut, any of them in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.screen import show_in_pager, styled
from everlong.cli.sessions_common import command, counted, found, found_part, json_option, opened, put_json, say

if TYPE_CHECKING:
    from everlong.store import Conversation, Session, Store
    from everlong.store.conversations import Line, Mark

PAGE_CHARS = 8_000
_COLOURS = {"user": "blue", "assistant": "green", "tool": "yellow"}


@command("show")
@click.argument("session")
@click.option(
    "--turn", type=click.IntRange(min=1), help="Only this message, whole, by the number that show and search give."
)
@click.option(
    "--around", type=click.IntRange(min=0), default=0, help="With --turn: also so many messages on each side."
)
@click.option("--page", type=click.IntRange(min=1), help="With --turn: only this page of a long message.")
@click.option(
    "--chars",
    type=click.IntRange(min=0),
    default=2_000,
    show_default=True,
    help="Characters shown of each text; 0 for all.",
)
@click.option("--parts", is_flag=True, help="Only the part that SESSION names, with numbers of its own.")
@json_option
def show(session: str, turn: int | None, around: int, page: int | None, chars: int, parts: bool, as_json: bool) -> None:
    """Show a conversation from its first word, named by the id of any of its parts, the beginning of one, or its title.

    Compactions are marked at their places, and replies that broke off say so.
    """
    if turn is None and (around or page):
        raise click.UsageError("--around and --page need --turn")
    with opened() as store:
        one = found_part(store, session) if parts else found(store, session)
        if turn is not None:
            _show_turn(store, one, turn, around, page, chars, as_json=as_json)
        elif as_json:
            put_json(_as_json(store, one))
        else:
            show_in_pager(_printed(store, one, chars))


def _lines(store: Store, one: Conversation | Session) -> Iterator[Line | Mark]:
    from everlong.store.transcripts.write import lines_of  # noqa: PLC0415 - keeps `everlong --help` quick

    return lines_of(store, one)


def _as_json(store: Store, one: Conversation | Session) -> dict[str, Any]:
    from everlong.store import Conversation  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.conversations import Mark  # noqa: PLC0415 - as above
    from everlong.store.transcripts.write import prompt_of  # noqa: PLC0415 - as above

    messages: list[dict[str, Any]] = []
    compactions: list[dict[str, Any]] = []
    for line in _lines(store, one):
        if isinstance(line, Mark):
            compactions.append({"before_message": len(messages), **line.to_dict()})
        else:
            messages.append(_plain(line))
    if isinstance(one, Conversation):
        one, parts = _paid(store, one), list(one.parts)
    else:
        parts = [member.id for member in store.sessions.lineage(one.id)]
    facts = one.to_dict() | {"system_prompt": prompt_of(store, one)}
    return {"session": facts, "parts": parts, "messages": messages, "compactions": compactions}


def _paid(store: Store, one: Conversation) -> Conversation:
    """Return a conversation with all calls that were paid for, at the prices that `everlong usage` tells."""
    from dataclasses import replace  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.agent.accounting import account  # noqa: PLC0415 - as above
    from everlong.config import load_settings  # noqa: PLC0415 - as above

    total = account(store, load_settings().settings, session=one.parts[0]).total
    if not total.calls:
        return one
    return replace(
        one,
        input_tokens=total.tokens.plain,
        output_tokens=total.tokens.output,
        cache_read_tokens=total.tokens.cache_read,
        cache_write_tokens=total.tokens.written,
        api_calls=total.calls,
        cost=float(total.cost),
    )


def _plain(line: Line) -> dict[str, Any]:
    entry = line.entry
    broken = {} if line.status is None else {"status": line.status, "error": line.error}
    return {
        "turn": line.turn,
        "node": entry.id.hex() if entry.id else None,
        "at": entry.ts,
        "forgotten": entry.forgotten,
        "message": entry.message,
        **broken,
    }


def _printed(store: Store, one: Conversation | Session, chars: int) -> Iterator[str]:
    from everlong.store import Conversation  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.conversations import Mark  # noqa: PLC0415 - as above
    from everlong.store.search.document import called_tools  # noqa: PLC0415 - as above
    from everlong.store.transcripts.facts import compaction_line, facts_of, name_of  # noqa: PLC0415 - as above
    from everlong.store.transcripts.write import prompt_of  # noqa: PLC0415 - as above

    yield styled(name_of(one), bold=True) + "\n"
    for name, value in facts_of(_paid(store, one) if isinstance(one, Conversation) else one):
        yield f"{name + ':':<11} {value}\n"
    if not isinstance(one, Conversation):
        children = [member.id for member in store.sessions.lineage(one.id) if member.parent == one.id]
        if children:
            yield f"{'goes on in:':<11} {', '.join(children)}\n"
    prompt = prompt_of(store, one)
    if prompt:
        shown = _cut(prompt, min(chars, 400) if chars else 0, "")
        yield from ("\n", styled("system", bold=True), "\n", shown, "\n")
    tools: dict[str, str] = {}
    for line in _lines(store, one):
        if isinstance(line, Mark):
            yield "\n" + styled(f"── {compaction_line(line)} ──", dim=True) + "\n"
            continue
        tools |= called_tools(line.entry.message)
        yield from _message(one, line, chars, tools)


def _message(one: Conversation | Session, line: Line, chars: int, tools: dict[str, str]) -> Iterator[str]:
    from everlong.store.transcripts import one_line, pieces_of  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import broken_words, moment  # noqa: PLC0415 - as above

    entry = line.entry
    role = one_line(str(entry.message.get("role")))
    number = "" if line.turn is None else f"{line.turn} "
    who = styled(f"{number}{role}", bold=True, fg=_COLOURS.get(role))
    broken = f"  {styled(broken_words(line), fg='red')}" if line.status else ""
    yield f"\n{who}  {styled(moment(entry.ts), dim=True)}{broken}\n"
    rest = f"; everlong sessions show {one.id} --turn {line.turn}" if line.turn is not None else ""
    for piece in pieces_of(entry.message, tools):
        label = one_line(piece.label)
        if piece.kind == "image":
            yield "[image]\n"
            continue
        if piece.kind != "text":
            name = {"call": f"→ {label}", "result": f"← {label}"}.get(piece.kind, label)
            yield styled(name, fg="cyan") + "\n"
        yield _cut(piece.body, chars, rest) + "\n"


def _cut(text: str, chars: int, rest: str) -> str:
    """The beginning of a text, safe for a terminal, and how to see the rest."""
    from everlong.store.transcripts import plain  # noqa: PLC0415 - keeps `everlong --help` quick

    if not chars or len(text) <= chars + 200:  # to cut for less than a line would only annoy
        return plain(text)
    more = f"… {len(text) - chars:,} more characters{rest}"
    return plain(text[:chars]) + "\n" + styled(more, dim=True)


def _show_turn(
    store: Store, one: Conversation | Session, turn: int, around: int, page: int | None, chars: int, *, as_json: bool
) -> None:
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.conversations import Line  # noqa: PLC0415 - as above
    from everlong.store.search.document import called_tools  # noqa: PLC0415 - as above

    listed = [line for line in _lines(store, one) if isinstance(line, Line)]
    place = next((at for at, line in enumerate(listed) if (line.turn or 0) >= turn), None)
    if place is None:
        last = max((line.turn or 0 for line in listed), default=0)
        raise NotStored(f"session {one.id} has no turn {turn}; its last is {last}")
    if page is not None:
        _show_page(store, listed[place], page, as_json=as_json)
        return
    end = place + 1
    while end < len(listed) and listed[end].status is not None:  # replies to it that broke off have its number
        end += 1
    window = listed[max(0, place - around) : end + around]
    if as_json:
        shown = [_plain(line) for line in window]
        put_json(shown if around or len(shown) > 1 else shown[0])
        return
    tools: dict[str, str] = {}
    for line in listed[: end + around]:
        tools |= called_tools(line.entry.message)
    sizes = [0 if any(line is meant for meant in listed[place:end]) else chars for line in window]
    show_in_pager(text for line, size in zip(window, sizes, strict=True) for text in _message(one, line, size, tools))


def _show_page(store: Store, line: Line, page: int, *, as_json: bool) -> None:
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts import plain  # noqa: PLC0415 - as above

    assert line.entry.id is not None  # noqa: S101 - only a message with an id has a turn
    read = store.read(line.entry.id, page - 1, PAGE_CHARS)
    if page > read.pages:
        raise NotStored(f"the message has {counted(read.pages, 'page')}, so there is no page {page}")
    if as_json:
        put_json({**read._asdict(), "page": page, "turn": line.turn})
        return
    click.echo(plain(read.text))
    say(f"page {page} of {counted(read.pages, 'page')}, {counted(read.chars, 'character')} in all")
