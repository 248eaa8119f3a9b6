"""``everlong sessions show``: one session to read, long messages cut, any of them in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.sessions_common import command, counted, found, json_option, opened, put_json, say

if TYPE_CHECKING:
    from everlong.store import Session, Store
    from everlong.store.paths import Entry

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
@json_option
def show(session: str, turn: int | None, around: int, page: int | None, chars: int, as_json: bool) -> None:
    """Show SESSION, named by its id, the beginning of its id, or its title."""
    if turn is None and (around or page):
        raise click.UsageError("--around and --page need --turn")
    with opened() as store:
        one = found(store, session)
        if turn is not None:
            _show_turn(store, one, turn, around, page, chars, as_json=as_json)
        elif as_json:
            put_json(_facts(store, one) | {"messages": [_plain(one, entry) for entry in _entries(store, one)]})
        else:
            click.echo_via_pager(_lines(store, one, chars))


def _entries(store: Store, one: Session) -> Iterator[Entry]:
    from everlong.store.stretch import entries_of  # noqa: PLC0415 - keeps `everlong --help` quick

    return entries_of(store, one)


def _facts(store: Store, one: Session) -> dict[str, Any]:
    line = store.sessions.lineage(one.id)
    return {
        "session": one.to_dict() | {"system_prompt": store.sessions.system_prompt(one.id)},
        "lineage": [member.id for member in line],
    }


def _number(one: Session, entry: Entry) -> int | None:
    return None if entry.id is None else entry.depth - one.from_depth


def _plain(one: Session, entry: Entry) -> dict[str, Any]:
    return {
        "turn": _number(one, entry),
        "node": entry.id.hex() if entry.id else None,
        "at": entry.ts,
        "forgotten": entry.forgotten,
        "message": entry.message,
    }


def _lines(store: Store, one: Session, chars: int) -> Iterator[str]:
    from everlong.store.search.document import called_tools  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import facts_of, name_of  # noqa: PLC0415 - as above

    yield click.style(name_of(one), bold=True) + "\n"
    for name, value in facts_of(one):
        yield f"{name + ':':<11}{value}\n"
    children = [member.id for member in store.sessions.lineage(one.id) if member.parent == one.id]
    if children:
        yield f"{'goes on in:':<11} {', '.join(children)}\n"
    prompt = store.sessions.system_prompt(one.id)
    if prompt:
        yield from (
            "\n",
            click.style("system", bold=True),
            "\n",
            _cut(prompt, min(chars, 400) if chars else 0, ""),
            "\n",
        )
    tools: dict[str, str] = {}
    for entry in _entries(store, one):
        tools |= called_tools(entry.message)
        yield from _message(one, entry, chars, tools)


def _message(one: Session, entry: Entry, chars: int, tools: dict[str, str]) -> Iterator[str]:
    from everlong.store.transcripts import one_line, pieces_of  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    role = one_line(str(entry.message.get("role")))
    turn = _number(one, entry)
    number = "" if turn is None else f"{turn} "
    who = click.style(f"{number}{role}", bold=True, fg=_COLOURS.get(role))
    yield f"\n{who}  {click.style(moment(entry.ts), dim=True)}\n"
    rest = f"; everlong sessions show {one.id} --turn {turn}" if turn is not None else ""
    for piece in pieces_of(entry.message, tools):
        label = one_line(piece.label)
        if piece.kind == "image":
            yield "[image]\n"
            continue
        if piece.kind != "text":
            name = {"call": f"→ {label}", "result": f"← {label}"}.get(piece.kind, label)
            yield click.style(name, fg="cyan") + "\n"
        yield _cut(piece.body, chars, rest) + "\n"


def _cut(text: str, chars: int, rest: str) -> str:
    """The beginning of a text, safe for a terminal, and how to see the rest."""
    from everlong.store.transcripts import plain  # noqa: PLC0415 - keeps `everlong --help` quick

    if not chars or len(text) <= chars + 200:  # to cut for less than a line would only annoy
        return plain(text)
    more = f"… {len(text) - chars:,} more characters{rest}"
    return plain(text[:chars]) + "\n" + click.style(more, dim=True)


def _show_turn(
    store: Store, one: Session, turn: int, around: int, page: int | None, chars: int, *, as_json: bool
) -> None:
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.search.document import called_tools  # noqa: PLC0415 - as above

    listed = list(_entries(store, one))
    place = next((at for at, entry in enumerate(listed) if (_number(one, entry) or 0) >= turn), None)
    if place is None:
        last = max((_number(one, entry) or 0 for entry in listed), default=0)
        raise NotStored(f"session {one.id} has no turn {turn}; its last is {last}")
    if page is not None:
        _show_page(store, one, listed[place], page, as_json=as_json)
        return
    window = listed[max(0, place - around) : place + around + 1]
    if as_json:
        shown = [_plain(one, entry) for entry in window]
        put_json(shown if around else shown[0])
        return
    tools: dict[str, str] = {}
    for entry in listed[: place + around + 1]:
        tools |= called_tools(entry.message)
    sizes = [0 if entry is listed[place] else chars for entry in window]
    click.echo_via_pager(
        line for entry, size in zip(window, sizes, strict=True) for line in _message(one, entry, size, tools)
    )


def _show_page(store: Store, one: Session, entry: Entry, page: int, *, as_json: bool) -> None:
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts import plain  # noqa: PLC0415 - as above

    assert entry.id is not None  # noqa: S101 - only a message with an id has a turn
    read = store.read(entry.id, page - 1, PAGE_CHARS)
    if page > read.pages:
        raise NotStored(f"the message has {counted(read.pages, 'page')}, so there is no page {page}")
    if as_json:
        put_json({**read._asdict(), "page": page, "turn": _number(one, entry)})
        return
    click.echo(plain(read.text))
    say(f"page {page} of {counted(read.pages, 'page')}, {counted(read.chars, 'character')} in all")
