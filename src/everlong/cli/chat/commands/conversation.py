"""Commands that go on in another way: another answer, model, session or title."""

from __future__ import annotations

from datetime import datetime

from everlong import providers
from everlong.cli.chat.commands.registry import ChatError, Desk


def retry(desk: Desk, words: str) -> None:
    """Ask for another answer to the last prompt."""
    del words
    if desk.agent.retry() is None:
        raise ChatError("nothing was said yet")


def branch(desk: Desk, words: str) -> None:
    """Go on in a session of its own, so that this one stays as it is."""
    conversation = desk.agent.conversation
    if conversation.branch is None or conversation.session is None:
        raise ChatError("nothing was said yet")
    old = conversation.session
    conversation.store.sessions.end(old.id, "branch")
    new = conversation.store.sessions.start(
        conversation.branch,
        model=conversation.model,
        system_prompt=conversation.system_prompt,
        title=words or old.title,
        client=old.client,
        folder=old.folder,
        works_for=old.conversation,
        from_depth=0,
    )
    conversation.session = conversation.store.sessions.rewind(new.id, conversation.branch.depth)
    desk.agent.tools.context.session_id = new.id
    desk.show.line(f"this is session {new.id} now; /resume {old.conversation} goes back to where it was")


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
        for one in store.conversations.newest(15):
            where = f"  {one.folder}" if one.folder else ""
            desk.show.line(
                f"{one.id}  {datetime.fromtimestamp(one.active).astimezone():%Y-%m-%d %H:%M}  "
                f"{one.title or 'no title'}{where}"
            )
        return
    if desk.open_agent is None:
        raise ChatError("this chat cannot change its session")
    found = store.conversations.find(words)
    old = desk.agent
    desk.state.agent = desk.open_agent(found.parts[-1])
    old.close()
    desk.show.last_exchange(desk.agent.conversation)


def leave(desk: Desk, words: str) -> None:
    """Leave the chat."""
    del words
    desk.state.is_over = True
    desk.state.changed()
