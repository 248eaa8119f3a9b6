"""The loop of an agent: ask the model, run the tools it asks for, until it is done.

Four small verbs, each of which may be overridden: `Loop.run` works on a prompt to its end, `Loop.step` goes from one
answer to the next, `Loop.query` asks the model, `Loop.execute` runs its calls. Whatever stops the loop, it leaves a
conversation that can go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from everlong.agent.compaction import Compactor
from everlong.agent.conversation import AgentConversation, Prompt, Said
from everlong.agent.events import AgentEvent, Answered, Stop, ToolFinished, ToolStarted, TurnFinished, unheard
from everlong.agent.watch import Interrupted, OutOfTime, WorkWatch, ctrl_c_raises, ctrl_c_sets
from everlong.context.policy import OVERFLOW_TRIES
from everlong.errors import ContextOverflow, ProviderError, RequestTooLarge
from everlong.model import ToolCall
from everlong.providers.base import Usage

if TYPE_CHECKING:
    from everlong.agent.model_calls import Asker
    from everlong.agent.tools.toolbox import ToolResult, ToolSet
    from everlong.config import AgentSettings
    from everlong.providers.base import Reply

__all__ = ["Limits", "Loop", "Spent"]

_STOPPED = "[Stopped by the user before it was done.]"
_NOT_RUN = "[Not run: the user stopped the work first.]"
_TIME_IS_UP = "[Stopped: the time that was given for this is up.]"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one prompt may take; None where there is no limit."""

    steps: int | None = 200
    cost: float | None = None
    seconds: float | None = None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Limits:
        """Return the limits of the ``agent`` section."""
        return cls(settings.max_steps, settings.max_cost)


@dataclass(slots=True)
class Spent:
    """Steps, tokens and US dollars that a prompt has taken so far."""

    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count one answer."""
        self.steps += 1
        self.usage += usage
        self.cost += cost or 0.0

    def limit_reached(self, limits: Limits) -> str | None:
        """Return the limit that is reached, in words; None where there is room for another answer."""
        if limits.steps is not None and self.steps >= limits.steps:
            return f"{self.steps} of {limits.steps} answers (agent.max_steps)"
        if limits.cost is not None and self.cost >= limits.cost:
            return f"${self.cost:.4f} of ${limits.cost:.4f} (agent.max_cost)"
        return None


class Loop:
    """A model with tools on one conversation.

    Args:
        asker: asks the model.
        conversation: the messages so far, in their store.
        compactor: keeps the conversation inside the window.
        tools: the tools that the model may call, their context, and the approvals.
        limits: the most that one prompt may take.
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
        self.watch = WorkWatch(tools.context.interrupted)

    # -- the four verbs ------------------------------------------------------------------------------------------------

    def run(self, prompt: Prompt | None = None) -> TurnFinished:
        """Work on a prompt until the model is done, a limit is reached, or somebody stops it.

        Args:
            prompt: the user's words: a text, or parts with images; None to go on where the conversation stands.

        Raises:
            ProviderError: the model cannot be reached or will not answer; the conversation is kept, and can go on.
            StoreError: the conversation outgrew the window and could not be stored.
        """
        started = self._start_watch()
        text, detail = "", ""
        stop: Stop | None = None
        with ctrl_c_sets(self.tools.context.interrupted):
            try:
                self.prepare()
                if prompt is not None:
                    said = {"role": "user", "content": prompt if isinstance(prompt, str) else list(prompt)}
                    self.conversation.add(Said(said))
                while stop is None:
                    if detail := self.spent.limit_reached(self.limits) or "":
                        stop = "limit"
                        break
                    reply = self.step()
                    text = reply.text or text
                    stop = _stop_of(reply)
            except OutOfTime:
                stop, detail = "limit", f"{self.limits.seconds:g} seconds"
                self._close_answer(_TIME_IS_UP)
            except (Interrupted, KeyboardInterrupt):
                self.interrupt()  # for tools that are still at it
                stop = "interrupted"
                self._close_answer(_STOPPED)
        spent, seconds = self.spent, time.monotonic() - started
        session_id = self.conversation.session_id
        finished = TurnFinished(text, stop or "end", detail, spent.steps, spent.usage, spent.cost, seconds, session_id)
        self.listen(finished)
        return finished

    def step(self) -> Reply:
        """Get one answer of the model, run the tools that it asks for, and compact if that made it due."""
        reply = self.query()
        if reply.calls:
            self.execute(reply.calls)
        self.compactor.after_answer()
        return reply

    def query(self) -> Reply:
        """Return the model's answer to the conversation, which is made to fit the window first."""
        self.compactor.before_request()
        room = self._answer_room()
        for attempt in count():
            try:
                return self._ask(room)
            except (ContextOverflow, RequestTooLarge) as error:
                if attempt >= OVERFLOW_TRIES:
                    raise _does_not_fit(error, "does not fit after all that could be done") from error
                self.learn(error)
                smaller = self._smaller_room(error, room)
                if smaller is None and not self.compactor.after_overflow(error, attempt, room):
                    raise _does_not_fit(error, "cannot be made shorter") from error
                room = self._answer_room() if smaller is None else smaller
        raise AssertionError("counting does not end")

    def execute(self, calls: Sequence[ToolCall]) -> None:
        """Run the tools that the model asked for, one after the other; every call gets a result."""
        answered = 0
        try:
            for call in calls:
                self.watch.check()
                result = self._call(call)
                self.conversation.add(Said(result.message, result.whole))
                answered += 1
        finally:
            left = calls[answered:]
            notes = [_STOPPED, *[_NOT_RUN] * len(left)][: len(left)]
            for call, note in zip(left, notes, strict=True):
                self.conversation.add(Said({"role": "tool", "tool_call_id": call.id, "content": note}))

    # -- for whoever builds on the loop --------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Stop the work, from any thread; the conversation stays whole."""
        self.tools.context.interrupted.set()

    def prepare(self) -> None:
        """Make the conversation ready for a prompt; an interrupt leaves the prompt unsaid."""

    def learn(self, error: ProviderError) -> None:
        """Take in what a refusal says about the model."""

    # -- parts of the verbs --------------------------------------------------------------------------------------------

    def _start_watch(self) -> float:
        """Forget earlier interrupts and give the work that follows all its time; return the time now."""
        self.tools.context.interrupted.clear()
        self.spent = Spent()
        now = time.monotonic()
        deadline = None if self.limits.seconds is None else now + self.limits.seconds
        self.watch = WorkWatch(self.tools.context.interrupted, deadline)
        return now

    def _close_answer(self, note: str) -> None:
        """Leave a conversation that can go on: the answer so far is kept, every call has a result."""
        self.conversation.answer_what_is_open(note)
        said, self.asker.partial = self.asker.partial.strip(), ""
        if said:
            self.conversation.add(Said({"role": "assistant", "content": f"{said}\n\n{note}"}))

    def _answer_room(self) -> int:
        """Return the most tokens that the next answer may have."""
        return self.asker.answer_tokens(self.compactor.tokens, self.compactor.engine.context_length)

    def _smaller_room(self, error: ProviderError, room: int) -> int | None:
        """Return the room for a shorter answer, if the prompt itself fits; None if that has to become shorter."""
        left = self.asker.room_left(error, self.compactor.tokens, room)
        if left is not None:
            return left
        smaller = self._answer_room()  # of a window that turned out to be smaller than was thought
        return smaller if smaller < room else None

    def _ask(self, answer_tokens: int) -> Reply:
        conversation = self.conversation
        number = conversation.begin_turn(self.asker.model)
        try:
            reply = self.asker.ask(conversation.messages, answer_tokens, self.watch)
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

    def _call(self, call: ToolCall) -> ToolResult:
        summary = self.tools.describe(call)
        self.listen(ToolStarted(call, summary))
        with ctrl_c_raises():  # a person may be asked
            run = self.tools.ready(call)
        result = self.watch.call(run)
        self.listen(ToolFinished(call, summary, result.outcome, result.text, result.seconds))
        return result


def _stop_of(reply: Reply) -> Stop | None:
    """Return why a turn ends with this answer; None where it goes on."""
    if reply.calls or reply.stop == "pause":
        return None
    if reply.stop == "refusal":
        return "refusal"
    return "length" if reply.stop in {"length", "window"} else "end"


def _does_not_fit(error: ProviderError, why: str) -> ProviderError:
    """Return an error of the same kind that says what would help."""
    advice = "use a model with a larger window, fewer tools, or a shorter prompt"
    said = f"{error}; the conversation {why}: {advice}"
    return type(error)(said, provider=error.provider, model=error.model, status=error.status)
