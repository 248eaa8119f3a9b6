"""Commands of a chat in a channel: those of the terminal's chat, with what they print as Markdown.

What can be found and resumed are the conversations of the same place. Nobody reads another chat with a command.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from everlong import providers
from everlong.agent.commands.compaction import compress, history, undo
from everlong.agent.commands.conversation import resume, title
from everlong.agent.commands.lookups import context, memory, search, usage
from everlong.agent.commands.registry import ChatError, Command, Registry
from everlong.agent.watch import Interrupted
from everlong.channels.access import Access
from everlong.channels.conversations import ChatConversations, Seat
from everlong.channels.places import ChatPlaces
from everlong.channels.platform import Inbound, Place, PlatformCommand
from everlong.errors import EverlongError

if TYPE_CHECKING:
    from rich.console import Console

    from everlong.agent import Agent
    from everlong.config import Settings

__all__ = ["CHANNEL_COMMANDS", "CommandReply", "CommandRunner", "command_of", "may_repeat"]

_COMMAND = re.compile(r"/([a-z][a-z0-9_]{0,31})(?:@\w+)?(?=\s|$)", re.IGNORECASE)
_COLUMNS = 58
"""Columns of a table, as a phone shows them."""


def command_of(event: Inbound) -> str:
    """Return the command that a message gives; empty for any other message, and for what somebody else wrote."""
    if event.kind != "message" or event.is_forwarded:
        return ""
    found = _COMMAND.match(event.text.strip())
    return found[1].lower() if found is not None else ""


def _words_of(event: Inbound) -> str:
    """Return what stands behind the command of a message, on the same line or on the next."""
    return _COMMAND.sub("", event.text.strip(), count=1).strip()


def may_repeat(event: Inbound) -> bool:
    """Return whether a command that a restart cut short is run again: what it has done already is not done twice."""
    return command_of(event) in {"new", "reset"}


class CommandReply(NamedTuple):
    """The words of an answer, and whether the place begins another conversation after it."""

    text: str
    starts_anew: bool = False


class _Page:
    """The screen of a command in a channel: lines as they are, tables as code."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._drawn: io.StringIO | None = None

    @property
    def console(self) -> Console:
        """Draws a table, which is shown as code."""
        from rich.console import Console  # noqa: PLC0415 - few commands draw

        if self._drawn is None:
            self._drawn = io.StringIO()
        return Console(file=self._drawn, width=_COLUMNS, no_color=True, force_terminal=False, emoji=False)

    def line(self, text: str, style: str = "") -> None:
        """Write a line."""
        del style
        self._end_table()
        self._lines.append(text)

    @property
    def markdown(self) -> str:
        """Everything that was written."""
        self._end_table()
        return "\n".join(self._lines).strip()

    def _end_table(self) -> None:
        drawn, self._drawn = self._drawn, None
        if drawn is not None and drawn.getvalue().strip():
            rows = "\n".join(line.rstrip() for line in drawn.getvalue().rstrip().splitlines())
            self._lines.append(f"```\n{rows}\n```")


@dataclass
class ChannelDesk:
    """Everything that a command works with in a channel."""

    event: Inbound
    conversations: ChatConversations
    settings: Settings
    registry: Registry
    scope: Sequence[str]
    found: list[bytes]
    places: ChatPlaces
    access: Access
    show: _Page = field(default_factory=_Page)
    wants: str = ""
    """The session that the place goes on with; empty for its own."""
    starts_anew: bool = False
    """True if the place begins another conversation with its next message."""
    seat: Seat | None = field(init=False, default=None)

    @property
    def agent(self) -> Agent:
        """The agent of the place, opened by the first command that needs it."""
        if self.seat is None:
            self.seat = self.conversations.take(self.event.place)
            self.seat.begin_turn(self.event)
        return self.seat.agent

    def switch(self, session: str) -> None:
        """Go on with another session of this place."""
        self.wants = session


def _new(desk: ChannelDesk, words: str) -> None:
    del words
    old = desk.conversations.start_anew(desk.event.place)
    desk.starts_anew = True
    back = f" `/resume {old}` goes back to the one before." if old is not None else ""
    desk.show.line(f"A new conversation begins; what I was to remember is kept.{back}")


def _model(desk: ChannelDesk, words: str) -> None:
    if not words:
        info = desk.agent.connection.info
        desk.show.line(f"{info.name}: a window of {info.context_length:,} tokens")
        return
    if not desk.access.is_owner(desk.event):
        # Another provider would get the whole conversation, at the owner's cost.
        raise ChatError("in a group, only people who were let in by name can choose another model")
    desk.agent.switch_model(providers.connect(words, desk.settings))
    desk.places.use_model(desk.event.place, words)
    desk.show.line(f"now with {desk.agent.asker.model}")


def _compress(desk: ChannelDesk, words: str) -> None:
    before = desk.agent.compactor.tokens
    compress(desk, words)
    after = desk.agent.compactor.tokens
    if after < before:
        desk.show.line(f"compacted: {before:,} → {after:,} tokens; `/undo compaction` takes it back")


def _help(desk: ChannelDesk, words: str) -> None:
    del words
    for command in COMMANDS:
        desk.show.line(f"/{command.name} {command.takes}".rstrip() + f" – {command.about}")


def _stop(desk: ChannelDesk, words: str) -> None:
    """Say that nothing runs: a turn under way is stopped before its lane comes here."""
    del words
    desk.show.line("Nothing is running.")


COMMANDS = [
    Command("new", "", "End this conversation and begin another.", _new),
    Command("reset", "", "The same as /new.", _new),
    Command("stop", "", "Stop what I am doing.", _stop),
    Command("compress", "[focus]", "Make the conversation shorter now.", _compress),
    Command("undo", "[compaction]", "Take back the last exchange, or the newest compaction.", undo),
    Command("usage", "", "What this conversation cost.", usage),
    Command("context", "", "Where the model's window goes.", context),
    Command("history", "[N]", "The compactions so far.", history),
    Command("search", "WORDS | N", "Find what was said here, ever; with a number, open a hit.", search),
    Command("title", "[text]", "The conversation's title.", title),
    Command("resume", "[id or title]", "Go on with an earlier conversation of this chat.", resume),
    Command("model", "[provider:model]", "Which model; or go on with another.", _model),
    Command("memory", "", "What I remember from conversation to conversation.", memory),
    Command("help", "", "This list.", _help),
]
"""The commands of a channel, in the order of ``/help``."""

CHANNEL_COMMANDS = [PlatformCommand(one.name, one.about, "words" if one.takes else "") for one in COMMANDS]
"""The commands as platforms register them."""


class CommandRunner:
    """Runs commands, in worker threads."""

    def __init__(
        self,
        conversations: ChatConversations,
        places: ChatPlaces,
        access: Access,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._conversations, self._places, self._access = conversations, places, access
        self._settings, self._clock = settings, clock
        self._registry = Registry(COMMANDS)
        self._found: dict[Place, list[bytes]] = {}

    def run(self, event: Inbound) -> CommandReply:
        """Run a command, and return what it says."""
        name, words = command_of(event), _words_of(event)
        if name == "usage" and words:
            return CommandReply("say /usage")  # the books of all conversations are nobody's in a chat
        found = self._found.setdefault(event.place, [])
        scope = self._places.conversations(event.place)
        desk = ChannelDesk(
            event, self._conversations, self._settings, self._registry, scope, found, self._places, self._access
        )
        is_left = False
        try:
            self._registry.run(desk, f"/{name} {words}")
            self._found[event.place] = desk.found
            if desk.wants:
                self._switch(desk)
                is_left = True
        except Interrupted:
            return CommandReply("Stopped; nothing was changed.")
        except (ChatError, EverlongError) as error:
            return CommandReply(str(error))
        finally:
            if desk.seat is not None:
                (self._conversations.discard if is_left else self._conversations.give_back)(desk.seat)
        return CommandReply(desk.show.markdown or "Done.", desk.starts_anew)

    def _switch(self, desk: ChannelDesk) -> None:
        """Bind the place to the conversation that was chosen; the caller puts its present agent away."""
        session = desk.agent.conversation.store.sessions.get(desk.wants)
        self._places.bind(desk.event.place, session.conversation, self._clock())
        whole = desk.agent.conversation.store.conversations.get(session.conversation)
        desk.show.line(f"This goes on: {whole.title or 'no title'} ({whole.id})")
