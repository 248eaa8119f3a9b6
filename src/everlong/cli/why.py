"""``everlong why WORDS``: where something was said, what has become of it, and how to get it back.

`everlong.store.whereabouts` finds the answer; this module puts it into words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from everlong.cli.chosen_store import (
    all_tenants_option,
    chosen_options,
    chosen_tenant,
    find_conversation,
    index_pending,
    open_chosen_store,
    other_tenants,
    print_json,
    run_for_each_tenant,
    store_option,
    tenant_option,
)
from everlong.cli.output import counted, json_option, say
from everlong.cli.screen import styled
from everlong.store.transcripts import one_line, plain
from everlong.store.transcripts.parts import moment
from everlong.store.whereabouts import count_forgotten, find_whereabouts

if TYPE_CHECKING:
    from everlong.store.whereabouts import Change, Whereabouts

_INDEX_SECONDS = 2.0
_BECAME = {
    "stub": "shortened to a stub",
    "shortened": "shortened",
    "cleared": "cleared",
    "summarized": "summarized away",
}
_EMPTY = "no conversations yet; `everlong sessions import ~/.claude/projects` brings those of Claude Code in"
_STATES = {
    "in context": "in context: the model gets it word for word",
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
    title = f"{one_line(one.title)} " if one.title else ""
    where = f"{title}({one.conversation}), message {one.turn}" if one.conversation else "(in no conversation)"
    role = styled(one_line(one.role), bold=True)
    yield f"{number:>3}  {where}: {role}, {moment(one.at)}, id {one.id}"
    if one.text:
        yield f"     said   {plain(one.text)}"
    for place, line in enumerate(_now(one, has_ended=has_ended)):
        yield f"     {'now' if place == 0 else '':<6} {line}"
    for place, line in enumerate(_ways_back(one, asked)):
        yield f"     {'back' if place == 0 else '':<6} {line}"


def _now(one: Whereabouts, *, has_ended: bool) -> Iterator[str]:
    """Yield what has become of a message, compaction by compaction."""
    if one.state in _STATES:
        state = "ended" if has_ended and one.state == "in context" else one.state
        yield _STATES[state]
    elif one.state == "in summary":
        yield f"in the summary: {plain(one.now or '')}"
    elif not one.changes:
        yield _BECAME[one.state]
    elif one.state != "summarized":
        yield f"{_BECAME[one.state]}, {'and still says it' if one.now else 'without these words'}"
    for change in one.changes if one.state != "in context" else ():
        yield _change_line(change)


def _change_line(change: Change) -> str:
    done = change.compaction
    name = "a compaction" if change.number is None else f"compaction #{change.number}"
    if done is None:
        return f"{_BECAME[change.became]} by {name} that the history no longer has"
    if change.number is None and done.session:
        name += f" of {done.session}"
    tokens = ""
    if done.tokens_before is not None and done.tokens_after is not None:
        tokens = f", {done.tokens_before:,} → {done.tokens_after:,} tokens"
    about = f"{one_line(done.engine)}, {one_line(done.reason)}{tokens}"
    return f"{_BECAME[change.became]} by {name} on {moment(done.at)} ({about})"


def _ways_back(one: Whereabouts, asked: str) -> Iterator[str]:
    """Yield the commands that show a message, or bring it back into the context."""
    if one.state == "forgotten":
        return
    if one.conversation is None:
        yield f'everlong sessions{chosen_options()} search "{asked}" shows the words around it'
        return
    yield f"everlong sessions{chosen_options()} show {one.conversation} --message {one.turn}"
    if one.state == "in context":
        return
    is_undoable = bool(one.changes and one.changes[-1].is_newest)
    if is_undoable:
        web = f"everlong inspect --web{chosen_options()}"
        yield f"{web}, then Undo this compaction, on its page, takes that compaction back"
    if is_undoable and chosen_tenant() == "local":  # the chat has conversations of its own only
        yield f"with a model: everlong chat{chosen_options()} --resume {one.conversation}, then /undo compaction"
    yield f'the model: read_turn(id="{one.id}"), or everlong_read_turn in the gateway'
