"""Commands that hand something over: an answer to the clipboard, the conversation to a file, changes as a diff."""

from __future__ import annotations

from pathlib import Path

from everlong.agent.commands.registry import ChatError
from everlong.cli.chat.commands.desk import ChatDesk
from everlong.cli.output import counted
from everlong.model import text_of

__all__ = ["copy", "diff", "export"]


def copy(desk: ChatDesk, words: str) -> None:
    """Copy the last answer to the clipboard."""
    del words
    said = (text_of(one) for one in reversed(desk.agent.conversation.messages) if one.get("role") == "assistant")
    answer = next((text for text in said if text.strip()), None)
    if answer is None:
        raise ChatError("there is no answer to copy yet")
    if desk.state.copy is None:
        raise ChatError("there is no terminal whose clipboard could take it; /export FILE writes a file")
    desk.state.copy(answer)
    desk.show.line(f"copied: {counted(len(answer), 'character')}")


def export(desk: ChatDesk, words: str) -> None:
    """Write the conversation to a file: .md, .html, .json or .jsonl."""
    from everlong.cli.sessions_transfer import export_to  # noqa: PLC0415 - the prompt comes before this is loaded

    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    path = Path(words or "conversation.md").expanduser()
    if path.exists():
        raise ChatError(f"{path} is there already; name another file: /export FILE")
    whole = conversation.store.conversations.get(conversation.session.id)
    count = export_to(conversation.store, whole, path)
    desk.show.line(f"wrote {counted(count, 'message')} to {path}")


def diff(desk: ChatDesk, words: str) -> None:
    """Show what the agent's tools changed in files since the chat began."""
    from everlong.agent.tools.files import changes_of  # noqa: PLC0415 - the prompt comes before this is loaded

    del words
    found = changes_of(desk.agent.tools.context)
    for one in found:
        desk.show.code(one, "diff")
    if not found:
        desk.show.line("no file was changed by a tool; what commands changed is not seen here")
