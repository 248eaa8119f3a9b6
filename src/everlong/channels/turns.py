"""Turns: messages of a place become one prompt, and the prompt becomes one stored reply.

A turn that a restart cut short is taken up where the conversation stands: what was said is not said again, and a reply
that is stored is not asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everlong.channels.conversations import Seat, conversation_of
from everlong.channels.outbox import Outbox, OutboxAnswer
from everlong.channels.places import ChatPlaces
from everlong.channels.platform import Inbound
from everlong.errors import EverlongError, ProviderError
from everlong.model import added_parts, calls_of, text_of

if TYPE_CHECKING:
    from everlong.agent import Agent, TurnFinished
    from everlong.agent.conversation import Prompt

__all__ = ["ChatTurns", "PromptFile", "failure_text", "make_prompt"]

STOPPED = "(Stopped.)"


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
    by = "" if last.is_private or not last.person.name else f"by {last.person.name}, "
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
        number, depth = (None, 0) if branch is None else (branch.id, branch.depth)
        self._outbox.begin(answer, conversation_of(agent), number, depth)
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
