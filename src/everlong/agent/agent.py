"""The agent: a loop with a life around it.

`everlong.agent.open_agent` builds it from its `AgentParts`. The loop works on one prompt; the agent does what happens
before, after and between prompts: sessions begin and end, models change, pauses are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.agent.approval import NOTES_TOOL, ApprovalRequest
from everlong.agent.compaction import CompactionHooks, Compactor
from everlong.agent.conversation import Prompt, Said, prompt_parts
from everlong.agent.events import AgentEvent, Notice, SessionStarted, TurnFinished, unheard
from everlong.agent.loop import Limits, Loop
from everlong.agent.watch import OutOfTime, WorkWatch, ctrl_c_sets
from everlong.context.literals import summary_indices
from everlong.context.rules import EDIT_ANSWER, StandingRules, edit_message, standing_rules
from everlong.errors import ContextOverflow, ProviderError, StoreError, ToolError
from everlong.model import added_parts, counted, typed_words
from everlong.plugins.guard import GuardedEngine, compressors_in
from everlong.plugins.host import home as plugin_home
from everlong.providers.catalogue import relative_prices

if TYPE_CHECKING:
    from everlong.agent.conversation import AgentConversation
    from everlong.agent.model_calls import Asker, SideCalls
    from everlong.agent.tools.toolbox import ToolSet
    from everlong.context import ContextEngine, Summarizer
    from everlong.memory import Ask, MemoryManager
    from everlong.plugins.manager import Plugins
    from everlong.providers.connection import Connection
    from everlong.store import Compacted

__all__ = ["Agent", "AgentParts"]

_INDEXED_AT_ONCE = 1_024
"""Messages that are put into the search index after a compaction and at the end; a question indexes what is left."""


@dataclass(frozen=True)
class AgentParts:
    """The parts of an agent besides those of its loop."""

    engine: ContextEngine
    """Keeps the conversation inside the window."""
    plugins: Plugins
    side_calls: SideCalls
    """Keeps account of calls on the side."""
    asker_for: Callable[[Connection], Asker]
    """Makes the asker for another model."""
    conversation_for: Callable[[], AgentConversation]
    """Makes a conversation without messages."""
    summarizer_for: Callable[[Connection], Summarizer | None] = lambda _: None
    """Makes the writer of summaries for a conversation with this model."""
    memory: MemoryManager | None = None
    ask_memory: Ask | None = None
    """Asks the model what is worth remembering."""
    platform: str = "cli"
    """The session's origin."""
    compacts: bool = True
    """False to ignore the thresholds of compaction."""
    log_folder: Path | None = None
    """The folder for the JSON log of each session; None for no log."""


class Agent(Loop):
    """A model with tools, a memory and a conversation that does not end at the window."""

    def __init__(
        self,
        asker: Asker,
        conversation: AgentConversation,
        tools: ToolSet,
        parts: AgentParts,
        *,
        limits: Limits | None = None,
        listen: Callable[[AgentEvent], None] = unheard,
    ) -> None:
        compactor = Compactor(
            conversation,
            parts.engine,
            listen,
            CompactionHooks(
                lambda: self.watch.call(self.flush_memory),
                parts.side_calls.take_cost,
                self.session_facts,
                self._follow_roll_over,
            ),
            is_enabled=parts.compacts,
            log_folder=parts.log_folder,
        )
        compactor.reader = "read_turn" if tools.toolbox.get("read_turn") is not None else ""
        super().__init__(asker, conversation, compactor, tools, limits=limits, listen=listen)
        self.memory = parts.memory
        self.plugins = parts.plugins
        self.platform = parts.platform
        self.side_calls = parts.side_calls
        self._asker_for = parts.asker_for
        self._ask_memory = parts.ask_memory
        self._summarizer_for = parts.summarizer_for
        self._conversation_for = parts.conversation_for
        self._conversation_id = ""
        self._left_session = ""
        """The session whose end the engine was told."""
        self._is_resumed = False
        """True until a resumed conversation gets its first prompt."""

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
        """The line that a start shows about the provider's prompt cache."""
        cache = self.asker.cache
        return cache.choice.line if cache is not None else "💾 Prompt caching: DISABLED (no cache is set up)"

    # -- a session's life ----------------------------------------------------------------------------------------------

    def begin(self, *, is_resumed: bool = False) -> None:
        """Tell everybody that the session begins, or goes on."""
        session_id = self.conversation.session_id
        self._conversation_id = self._first_session_id()
        self.engine.on_session_start(session_id, **self.session_facts())
        self.listen(SessionStarted(session_id, self.asker.model, is_resumed))
        self._is_resumed = is_resumed

    def run(self, prompt: Prompt | None = None) -> TurnFinished:
        """Work on a prompt until the model is done, with what memory recalls of it. See `Loop.run`."""
        if self.memory is None or prompt is None or not self.memory.follows_turns:
            return super().run(prompt)
        said = typed_words({"role": "user", "content": prompt_parts(prompt)})
        recalled = self.memory.prefetch(said) if said else None
        if recalled is not None:
            prompt = [*prompt_parts(prompt), *added_parts(recalled)]
        finished = super().run(prompt)
        if finished.text:
            self.memory.sync_turn(said, finished.text)
        return finished

    def prepare(self) -> None:
        """Compact a resumed conversation that almost fills the window, before the model sees it."""
        if self._is_resumed:
            self.compactor.on_resume(self._last_reported_tokens())
            self._is_resumed = False

    def tidy(self, seconds: float) -> bool:
        """Compact a conversation that almost fills the window, before its next message; return whether it did.

        A compaction that fails or takes longer leaves the conversation as it was, with a notice.
        """
        self._start_watch()
        self.watch = WorkWatch(self.tools.context.interrupted, time.monotonic() + seconds)
        self._is_resumed = False
        before = self.compactor.count
        try:
            self.compactor.on_resume(self._last_reported_tokens())
        except OutOfTime:
            self.listen(Notice(f"a compaction took longer than {seconds:g} seconds; the conversation is as it was"))
        except (ProviderError, StoreError) as error:
            self.listen(Notice(f"the conversation could not be compacted and is as it was: {error}"))
        return self.compactor.count > before

    def end(self, reason: str = "exit") -> None:
        """End the session for good: tell engine and memory, and write the log."""
        messages, session_id = self.conversation.messages, self.conversation.session_id
        if self.conversation.branch is not None:
            self._tell_end()
            if self.memory is not None:
                self.memory.end(messages, self._ask_memory, self._approve_notes)
        self.conversation.end(reason)
        self.compactor.write_log(session_id if self.conversation.branch is not None else "")

    def reset(self, reason: str = "reset") -> None:
        """End the session, and begin another one without messages."""
        self.end(reason)
        self.engine.on_session_reset()
        conversation = self._conversation_for()  # with what was flushed to memory just now in its prompt
        self.conversation = self.compactor.conversation = conversation
        self.tools.context.session_id = conversation.session_id
        self.tools.approvals.remembered.clear()
        self.begin()

    def close(self, *, ends_session: bool = True) -> None:
        """Close connections, memory providers and the engine; the session can be resumed.

        With ``ends_session=False`` the engine does not hear that the session is over: a host puts the agent away and
        goes on with the session later.
        """
        self.conversation.flush()
        if self.conversation.branch is not None:
            self._index()
            if ends_session:
                self._tell_end()
        if self.memory is not None:
            self.memory.close()
        if isinstance(self.engine, GuardedEngine):
            self.engine.close()
        self.plugins.close()
        self.connection.close()

    def _tell_end(self) -> None:
        """Tell the engine, once, that the session is over."""
        session_id = self.conversation.session_id
        if session_id == self._left_session:
            return
        self._left_session = session_id
        self.engine.on_session_end(session_id, list(self.conversation.messages))

    def session_facts(self) -> dict[str, Any]:
        """Return what an engine is told of a session that begins or goes on."""
        return {
            "platform": self.platform,
            "model": self.connection.model,
            "context_length": self.engine.context_length,
            "conversation_id": self._conversation_id,
            "hermes_home": str(plugin_home()),
        }

    def _follow_roll_over(self, parent: str, child: str) -> None:
        self.tools.context.session_id = child
        if self.memory is not None:
            self.memory.switch(child, parent_session_id=parent, reason="compression")
        self._index()

    def _index(self) -> None:
        """Put messages into the search index: `recall` is asked for those that a compaction took out of the window."""
        try:
            self.conversation.store.searcher.index_pending(_INDEXED_AT_ONCE)
        except StoreError as error:
            self.listen(Notice(f"the latest messages are not in the search index yet: {error}"))

    def _first_session_id(self) -> str:
        """Return the id of the session with which the conversation began."""
        if self.conversation.session is None:
            return self.conversation.session_id
        try:
            return self.conversation.store.conversations.parts(self.conversation.session_id)[0].id
        except StoreError:
            return self.conversation.session_id

    def _last_reported_tokens(self) -> int | None:
        """Return the prompt and answer tokens that the provider reported last for this session."""
        turns = self.conversation.store.turns.of_session(self.conversation.session_id)
        for turn in reversed(turns):
            if turn.usage and turn.status == "done":
                return int(turn.usage.get("total_tokens") or 0) or None
        return None

    # -- compacting by hand --------------------------------------------------------------------------------------------

    def compress(self, focus_topic: str | None = None) -> Compacted:
        """Compact the conversation now, whatever its size; `interrupt` stops it, and nothing has changed then."""
        self._start_watch()
        with ctrl_c_sets(self.tools.context.interrupted):
            return self.compactor.compress_context("manual", focus_topic=focus_topic, force=True)

    def flush_memory(self) -> str | None:
        """Let memory save what is worth keeping, and return what a summary should keep."""
        if self.memory is None:
            return None
        messages = self.conversation.messages
        self.memory.flush(messages, self._ask_memory, approve=self._approve_notes)
        return self.memory.before_compaction(messages)

    def _approve_notes(self, changes: Sequence[str]) -> bool:
        """Ask the user whether the notes that a model wrote may be saved, and return the answer."""
        count = f"{counted(len(changes), 'change')} of what is remembered"
        request = ApprovalRequest(NOTES_TOOL, "writes", count, "\n".join(changes), "all that is kept at compactions")
        return self.tools.approvals.decide(NOTES_TOOL, request).is_allowed

    # -- standing rules ------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> StandingRules:
        """The user's standing rules that are in force now, oldest first."""
        messages = self.conversation.messages
        return standing_rules(messages, summary_indices(messages))

    def edit_rules(self, added: Sequence[str] = (), removed: Sequence[str] = ()) -> None:
        """Add and remove standing rules by their words; they are stored at once and count from the next request on.

        Raises:
            ToolError: the last prompt has no answer yet.
        """
        self._start_watch()
        said = self.conversation.messages
        if said and said[-1].get("role") not in ("assistant", "system"):
            raise ToolError("the last prompt was not answered; /retry asks again, /undo takes it back")
        self.conversation.add(Said(edit_message(added, removed)), Said({"role": "assistant", "content": EDIT_ANSWER}))

    # -- between prompts -----------------------------------------------------------------------------------------------

    def retry(self) -> TurnFinished | None:
        """Ask for another answer to the last prompt; None where there is no prompt. The store keeps the old answer."""
        said = self.conversation.rewind()
        if said is None:
            return None
        self.engine.update_from_response({})  # the reported tokens belong to the old answer
        content = said.get("content")
        return self.run(content if isinstance(content, str | list) else "")

    # -- models --------------------------------------------------------------------------------------------------------

    def switch_model(self, connection: Connection) -> None:
        """Go on with another model; if its window is smaller, compact with the old model first."""
        old = self.asker
        connection.catalogue.learn(connection.model_name, self.conversation.store.noted_window(connection.place))
        self.use_window(connection, connection.info.context_length)
        if self.conversation.branch is not None:
            self.compactor.on_smaller_window()
        self.asker = self._asker_for(connection)
        self.use_model(connection)
        self.conversation.model = self.asker.model
        if self.conversation.session is not None:
            try:
                self.conversation.store.sessions.use_model(self.conversation.session_id, self.asker.model)
            except StoreError as error:
                self.listen(Notice(f"the session's new model could not be stored: {error}"))
        if old.connection is not connection:
            old.connection.close()

    def learn(self, error: ProviderError) -> None:
        """Believe what a refusal says about the window."""
        if not isinstance(error, ContextOverflow):
            return
        connection = self.connection
        connection.catalogue.learn(connection.model_name, error.limit)
        window = connection.info.context_length
        if error.limit:
            try:
                self.conversation.store.note_window(connection.place, window)
            except StoreError as failure:
                self.listen(Notice(f"the window of {connection.model_name} could not be stored: {failure}"))
        if window < self.engine.context_length:
            self.listen(Notice(f"{connection.model_name} has a window of {window:,} tokens, less than was thought"))
            self.use_window(connection, window)
            if any(one.summarizer is not None for one in compressors_in(self.engine)):  # who wants none gets none
                self.use_model(connection)

    def use_model(self, connection: Connection) -> None:
        """Tell the engine who writes summaries for the model."""
        for compressor in compressors_in(self.engine):
            compressor.summarizer = self._summarizer_for(connection)

    def use_window(self, connection: Connection, window: int) -> None:
        """Tell the engine which model the conversation is with, what it costs and how large its window is."""
        address = connection.endpoint.base_url or ""
        for compressor in compressors_in(self.engine):
            compressor.answer_tokens = self.asker.answer_tokens(0, window)
            compressor.prices = relative_prices(connection.info)
        self.engine.update_model(connection.model, window, base_url=address, provider=connection.endpoint.name)
