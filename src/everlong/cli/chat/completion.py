"""Completion in the chat: commands, sessions, models and paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from everlong.errors import StoreError

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.cli.chat.commands import Registry

__all__ = ["ChatCompleter"]


class ChatCompleter(Completer):
    """Completes a command's name, then what it takes; elsewhere a path after ``./``, ``/`` or ``~``."""

    def __init__(self, registry: Registry, agent: Callable[[], Agent | None]) -> None:
        self._registry = registry
        self._agent = agent
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What could stand here."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            name, space, words = text[1:].partition(" ")
            if not space:
                for command in self._registry.commands.values():
                    if command.name.startswith(name):
                        yield Completion(command.name, -len(name), display_meta=command.about)
                return
            yield from (Completion(one, -len(words)) for one in self._taken(name) if one.startswith(words))
            return
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        if "/" in word or word.startswith(("~", ".")):
            yield from self._paths.get_completions(Document(word), complete_event)

    def _taken(self, name: str) -> list[str]:
        agent = self._agent()
        if name == "compress":
            return ["--preview", "here "]
        if name == "undo":
            return ["compaction"]
        if agent is None:
            return []
        try:
            if name == "resume":
                newest = agent.conversation.store.conversations.newest(50)
                titles = [one.title for one in newest]
                # A title that several have would not say which one is meant.
                return [one.title if one.title and titles.count(one.title) == 1 else one.id for one in newest]
            if name == "model":
                from everlong.providers.auxiliary import CHEAPER  # noqa: PLC0415 - only when it is asked for
                from everlong.providers.names import ENDPOINTS  # noqa: PLC0415 - as above

                known = {f"{provider}:{model}" for provider, model in CHEAPER.items()}
                used = {one.model for one in agent.conversation.store.sessions.newest(limit=50) if one.model}
                return sorted(known | used | {f"{provider}:" for provider in ENDPOINTS})
        except StoreError:  # completion is a convenience; the command itself will say what is wrong
            return []
        return []
