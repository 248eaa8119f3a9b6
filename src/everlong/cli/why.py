"""``everlong why WORDS``: where something was said, whether the model still gets it, and how to get it back.

`everlong.store.whereabouts` finds the answer; this module puts it into words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from everlong.cli.chosen_store import (
    all_tenants_option,
    chosen_options,
    find_conversation,
    index_pending,
    open_chosen_store,
    other_tenants,
    print_json,
    run_for_each_tenant,
    store_option,
    tenant_option,
)
from everlong.cli.output import counted, fold, json_option, say
from everlong.store.transcripts import one_line, plain
from everlong.store.transcripts.parts import moment
from everlong.store.whereabouts import count_forgotten, find_whereabouts

if TYPE_CHECKING:
    from everlong.store.whereabouts import Whereabouts

_INDEX_SECONDS = 2.0
_EMPTY = "no conversations yet; `everlong sessions import ~/.claude/projects` brings those of Claude Code in"
_STATES = {
    "in context": "in context: the model gets it word for word",
    "summarized": "summarized: the summary in its place does not say it in these words",
    "ended": "was in context when the conversation ended: its last request had it word for word",
    "left out": "left out: its client no longer sends it",
    "taken back": "taken back: the conversation does not go on with it, and the store still has it",
    "outside": "in the store, and in no conversation: it was stored without one, or taken back",
    "broken off": "broken off: the conversation does not go on with this reply",
    "forgotten": "forgotten: its words were removed from the store for good, and nothing brings them back",
}


@click.command("why")
@click.argument("words", nargs=-1, required=True)
@click.option("--session", metavar="ID|TITLE", help="Only in this conversation.")
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="The most places.")
@json_option
@store_option
@tenant_option
@all_tenants_option
@run_for_each_tenant
def why_command(words: tuple[str, ...], session: str | None, limit: int, as_json: bool) -> None:
    """Show where WORDS were said, what has become of them since, and how to get them back.

    In place of words, the id of a message will do.
    """
    asked = " ".join(words)
    with open_chosen_store() as store:
        index_pending(store, _INDEX_SECONDS)
        named = None if session is None else find_conversation(store, session).id
        found = find_whereabouts(store, asked, session=named, limit=limit)
        forgotten, elsewhere = (0, "") if found else (count_forgotten(store), other_tenants(store))
        is_empty = not found and not store.conversations.count()
        named_in = {one.conversation for one in found if one.conversation}
        ended = {name for name in named_in if store.conversations.get(name).ended is not None}
    if as_json:
        print_json({"words": asked, "places": [one.to_dict() for one in found]})
        return
    for number, one in enumerate(found, 1):
        click.echo("\n".join(_describe(number, one, asked, has_ended=one.conversation in ended)))
    if len(found) == limit < 100:
        say(f"{counted(limit, 'place')} shown; --limit {min(100, limit * 5)} shows more")
    if not found:
        nothing = _EMPTY if is_empty else _not_found(asked, forgotten, is_narrow=session is not None)
        say("; ".join(filter(None, (nothing, elsewhere))))


def _not_found(asked: str, forgotten: int, *, is_narrow: bool) -> str:
    """Return what to try if nothing was found."""
    tries = [
        "fewer or other words",
        f'`everlong sessions{chosen_options()} search --substring "{asked}"` for parts of words',
    ]
    if is_narrow:
        tries.insert(0, "all conversations, without --session")
    lines = [f"nothing was found for {asked!r}; try {', or '.join(tries)}"]
    if forgotten:
        lines.append(f"{counted(forgotten, 'message')} in this store were forgotten; no search finds their words")
    return "; ".join(lines)


def _describe(number: int, one: Whereabouts, asked: str, *, has_ended: bool) -> Iterator[str]:
    name = f"{one_line(one.title)} ({one.conversation})" if one.title else one.conversation
    where = f"{name}, message {one.turn}" if one.conversation else "in no conversation"
    lines = [f"{number:>3}  {where}: {one_line(one.role)}, {moment(one.at)}, id {one.id}"]
    if one.text:
        lines.append(f"     said   {plain(one.text)}")
    for line in (*lines, f"     now    {_now(one, has_ended=has_ended)}"):
        yield fold(line, sys.stdout, " " * 12)
    if one.state != "forgotten":
        yield f"     back   {_way_back(one, asked)}"


def _now(one: Whereabouts, *, has_ended: bool) -> str:
    """Return what has become of a message."""
    if one.state in _STATES:
        return _STATES["ended" if has_ended and one.state == "in context" else one.state]
    if one.state == "in summary":
        return f"in the summary: {plain(one.now or '')}"
    became = "shortened to a stub" if one.state == "stub" else one.state
    return f"{became}, {'and still says it' if one.now else 'without these words'}"


def _way_back(one: Whereabouts, asked: str) -> str:
    """Return the command that shows a message."""
    if one.conversation is None:
        return f'everlong sessions{chosen_options()} search "{asked}" shows the words around it'
    return f"everlong sessions{chosen_options()} show {one.conversation} --message {one.turn}"
