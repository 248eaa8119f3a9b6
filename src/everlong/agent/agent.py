"""The agent: the loop with a life around it. Sessions begin and end, models change, pauses are used, lists survive.

Made by `everlong.agent.open_agent`. What happens inside a prompt is the loop's business; this module knows what happens
before, after and between prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everlong.agent.conversation import Said
from everlong.agent.events import Notice, SessionStarted, Stop, TurnFinished
from everlong.agent.plugin_hooks import PluggedLoop
from everlong.agent.tools.todo import NAME, TodoList
from everlong.agent.watch import ctrl_c_sets
from everlong.caching.keepalive import KeepAlive, keep_alive
from everlong.context.literals import summary_indices
from everlong.context.rules import EDIT_ANSWER, StandingRules, edit_message, standing_rules
from everlong.errors import ContextOverflow, ProviderError, StoreError, ToolError
from everlong.model import Message, ToolCall, calls_of, text_of
from everlong.plugins.adapters.host_state import home as plugin_home
from everlong.plugins.guard import GuardedEngine, compressors_in
from everlong.providers.catalogue import relative_prices

if TYPE_CHECKING:
    from everlong.agent.compaction import Compactor
    from everlong.agent.conversation import AgentConversation
    from everlong.agent.model_calls import Asker, SideCalls
    from everlong.agent.tools.toolbox import ToolResult
    from everlong.context import ContextEngine, Summarizer
    from everlong.memory import MemoryManager
    from everlong.plugins.manager import Plugins
    from everlong.providers.base import Usage
    from everlong.providers.connection import Connection
    from everlong.store import Compacted
    from everlong.store.paths import Entry

__all__ = ["Agent", "PauseWork", "TodoKeeper"]

_MARGIN = 30.0
"""Seconds before the provider forgets the conversation in which it is compacted."""


@dataclass
class PauseWork:
    """The pauses of one conversation.

    ``hold_seconds`` is how long the provider holds a prompt; ``compacts`` and ``keeps_alive`` are what the user wants.
    """

    hold_seconds: float = 300.0
    compacts: bool = False
    keeps_alive: bool = False
    pings: int = 0
    """So many were sent in this pause."""
    last_ping: Usage | None = None

    def over(self) -> None:
        """The pause is over."""
        self.pings = 0

    def rest(self, idle: float, asker: Asker, compactor: Compactor) -> float | None:
        """Use the pause so far; seconds after which to call again, None where it is of no more use.

        Args:
            idle: seconds since the last answer.
            asker: who was asked.
            compactor: keeps the conversation inside the window.
        """
        if compactor.conversation.branch is None:
            return None
        waits = [self._compacted(idle, compactor), self._kept_alive(idle, asker)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _compacted(self, idle: float, compactor: Compactor) -> float | None:
        if not self.compacts or idle >= self.hold_seconds:
            return None
        wait = self.hold_seconds - _MARGIN - idle
        if wait <= 0:
            compactor.in_a_pause()
            return None
        return wait

    def _kept_alive(self, idle: float, asker: Asker) -> float | None:
        plan = self._plan(asker) if self.keeps_alive else None
        if plan is None or self.pings >= plan.pings:
            return None
        wait = plan.interval * (self.pings + 1) - idle
        if wait > 0:
            return wait
        if idle >= plan.interval * self.pings + self.hold_seconds:
            return None  # nobody called in time: it is forgotten already
        try:
            self.last_ping = asker.ping()
        except ProviderError:  # a ping is an economy; the next prompt will tell what is wrong
            return None
        self.pings += 1
        return plan.interval * (self.pings + 1) - idle if self.pings < plan.pings else None

    def _plan(self, asker: Asker) -> KeepAlive | None:
        cache = asker.cache
        if cache is None or cache.choice.strategy != "ledger" or cache.last is None:
            return None
        ttl = "1h" if self.hold_seconds > 300 else "5m"
        return keep_alive({}, cache.last.prompt_tokens, cache.choice.model_rules, ttl)


_NEAR = 64
"""A call stands at most so many blocks before its result."""


class TodoKeeper:
    """Keeps the todo list of one conversation."""

    def __init__(self, conversation: AgentConversation, todo: TodoList, warn: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._todo = todo
        self._warn = warn
        self._node: bytes | None = None
        self._pinned: bytes | None = None

    def noted(self, call: ToolCall, result: ToolResult, nodes: Sequence[bytes]) -> None:
        """A call was answered; if it was one that wrote the list, its result holds it now."""
        if call.name == NAME and result.outcome == "done" and nodes:
            self._node = nodes[-1]

    def pin(self) -> None:
        """Have the list told in its own words behind the summary that is about to be made.

        To be called then and not earlier: a pin that moves changes what the provider has cached.
        """
        store = self._conversation.store
        if self._node is None or self._node == self._pinned:
            return
        try:
            if self._pinned is not None:
                store.unpin(self._pinned)
            store.pin(self._node)
        except StoreError as error:
            self._warn(f"the todo list could not be pinned: {error}")
            return
        self._pinned = self._node

    def restore(self) -> None:
        """Find the newest list of a stored conversation: in this session's messages, else among what is pinned."""
        store, at = self._conversation.store, self._conversation.branch
        if at is None:
            return
        for entry in store.pinned(at):
            self._read(store.entries(at, max(-1, entry.depth - _NEAR), entry.depth), entry.id)
        self._pinned = self._node
        # What was said in this session is in the messages: only where a list is among them it is looked up.
        if any(call.name == NAME for message in self._conversation.messages for call in calls_of(message)):
            self._read(store.sessions.entries(self._conversation.session_id))

    def _read(self, said: Sequence[Entry], only: bytes | None = None) -> None:
        """Take over the lists that results confirm, the newest last; or the one of a single result."""
        written: dict[object, Message] = {}
        for entry in said:
            message = entry.message
            written |= {call.id: message for call in calls_of(message) if call.name == NAME}
            confirms = message.get("role") == "tool" and not message.get("is_error") and only in {None, entry.id}
            if confirms and (call_message := written.get(message.get("tool_call_id"))) is not None:
                self._todo.replace(TodoList.from_messages([call_message]).items)
                self._node = entry.id


_INDEXED_AT_ONCE = 256
"""Messages that are put into the search index after a prompt, at most."""


class Agent(PluggedLoop):
    """A model with tools, a memory and a conversation that does not end at the window."""

    memory: MemoryManager | None = None
    plugins: Plugins
    """What is plugged in; set by `open_agent`."""
    side_calls: SideCalls
    """Takes in what calls on the side cost; set by `open_agent`."""
    asker_for: Callable[[Connection], Asker]
    """Makes the asker for another model; set by `open_agent`."""
    summarizer_for: Callable[[Connection], Summarizer | None] = staticmethod(lambda _: None)
    """Who writes summaries while a model is in force."""
    conversation_for: Callable[[], AgentConversation]
    """Makes a conversation in which nothing was said yet."""
    pauses: PauseWork
    """What is done while nobody says anything."""
    platform: str = "cli"
    """Where the session comes from."""
    _conversation_id: str = ""
    _left_session: str = ""
    """The session of which the engine was told that it is over."""
    todos: TodoKeeper

    @property
    def engine(self) -> ContextEngine:
        """Keeps the conversation inside the window."""
        return self.compactor.engine

    @property
    def connection(self) -> Connection:
        """The model that is talked to."""
        return self.asker.connection

    @property
    def caching_line(self) -> str:
        """What is said at start about the provider's prompt cache."""
        cache = self.asker.cache
        return cache.choice.line if cache is not None else "💾 Prompt caching: DISABLED (no cache is set up)"

    # -- a session's life ----------------------------------------------------------------------------------------------

    def begin(self, *, is_resumed: bool = False) -> None:
        """Tell everybody that the session begins, or goes on; a full one is compacted before the model sees it."""
        self.todos = TodoKeeper(self.conversation, self.tools.context.todo, lambda text: self.listen(Notice(text)))
        self.compactor.before = self.todos.pin
        self.compactor.went_on = self._goes_on
        self.compactor.wait = self._waited
        self.compactor.session_facts = self._session_facts
        if isinstance(self.engine, GuardedEngine):
            self.engine.check = lambda: self.watch.check()  # noqa: PLW0108 - each prompt has a watch of its own
        session_id = self.conversation.session_id
        self._conversation_id = self._first_of_lineage()
        self.engine.on_session_start(session_id, **self._session_facts())
        self.listen(SessionStarted(session_id, self.asker.model, is_resumed))
        if is_resumed:
            self.todos.restore()
            self.compactor.on_resume(self._last_reported())

    def run(self, prompt: str | Sequence[Mapping[str, Any]] | None = None) -> TurnFinished:
        """Work on a prompt until the model is done; memories hear of it. See `Loop.run`."""
        self.pauses.over()
        if self.memory is None or prompt is None:
            return super().run(prompt)
        said = prompt if isinstance(prompt, str) else text_of({"role": "user", "content": list(prompt)})
        recalled = self.memory.prefetch(said)
        if recalled is not None:
            prompt = [*user_parts(prompt), {"type": "text", "text": recalled}]
        finished = super().run(prompt)
        if finished.text:
            self.memory.sync_turn(said, finished.text)
        return finished

    def _finished(self, text: str, stop: Stop, detail: str, started: float) -> TurnFinished:
        finished = super()._finished(text, stop, detail, started)
        try:  # now, while nobody waits, so that the next `recall` need not
            self.conversation.store.searcher.index_pending(_INDEXED_AT_ONCE)
        except StoreError as error:
            self.listen(Notice(f"what was said could not be indexed for the search yet: {error}"))
        return finished

    def end(self, reason: str = "exit") -> None:
        """End the session for good: engine and memory are told, the log is written."""
        messages, session_id = self.conversation.messages, self.conversation.session_id
        if self.conversation.branch is not None:
            self._left(reason)
            if self.memory is not None:
                self.memory.end(messages, self.compactor.ask, self.compactor.approve_notes)
        self.conversation.end(reason)
        self.compactor.write_log(session_id if self.conversation.branch is not None else "")

    def reset(self, reason: str = "reset") -> None:
        """End the session, and begin another one with nothing said."""
        self.end(reason)
        self.engine.on_session_reset()
        self.hooks.fire("on_session_reset", session_id=self.conversation.session_id, platform="cli")
        conversation = self.conversation_for()
        self.conversation = self.compactor.conversation = conversation
        self.tools.context.session_id = conversation.session_id
        self.tools.context.todo.replace([])
        self.tools.approvals.remembered.clear()
        if self.memory is not None:
            self.memory.switch(conversation.session_id, reason=reason)
        self.begin()

    def close(self) -> None:
        """Let go of connections and of memory providers; the engine is told, and the session can be resumed."""
        self.conversation.flush()
        if self.conversation.branch is not None:
            self._left("exit")
        if self.memory is not None:
            self.memory.close()
        if isinstance(self.engine, GuardedEngine):
            self.engine.close()
        self.plugins.close()
        self.connection.close()

    def _left(self, reason: str) -> None:
        """Tell the engine and plugins, once, that nothing more comes in this session."""
        session_id = self.conversation.session_id
        if session_id == self._left_session:
            return
        self._left_session = session_id
        self.engine.on_session_end(session_id, list(self.conversation.messages))
        self.hooks.fire("on_session_end", session_id=session_id, reason=reason, platform="cli")

    def _waited(self, work: Callable[[], str | None]) -> str | None:
        return self.watch.call(work)  # each prompt has a watch of its own

    def _session_facts(self) -> dict[str, Any]:
        """What an engine is told of a session that begins or goes on."""
        return {
            "platform": self.platform,
            "model": self.connection.model,
            "context_length": self.engine.context_length,
            "conversation_id": self._conversation_id,
            "hermes_home": str(plugin_home()),
        }

    def _first_of_lineage(self) -> str:
        """The id of the session with which the conversation began; it stays while sessions follow each other."""
        if self.conversation.session is None:
            return self.conversation.session_id
        try:
            return self.conversation.store.sessions.lineage(self.conversation.session_id)[0].id
        except StoreError:
            return self.conversation.session_id

    def _goes_on(self, child: str) -> None:
        self.tools.context.session_id = child

    def _last_reported(self) -> int | None:
        """The prompt and answer tokens that the provider reported last for this session."""
        turns = self.conversation.store.turns.of_session(self.conversation.session_id)
        for turn in reversed(turns):
            if turn.usage and turn.status == "done":
                return int(turn.usage.get("total_tokens") or 0) or None
        return None

    # -- compacting by hand, in pauses, and for another model ----------------------------------------------------------

    def compress(self, focus_topic: str | None = None) -> Compacted:
        """Compact the conversation now, whatever its size; `interrupt` stops it, and nothing has changed then."""
        self._begin()
        with ctrl_c_sets(self.tools.interrupted):
            return self.compactor.compress_context("manual", focus_topic=focus_topic, force=True)

    # -- standing rules ------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> StandingRules:
        """The user's standing rules that are in force now, oldest first."""
        messages = self.conversation.messages
        return standing_rules(messages, summary_indices(messages))

    def edit_rules(self, added: Sequence[str] = (), removed: Sequence[str] = ()) -> None:
        """Add and remove standing rules, by their words; stored at once, and in force from the next request on.

        Raises:
            ToolError: the last prompt has no answer yet.
        """
        self._begin()
        said = self.conversation.messages
        if said and said[-1].get("role") not in ("assistant", "system"):
            raise ToolError("the last prompt was not answered; /retry asks again, /undo takes it back")
        self.conversation.add(Said(edit_message(added, removed)), Said({"role": "assistant", "content": EDIT_ANSWER}))

    def retry(self) -> TurnFinished | None:
        """Ask for another answer to the last prompt; None where there is none. The old one stays in the store."""
        said = self.conversation.rewind()
        if said is None:
            return None
        self.engine.update_from_response({})  # what was reported belongs to what is gone
        content = said.get("content")
        return self.run(content if isinstance(content, str | list) else "")

    def rest(self, idle: float) -> float | None:
        """Use a pause as the settings say: compact what would soon be due, or keep the provider from forgetting.

        Args:
            idle: seconds since the last answer.

        Returns:
            Seconds after which to call again; None where this pause is of no more use.
        """
        self._begin()
        sent = self.pauses.pings
        wait = self.pauses.rest(idle, self.asker, self.compactor)
        if self.pauses.pings > sent and self.pauses.last_ping is not None and self.side_calls is not None:
            self.side_calls.paid("ping", self.connection, self.pauses.last_ping)
        return wait

    def switch_model(self, connection: Connection) -> None:
        """Go on with another model; if its window is smaller, the old model first compacts for it."""
        old = self.asker
        self.use_window(connection, connection.info.context_length)
        if self.conversation.branch is not None:
            self.compactor.on_smaller_window()
        self.asker = self.asker_for(connection)
        self.use_model(connection)
        self.conversation.model = self.asker.model
        if self.conversation.session is not None:
            try:
                self.conversation.store.sessions.use_model(self.conversation.session_id, self.asker.model)
            except StoreError as error:
                self.listen(Notice(f"the session's model could not be noted: {error}"))
        if old.connection is not connection:
            old.connection.close()

    def learn(self, error: ProviderError) -> None:
        """Believe what a refusal says about the window."""
        if not isinstance(error, ContextOverflow):
            return
        connection = self.connection
        connection.catalogue.learn(connection.model_name, error)
        window = connection.info.context_length
        if window < self.engine.context_length:
            self.listen(Notice(f"{connection.model_name} has a window of {window:,} tokens, less than was thought"))
            self.use_window(connection, window)
            if any(one.summarizer is not None for one in compressors_in(self.engine)):  # who wants none gets none
                self.use_model(connection)

    def use_model(self, connection: Connection) -> None:
        """Let the engine know what the model costs and who writes summaries for it."""
        for compressor in compressors_in(self.engine):
            compressor.summarizer = self.summarizer_for(connection)
            compressor.prices = relative_prices(connection.info)

    def use_window(self, connection: Connection, window: int) -> None:
        """Let the engine know which model the conversation is with, and how much fits into it."""
        address = connection.endpoint.base_url or ""
        for compressor in compressors_in(self.engine):
            compressor.answer_tokens = self.asker.answer_tokens(0, window)
        self.engine.update_model(connection.model, window, base_url=address, provider=connection.endpoint.name)

    def answered(self, call: ToolCall, result: ToolResult, nodes: Sequence[bytes]) -> None:
        """Remember where the newest todo list stands."""
        self.todos.noted(call, result, nodes)


def user_parts(prompt: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What a user says, as parts."""
    return [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
