"""Conversations of places: the agent of each chat and its turns.

A place is bound to a conversation of the store. Its agent is opened when it is needed and put away when others are,
which ends nothing: neither its engine nor its memory hears of it, and the next message goes on where the last one
ended. A turn that a restart cut short is taken up
where the conversation stands: what was said is not said again, and a reply that is stored is not asked for again.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.agent import (
    Agent,
    AgentOptions,
    ApprovalRefused,
    ApprovalRequest,
    Decision,
    Notice,
    Restarted,
    TextDelta,
    ToolStarted,
    open_agent,
)
from everlong.agent.approval import NOTES_TOOL
from everlong.agent.text import outside_name
from everlong.agent.tools import builtin_tools
from everlong.channels.delivery import LiveText
from everlong.channels.outbox import Outbox, OutboxAnswer
from everlong.channels.places import ChatPlaces, PlaceRecord
from everlong.channels.platform import Inbound, Place
from everlong.config.paths import data_home
from everlong.errors import EverlongError, NotStored, ProviderError
from everlong.model import added_parts, calls_of, text_of

if TYPE_CHECKING:
    from everlong.agent import AgentEvent, Tool, TurnFinished
    from everlong.agent.conversation import Prompt
    from everlong.config import Settings
    from everlong.config.settings import ToolPolicy
    from everlong.store import Store

__all__ = [
    "STOPPED",
    "AskPerson",
    "ChatConversations",
    "ChatTurns",
    "PromptFile",
    "Seat",
    "conversation_of",
    "failure_text",
    "make_prompt",
]

STOPPED = "(Stopped.)"

AskPerson = Callable[[Inbound, ApprovalRequest], Decision]
"""Asks about a tool call where somebody has sent a message."""

AGENTS_KEPT = 32
"""Agents that stay in memory between their messages; another one is opened from the store."""

_HARMLESS = frozenset({"recall", "read_turn", "read_output", "update_todo", "search_sessions"})
"""Tools that stay where ``tools`` is ``never``: they touch nothing but the conversation itself."""

_NOBODY = "nobody is known who could allow it: the message has no author"
_NO_EFFECTS = "in this chat the agent may only read (channels.tools is read)"


@dataclass
class Seat:
    """An agent in its place, and the turn that it is at."""

    place: Place
    policy: ToolPolicy
    ask: AskPerson
    agent: Agent = field(init=False)
    live: LiveText = field(default_factory=LiveText)
    event: Inbound | None = None
    """The message that is being answered."""
    notices: list[str] = field(default_factory=list)
    """Warnings of this turn."""
    can_see: bool = True
    """False once the model has refused an image."""

    def begin_turn(self, event: Inbound) -> LiveText:
        """Prepare a turn that answers a message; return its words as they will come."""
        self.event, self.live, self.notices = event, LiveText(), []
        self.agent.tools.approvals.person = event.person.id
        return self.live

    def listen(self, event: AgentEvent) -> None:
        """Take in what the agent does."""
        if isinstance(event, TextDelta):
            self.live.add(event.text)
        elif isinstance(event, Restarted):
            self.live.clear()
        elif isinstance(event, ToolStarted):
            self.live.clear(event.summary)
        elif isinstance(event, Notice):
            self.notices.append(event.text)

    def approve(self, request: ApprovalRequest) -> Decision:
        """Decide on a tool call as the chat's policy says."""
        if self.policy == "yes":
            return "once"
        if self.policy != "ask":
            raise ApprovalRefused(_NO_EFFECTS)
        if request.tool == NOTES_TOOL:  # they are read in this chat only, and nobody may be there to press
            return "once"
        if self.event is None or not self.event.person.id:
            raise ApprovalRefused(_NOBODY)
        return self.ask(self.event, request)


class ChatConversations:
    """The agents of one platform's places.

    Args:
        store: keeps the conversations.
        settings: the configuration.
        channel: the platform's section of it.
        ask: asks a person about a tool call.
        tools_for: makes the tools that only a place has.
        opener: opens an agent; tests hand in another one.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        ask: AskPerson,
        tools_for: Callable[[Place], Sequence[Tool]] = lambda _: (),
        opener: Callable[..., Agent] = open_agent,
    ) -> None:
        self._store, self._settings = store, settings
        self._ask, self._tools_for, self._opener = ask, tools_for, opener
        self._places = ChatPlaces(store)
        self._idle: OrderedDict[Place, Seat] = OrderedDict()
        self._busy: dict[Place, Seat] = {}
        self._lock = threading.Lock()

    def take(self, place: Place) -> Seat:
        """Return the agent of a place for one piece of work; opened if it is not at hand."""
        record = self._places.get(place)
        with self._lock:
            seat = self._idle.pop(place, None)
        if seat is not None and not self._is_current(seat, record):
            seat.agent.close(ends_session=False)
            seat = None
        if seat is None:
            seat = self._open(record)
        with self._lock:
            self._busy[place] = seat
        return seat

    def give_back(self, seat: Seat) -> None:
        """Keep an agent for the next message; put away those that were not used for longest."""
        seat.event = None
        away = []
        with self._lock:
            self._busy.pop(seat.place, None)
            self._idle[seat.place] = seat
            while len(self._idle) > AGENTS_KEPT:
                away.append(self._idle.popitem(last=False)[1])
        for one in away:
            one.agent.close(ends_session=False)

    def discard(self, seat: Seat) -> None:
        """Put an agent away: its place goes on with another conversation, or it is broken."""
        with self._lock:
            self._busy.pop(seat.place, None)
        seat.agent.close(ends_session=False)

    def start_anew(self, place: Place) -> str | None:
        """End the conversation of a place, and return its name; None if nothing was said in it.

        Memory is flushed, and engine and memory hear that the session is over. A conversation that a killed process
        has ended is not ended again. The caller unbinds the place, together with the words that say so.
        """
        ended = self._resumable(self._places.get(place).conversation)
        if ended is None:
            return None
        newest = self._store.conversations.parts(ended)[-1]
        if newest.ended is None or newest.end_reason != "reset":
            seat = self.take(place)
            try:
                seat.agent.reset("reset")
            finally:
                self.give_back(seat)
        return ended

    def interrupt(self, place: Place) -> bool:
        """Stop the turn of a place, from any thread; return whether there is one."""
        with self._lock:
            seat = self._busy.get(place)
        if seat is None:
            return False
        seat.agent.interrupt()
        return True

    def close(self) -> None:
        """Put all idle agents away; conversations go on after the next start."""
        with self._lock:
            seats, self._idle = list(self._idle.values()), OrderedDict()
        for seat in seats:
            seat.agent.close(ends_session=False)

    # -- opening -------------------------------------------------------------------------------------------------------

    def _is_current(self, seat: Seat, record: PlaceRecord) -> bool:
        """Return whether an agent at hand still shows the place's conversation as the store has it."""
        conversation = seat.agent.conversation
        if conversation.session is None or conversation.branch is None:
            return record.conversation in {None, conversation.session_id}
        if conversation.session.conversation != record.conversation:
            return False
        try:
            stored = self._store.sessions.get(conversation.session_id)
            newest = self._store.branch(conversation.branch.id)
        except NotStored:
            return False
        end = newest.depth if stored.to_depth is None else stored.to_depth
        return stored.ended is None and end == conversation.branch.depth

    def _open(self, record: PlaceRecord) -> Seat:
        place = record.place
        channels = self._settings.channels
        seat = Seat(place, channels.tools, self._ask)
        options: dict[str, Any] = {
            "root": self.folder(place),
            "approver": seat.approve,
            "extra_tools": tuple(self._tools_for(place)),
            "platform": place.platform,
            "surroundings": _describe_place(place),
            "trusts_root": None if channels.workspace is not None else False,
        }
        if channels.tools == "never":
            options["tools"] = [tool for tool in builtin_tools() if tool.name in _HARMLESS]
        for resume in dict.fromkeys((self._resumable(record.conversation), None)):
            try:
                seat.agent = self._opener(
                    self._settings,
                    record.model,
                    AgentOptions(resume=resume, **options),
                    store=self._store,
                    listen=seat.listen,
                )
            except NotStored:  # forgotten meanwhile, or it has no message: the chat begins anew
                if resume is None:
                    raise
            else:
                return seat
        raise AssertionError("the last attempt returns or raises")

    def _resumable(self, conversation: str | None) -> str | None:
        """Return the conversation if the store has it: the first message may not have come that far."""
        if conversation is None:
            return None
        try:
            return self._store.sessions.get(conversation).id
        except NotStored:
            return None

    def folder(self, place: Place) -> Path:
        """Return the folder that the tools of a place see; each chat has its own unless one is set for all."""
        chosen = self._settings.channels.workspace
        if chosen is not None:
            return Path(chosen).expanduser()
        folder = data_home() / "channels" / _safe(place.platform) / _safe(place.chat)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder


def conversation_of(agent: Agent) -> str:
    """Return the name of an agent's conversation, which no compaction changes."""
    session = agent.conversation.session
    return session.conversation if session is not None else agent.conversation.session_id


def _safe(name: str) -> str:
    return re.sub(r"[^\w-]", "_", name)[:100] or "_"


def _describe_place(place: Place) -> str:
    return (
        f"You talk with people in {place.platform.capitalize()}, for weeks. They read on a phone: answer in few words, "
        "in plain Markdown without tables. A note in square brackets behind a message says when it was sent and, in a "
        "group, by whom; it is not part of what they said."
    )


# -- turns -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file of a message as the model gets it: a part of the prompt, or a note in its place."""

    note: str
    part: dict[str, Any] | None = None

    @property
    def is_image(self) -> bool:
        """True if the model has to see it."""
        return self.part is not None and self.part.get("type") == "image_url"


def make_prompt(events: Sequence[Inbound], files: Sequence[PromptFile], *, can_see: bool = True) -> Prompt:
    """Return the prompt for messages that are answered together.

    Forwarded messages, files and what we add stand behind the person's words, in parts that are marked as not typed.

    Args:
        events: the messages, of one person.
        files: their files.
        can_see: False to leave images out.
    """
    said = [event for event in events if event.text.strip()]
    words = "\n\n".join(event.text.strip() for event in said if not event.is_forwarded)
    last = events[-1]
    by = "" if last.is_private or not last.person.name else f"by {outside_name(last.person.name)}, "
    beside = [f"[{by}{_when(last.sent_at)}]"] if last.sent_at or by else []
    parts: list[dict[str, Any]] = [{"type": "text", "text": words}] if words else []
    for event in said:
        if event.is_forwarded:
            parts += added_parts(f"<forwarded>\n{event.text.strip()}\n</forwarded>")
    if any(event.is_forwarded for event in said):
        beside.append("[forwarded: these are the words of somebody else]")
    for file in files:
        if file.part is not None and (can_see or not file.is_image):
            parts += added_parts([file.part])
        beside.append(f"[{file.note}]" if can_see or not file.is_image else f"[{file.note}; you cannot see images]")
    return [*parts, *added_parts("\n".join(beside))] or ""


def _when(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%a %Y-%m-%d %H:%M}" if at else ""


class ChatTurns:
    """The turns of one platform's places; called in worker threads."""

    def __init__(self, outbox: Outbox, places: ChatPlaces, clock: Callable[[], float], tidy_seconds: float) -> None:
        self._outbox, self._places = outbox, places
        self._clock, self._tidy_seconds = clock, tidy_seconds

    def run(self, seat: Seat, answer: OutboxAnswer, events: Sequence[Inbound], files: Sequence[PromptFile]) -> str:
        """Return the agent's reply to messages; it stands in the conversation then.

        Raises:
            ProviderError: there is no reply; the messages stand in the conversation, and the next turn goes on there.
            StoreError: the conversation could not be stored.
        """
        agent = seat.agent
        if answer.conversation == conversation_of(agent) and _has_grown(agent, answer):
            text = _find_reply(agent)
            return text if text is not None else self._describe_end(seat, agent.run(None))
        agent.tidy(self._tidy_seconds)
        branch = agent.conversation.branch
        self._outbox.begin(answer, conversation_of(agent), 0 if branch is None else branch.depth)
        return self._describe_end(seat, self._run(seat, events, files))

    def _run(self, seat: Seat, events: Sequence[Inbound], files: Sequence[PromptFile]) -> TurnFinished:
        prompt = make_prompt(events, files, can_see=seat.can_see)
        try:
            return seat.agent.run(prompt)
        except ProviderError as error:
            if error.may_retry or not seat.can_see or not any(file.is_image for file in files):
                raise
        seat.agent.conversation.rewind()
        finished = seat.agent.run(make_prompt(events, files, can_see=False))
        seat.can_see = False  # a model that takes no images refuses the whole request; other refusals come again
        return finished

    def _describe_end(self, seat: Seat, finished: TurnFinished) -> str:
        """Return what a person reads of a turn's end."""
        self._places.bind(seat.place, conversation_of(seat.agent), self._clock())
        self._places.touch(seat.place, self._clock())
        if finished.stop == "interrupted":
            return f"{seat.live.partial}\n\n{STOPPED}".strip()
        if finished.stop == "limit":
            return f"{finished.text}\n\n(I stopped at a limit: {finished.detail}. Say “go on” to continue.)".strip()
        if finished.stop == "length":
            return f"{finished.text}\n\n(The answer was cut at its greatest length. Say “go on” to continue.)".strip()
        return finished.text.strip() or "(The model gave no answer in words.)"


def _has_grown(agent: Agent, answer: OutboxAnswer) -> bool:
    """Return whether the messages of an answer are in the conversation already."""
    at = agent.conversation.branch
    return at is not None and at.depth > answer.depth


def _find_reply(agent: Agent) -> str | None:
    """Return the reply with which a conversation ends; None if the model has yet to go on."""
    last = agent.conversation.messages[-1]
    return text_of(last).strip() or None if last.get("role") == "assistant" and not calls_of(last) else None


def failure_text(error: EverlongError) -> str:
    """Return what a person reads when there is no reply."""
    return f"I could not answer: {error}\n\nYour message is kept; write again when it may work."
