"""The loop: ask the model, run the tools it asks for, until it is done.

Four small verbs, each to be overridden: `run` a prompt to its end, `step` from one answer to the next, `query` the
model, `execute` its calls. What a conversation, a compaction and a tool are, other modules know; this one knows the
order. Whatever stops it, it leaves a conversation that can go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from everlong.agent.compaction import Compactor
from everlong.agent.conversation import AgentConversation, Said
from everlong.agent.events import AgentEvent, Answered, Stop, ToolFinished, ToolStarted, TurnFinished, unheard
from everlong.agent.watch import Interrupted, OutOfTime, Watch, ctrl_c_raises, ctrl_c_sets
from everlong.context.policy import OVERFLOW_TRIES
from everlong.errors import ContextOverflow, ProviderError, RequestTooLarge
from everlong.model import Message, ToolCall
from everlong.providers.base import Usage

if TYPE_CHECKING:
    from everlong.agent.model_calls import Asker
    from everlong.agent.tools.toolbox import ToolResult, ToolSet
    from everlong.config import AgentSettings
    from everlong.providers.base import Reply

__all__ = ["Limits", "Loop", "Spent"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of each; None where there is no limit."""

    steps: int | None = 200
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Limits:
        """The limits of the ``agent`` section."""
        return cls(settings.max_steps, settings.max_tokens, settings.max_cost, settings.max_seconds)


@dataclass(slots=True)
class Spent:
    """What a prompt has taken so far."""

    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count one answer."""
        self.steps += 1
        self.usage += usage
        self.cost += cost or 0.0

    def reached(self, limits: Limits) -> str | None:
        """The limit that is reached, in words; None where there is room for another answer."""
        if limits.steps is not None and self.steps >= limits.steps:
            return f"{self.steps} of {limits.steps} answers (agent.max_steps)"
        if limits.tokens is not None and self.usage.total_tokens >= limits.tokens:
            return f"{self.usage.total_tokens:,} of {limits.tokens:,} tokens (agent.max_tokens)"
        if limits.cost is not None and self.cost >= limits.cost:
            return f"${self.cost:.4f} of ${limits.cost:.4f} (agent.max_cost)"
        return None


_STOPPED = "[Stopped by the user before it was done.]"
_NOT_RUN = "[Not run: the user stopped the work first.]"
_TIME_IS_UP = "[Stopped: the time that was given for this is up.]"


class Loop:
    """A model with tools on one conversation.

    Args:
        asker: asks the model.
        conversation: what was said so far, in its store.
        compactor: keeps it inside the window.
        tools: what the model may call, what that works with, and who approves it.
        limits: what one prompt may take.
        listen: told everything that happens.
    """

    def __init__(
        self,
        asker: Asker,
        conversation: AgentConversation,
        compactor: Compactor,
        tools: ToolSet,
        *,
        limits: Limits | None = None,
        listen: Callable[[AgentEvent], None] = unheard,
    ) -> None:
        self.asker = asker
        self.conversation = conversation
        self.compactor = compactor
        self.tools = tools
        self.limits = limits or Limits()
        self.listen = listen
        self.spent = Spent()
        self.watch = Watch(tools.interrupted)

    # -- the four verbs ------------------------------------------------------------------------------------------------

    def run(self, prompt: str | Sequence[Mapping[str, Any]] | None = None) -> TurnFinished:
        """Work on a prompt until the model is done, a limit is reached, or somebody stops it.

        Args:
            prompt: what the user says: a text, or parts with images; None to go on where the conversation stands.

        Raises:
            ProviderError: the model cannot be reached or will not answer; what was said is kept, and can go on.
            StoreError: the conversation outgrew the window and could not be stored.
        """
        with ctrl_c_sets(self.tools.interrupted):
            return self._run(prompt)

    def step(self) -> Reply:
        """One answer of the model, the tools that it asks for, and a compaction where that made one due."""
        reply = self.query()
        if reply.calls:
            self.execute(reply.calls)
        self.compactor.after_answer()
        return reply

    def query(self) -> Reply:
        """The model's answer to the conversation as it stands, which is made to fit the window first."""
        self.compactor.before_request()
        room = self._room()
        for attempt in count():
            try:
                return self._asked(room)
            except (ContextOverflow, RequestTooLarge) as error:
                if attempt >= OVERFLOW_TRIES:
                    raise _does_not_fit(error, "does not fit after all that could be done") from error
                self.learn(error)
                less = self._less_room(error, room)
                if less is None and not self.compactor.after_overflow(error, attempt, room):
                    raise _does_not_fit(error, "cannot be made shorter") from error
                room = self._room() if less is None else less
        raise AssertionError("counting does not end")

    def execute(self, calls: Sequence[ToolCall]) -> None:
        """Run the tools that the model asked for, one after the other; every call gets a result."""
        answered = 0
        try:
            for call in calls:
                self.watch.check()
                result = self._called(call)
                nodes = self.conversation.add(Said(result.message, result.whole))
                answered += 1
                self.answered(call, result, nodes)
        finally:
            left = calls[answered:]
            texts = [_STOPPED, *[_NOT_RUN] * len(left)][: len(left)]
            if left:
                self.conversation.add(*(Said(_result(call, text)) for call, text in zip(left, texts, strict=True)))

    # -- what the verbs are made of ------------------------------------------------------------------------------------

    def _run(self, prompt: str | Sequence[Mapping[str, Any]] | None) -> TurnFinished:
        started = self._begin()
        text, detail = "", ""
        stop: Stop | None = None
        try:
            if prompt is not None:
                self.say({"role": "user", "content": prompt if isinstance(prompt, str) else list(prompt)})
            while stop is None:
                if detail := self.spent.reached(self.limits) or "":
                    stop = "limit"
                    break
                reply = self.step()
                text = reply.text or text
                stop = _stop_of(reply)
        except OutOfTime:
            stop, detail = "limit", f"{self.limits.seconds:g} seconds (agent.max_seconds)"
            self._settle(_TIME_IS_UP)
        except (Interrupted, KeyboardInterrupt):
            self.interrupt()  # for tools that are still at it
            stop = "interrupted"
            self._settle(_STOPPED)
        return self._finished(text, stop or "end", detail, started)

    def say(self, message: Message) -> None:
        """Put a message at the end of the conversation."""
        self.conversation.add(Said(message))

    def interrupt(self) -> None:
        """Stop what is under way, from any thread; the conversation stays whole."""
        self.tools.interrupted.set()

    def learn(self, error: ProviderError) -> None:
        """Take in what a refusal says about the model."""

    def answered(self, call: ToolCall, result: ToolResult, nodes: Sequence[bytes]) -> None:
        """Take in that a call has its result, stored under these ids."""

    def _room(self) -> int:
        """The most tokens that the next answer may have."""
        return self.asker.answer_tokens(self.compactor.tokens, self.compactor.engine.context_length)

    def _less_room(self, error: ProviderError, room: int) -> int | None:
        """The room for a shorter answer, where the prompt itself fits; None where it has to become shorter."""
        left = self.asker.room_left(error, self.compactor.tokens, room)
        if left is not None:
            return left
        smaller = self._room()  # of a window that turned out to be smaller than was thought
        return smaller if smaller < room else None

    def _asked(self, answer_tokens: int) -> Reply:
        conversation = self.conversation
        number = conversation.begin_turn(self.asker.model)
        try:
            reply = self.asker.ask(list(conversation.messages), answer_tokens, self.watch)
        except ProviderError as error:
            conversation.fail_turn(number, error)
            raise
        except (Interrupted, OutOfTime, KeyboardInterrupt) as stopped:
            conversation.fail_turn(number, type(stopped).__name__, is_cancelled=True)
            raise
        cost = self.asker.connection.cost(reply.usage)
        conversation.finish_turn(number, reply, cost)
        self.spent.add(reply.usage, cost)
        self.compactor.engine.update_from_response(reply.usage.to_dict())
        self.listen(Answered(reply.text, reply.usage, reply.stop, cost))
        return reply

    def _called(self, call: ToolCall) -> ToolResult:
        summary = self.tools.describe(call)
        self.listen(ToolStarted(call, summary))
        with ctrl_c_raises():  # a person may be asked
            run = self.tools.ready(call)
        result = self.watch.call(run)
        self.listen(ToolFinished(call, summary, result.outcome, result.text, result.seconds))
        return result

    def _begin(self) -> float:
        self.tools.interrupted.clear()
        self.spent = Spent()
        now = time.monotonic()
        deadline = None if self.limits.seconds is None else now + self.limits.seconds
        self.watch = Watch(self.tools.interrupted, deadline)
        return now

    def _settle(self, note: str) -> None:
        """Leave a conversation that can go on: what was said of an answer is kept, every call has a result."""
        self.conversation.answer_what_is_open(note)
        said, self.asker.partial = self.asker.partial.strip(), ""
        if said:
            self.conversation.add(Said({"role": "assistant", "content": f"{said}\n\n{note}"}))

    def _finished(self, text: str, stop: Stop, detail: str, started: float) -> TurnFinished:
        spent, seconds = self.spent, time.monotonic() - started
        session_id = self.conversation.session_id
        finished = TurnFinished(text, stop, detail, spent.steps, spent.usage, spent.cost, seconds, session_id)
        self.listen(finished)
        return finished


def _stop_of(reply: Reply) -> Stop | None:
    """Why a turn ends with an answer; None where it goes on."""
    if reply.calls or reply.stop == "pause":
        return None
    if reply.stop == "refusal":
        return "refusal"
    return "length" if reply.stop in {"length", "window"} else "end"


def _result(call: ToolCall, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def _does_not_fit(error: ProviderError, why: str) -> ProviderError:
    """The same kind of error, saying what would help."""
    advice = "use a model with a larger window, fewer tools, or a shorter prompt"
    said = f"{error}; the conversation {why}: {advice}"
    return type(error)(said, provider=error.provider, model=error.model, status=error.status)
