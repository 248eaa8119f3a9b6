"""Commands that change how the conversation goes on: another answer, model, session or title, and standing rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from everlong import providers
from everlong.agent.commands.registry import ChatError, Desk, pick
from everlong.errors import NotStored

if TYPE_CHECKING:
    from everlong.store.conversations import Conversation

_MOST_LISTED = 15
"""Conversations that /resume lists."""


def retry(desk: Desk, words: str) -> None:
    """Ask for another answer to the last prompt."""
    del words
    if desk.agent.retry() is None:
        raise ChatError("nothing was said yet")


def model(desk: Desk, words: str) -> None:
    """Show the model, or switch to another one."""
    if not words:
        info = desk.agent.connection.info
        desk.show.line(f"{info.name}: a window of {info.context_length:,} tokens ({info.context_source})")
        return

    desk.agent.switch_model(providers.connect(words, desk.settings))
    desk.show.line(f"now with {desk.agent.asker.model}; {desk.agent.caching_line}")


def title(desk: Desk, words: str) -> None:
    """Show or change the conversation's title."""
    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    whole = conversation.store.conversations
    if words:
        whole.rename(conversation.session.id, words)
        conversation.session = conversation.store.sessions.get(conversation.session.id)
    one = whole.get(conversation.session.id)
    desk.show.line(f"{one.title or 'no title'} ({one.id})")


def new(desk: Desk, words: str) -> None:
    """End this session and begin another one."""
    del words
    desk.agent.reset()
    desk.show.line(f"a new session: {desk.agent.conversation.session_id}")


def resume(desk: Desk, words: str) -> None:
    """Go on with another conversation, or list the newest ones."""
    store = desk.agent.conversation.store
    if not words:
        for one in _newest(desk):
            where = f"  {one.folder}" if one.folder and desk.scope is None else ""
            desk.show.line(
                f"{one.id}  {datetime.fromtimestamp(one.active).astimezone():%Y-%m-%d %H:%M}  "
                f"{one.title or 'no title'}{where}"
            )
        return
    found = store.conversations.find(words) if desk.scope is None else _find_here(desk, words)
    desk.switch(found.parts[-1])


def _newest(desk: Desk) -> Iterator[Conversation]:
    """Yield the newest conversations that may be resumed."""
    whole = desk.agent.conversation.store.conversations
    if desk.scope is None:
        yield from whole.newest(_MOST_LISTED)
        return
    for name in desk.scope[:_MOST_LISTED]:
        with suppress(NotStored):  # forgotten, or nothing was said in it
            yield whole.get(name)


def _find_here(desk: Desk, words: str) -> Conversation:
    """Return a conversation of this place by its id, the beginning of it, or its title."""
    listed = list(_newest(desk))
    exact = [one for one in listed if words in {one.id, one.title}]
    begins = [one for one in listed if one.id.startswith(words) or (one.title or "").lower().startswith(words.lower())]
    for found in (exact, begins):
        if len(found) == 1:
            return found[0]
    raise ChatError(f"there is no one conversation {words!r} here; /resume lists them")


def rules(desk: Desk, words: str) -> None:
    """List the rules in force, add one, or remove one by its number."""
    what, _, rest = words.partition(" ")
    rest = rest.strip()
    if not words:
        _list_rules(desk)
    elif what == "add" and rest:
        desk.agent.edit_rules(added=[rest])
        desk.show.line(f"in force from now on: {' '.join(rest.split())}")
    elif what == "remove" and rest:
        if not desk.agent.rules.lines:
            raise ChatError("there are no rules to remove")
        rule = pick(desk.agent.rules.lines, rest, "; /rules lists them")
        desk.agent.edit_rules(removed=[rule.text])
        desk.show.line(f"no longer in force: {rule.text}")
    else:
        raise ChatError("say /rules, /rules add TEXT, or /rules remove N")


def _list_rules(desk: Desk) -> None:
    found = desk.agent.rules
    if not found.lines and not found.older:
        desk.show.line("no rules yet: say what always or never holds, or /rules add TEXT")
    for number, rule in enumerate(found.lines, 1):
        desk.show.line(f"{number}  {rule.text}  (turn {rule.turn})")
    if found.older:
        many = len(found.older)
        desk.show.line(
            f"{many} older rule{'' if many == 1 else 's'} had no room after the summary: {', '.join(found.older)}",
            "dim",
        )
