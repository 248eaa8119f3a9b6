"""The conversation of an agent: the messages that are sent now, and their place in the store.

Every message is stored before anything else happens to it. If the store fails, the conversation goes on in memory with
a warning, and stores the missing messages as soon as it can; until then it is not compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from everlong.context.oversized import is_stub
from everlong.errors import NotStored, ProviderError, StoreError
from everlong.model import Message, calls_of, find_groups
from everlong.store.compaction import Occasion
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.context import ContextEngine
    from everlong.context.oversized import SpillLimits
    from everlong.providers.base import Reply
    from everlong.store import Compacted, Session, Store
    from everlong.store.paths import Entry

__all__ = ["AgentConversation", "Prompt", "Said", "prompt_parts"]

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]
"""A user's words: a text, or parts with images."""

_LOST_RESULT = (
    "[The program ended while this was running; whether it was done is not known. Check before doing it again.]"
)
_LOOK_BACK = 64
"""Blocks that are read at once on the way back to the user's last message."""


def prompt_parts(prompt: Prompt) -> list[Mapping[str, Any]]:
    """Return a prompt as parts."""
    return [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)


class Said(NamedTuple):
    """A message, and the whole output behind it where it shows only a part."""

    message: Message
    whole: str | None = None


class AgentConversation:
    """A conversation in a store; nothing is stored before the first message.

    Args:
        store: keeps it.
        system_prompt: sent with it.
        tools: the schemas sent with it.
        model: the model that answers.
        warn: told about trouble with the store.
        about: more about its session, as `Sessions.start` takes it.
    """

    def __init__(
        self,
        store: Store,
        *,
        system_prompt: str = "",
        tools: Sequence[dict[str, Any]] = (),
        model: str = "",
        warn: Callable[[str], None] = lambda _: None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.system_prompt = system_prompt
        """The prompt that it began with; notes that a compaction adds are in the messages only."""
        self.messages: list[Message] = self._first_messages
        self.tools = list(tools)
        self.model = model
        self.session: Session | None = None
        self.warn = warn
        self._about = dict(about or {})
        self._name = token_hex(16)
        """Keeps it apart from another conversation with the same words."""
        self.branch: Branch | None = None
        """The place in the store; None before the first message."""
        self._beginning: Branch | None = None
        """The place before the first message, if every message was taken back."""
        self._waiting: list[Said] = []
        self._is_troubled = False

    @classmethod
    def resume(cls, store: Store, name: str, *, model: str = "", warn: Callable[[str], None]) -> AgentConversation:
        """Go on with a stored conversation, at the newest end of its lineage.

        Calls that were running when the program ended get a result that says so. A rewound conversation goes on from
        there; if every message was taken back, there is no `branch` until the next one.
        """
        session = store.sessions.resume(store.conversations.find(name).parts[0])
        if session.branch is None:
            raise NotStored(f"session {session.id} has no messages; begin a new one")
        found = cls(store, model=model or session.model or "", warn=warn)
        found.session = session if session.ended is None else store.sessions.reopen(session.id)
        found.system_prompt = store.sessions.system_prompt(session.id) or ""
        if session.to_depth == 0:
            found._beginning, found.messages = store.branch(session.branch, 0), found._first_messages
            return found
        found.branch = store.branch(session.branch, session.to_depth)
        found.messages = store.context(found.branch)
        for turn in store.turns.of_session(session.id):
            if turn.status == "open":
                store.turns.finish(turn.id, status="cancelled", error="the program ended before the answer came")
        found.answer_what_is_open(_LOST_RESULT)
        return found

    def use_system_prompt(self, text: str, folder: str) -> None:
        """Send the conversation with another system prompt from now on, because it goes on in another folder.

        Raises:
            StoreError: it could not be stored; nothing has changed.
        """
        self.flush()
        place = self.branch or self._beginning
        if place is None or self.session is None or self._waiting:
            raise StoreError("the system prompt of a conversation that is not stored cannot be changed")
        self.store.use_system(place, text)
        self.session = self.store.sessions.move(self.session.id, folder, text)
        self.system_prompt = text
        self.messages = self._first_messages if self.branch is None else self.store.context(self.branch)

    @property
    def _first_messages(self) -> list[Message]:
        return [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []

    # -- saying --------------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The id of the session, even if it is not stored yet; empty where none was chosen."""
        return self.session.id if self.session is not None else str(self._about.get("ident") or "")

    def add(self, *said: Said) -> list[bytes]:
        """Append messages; return the ids of the stored ones, none if the store failed."""
        self.messages += [one.message for one in said]
        self._waiting += said
        return self.flush()

    def flush(self, then: Callable[[list[bytes]], None] | None = None) -> list[bytes]:
        """Store the waiting messages, call ``then`` in the same batch, and return their ids."""
        if not self._waiting:
            return []
        try:
            nodes = self._store_waiting(then)
        except StoreError as error:
            if not self._is_troubled:
                self.warn(f"the conversation could not be stored and goes on in memory for now: {error}")
            self._is_troubled = True
            return []
        if self._is_troubled:
            self.warn("the conversation is stored again, with everything that was said meanwhile")
        self._is_troubled = False
        return nodes

    def _store_waiting(self, then: Callable[[list[bytes]], None] | None) -> list[bytes]:
        nodes: list[bytes] = []
        session, before = self.session, self.branch or self._beginning
        at = before
        with self.store.batch():
            for said in self._waiting:
                if at is None:
                    lead = self.messages[: len(self.messages) - len(self._waiting)]
                    at = self.store.record([*lead, said.message], tools=self.tools, conversation=self._name)
                else:
                    at = self.store.append(at, [said.message])
                nodes.append(at.head)
                if said.whole is not None:
                    self.store.outputs.keep(at.head, said.whole)
            if at is not None and session is None:
                session = self._open_session(at)
            elif at is not None and session is not None and (before is None or at.id != before.id):
                session = self._attach(session, at)
            elif at is not None and session is not None and session.to_depth is not None:
                session = self.store.sessions.rewind(session.id, at.depth)  # the messages behind it were said once more
            if then is not None:
                then(nodes)
        # Only now, because it is the end of the batch that makes it durable.
        self.session, self.branch, self._beginning, self._waiting = session, at, None, []
        return nodes

    def _open_session(self, at: Branch) -> Session:
        said = next((one.message for one in self._waiting if one.message.get("role") == "user"), None)
        title = None if said is None else self.store.title_for([said])
        about = {"title": title, "model": self.model, "system_prompt": self.system_prompt, **self._about}
        return self.store.sessions.start(at, from_depth=0, **about)

    def _attach(self, session: Session, at: Branch) -> Session:
        if session.branch is None or session.to_depth is not None:  # it was rewound
            return self.store.sessions.attach(session.id, at)
        # Another process went on from the same place: from here on these are two conversations.
        other = self.store.sessions.start(
            at,
            title=session.title,
            model=self.model,
            system_prompt=self.system_prompt,
            client=session.client,
            folder=session.folder,
            works_for=session.conversation,
            from_depth=0,
        )
        self.warn(f"this conversation was continued elsewhere too; here it goes on as session {other.id}")
        return other

    def answer_what_is_open(self, text: str) -> None:
        """Answer every open call at the end with a text, so that the conversation can go on."""
        # Only calls of the last message with calls can be open; their results stand behind it.
        last = next((at for at in reversed(range(len(self.messages))) if calls_of(self.messages[at])), None)
        groups = find_groups(self.messages[last:]).groups if last is not None else []
        missing = groups[-1].missing if groups else []
        if missing:
            self.add(*(Said({"role": "tool", "tool_call_id": call.id, "content": text}) for call in missing))

    def rewind(self) -> Message | None:
        """Go back to before the user's last message, and return it; None where there is none.

        Whoever resumes the session goes on from there. The messages left behind stay in the store, on a branch of their
        own once something else is said here. It stays the same conversation, even if every message is taken back.

        Raises:
            StoreError: it could not be stored; nothing has changed.
        """
        self.flush()
        if self.branch is None or self._waiting:
            return None
        before, last = self._last_request(self.branch)
        if last is None:
            return None
        beginning = self.store.branch(self.branch.id, 0) if before is None else None
        self.session = self.store.sessions.rewind(self.session_id, before.depth if before is not None else 0)
        self.branch, self._beginning = before, beginning
        self.messages = self._first_messages if before is None else self.store.context(before)
        return last.message

    def _last_request(self, at: Branch) -> tuple[Branch | None, Entry | None]:
        """Return the place before the user's last message, and that message."""
        low = at.depth
        while low >= 0:
            low = max(-1, low - _LOOK_BACK)
            entries = [entry for entry in self.store.entries(at, low) if entry.id is not None]
            for place in reversed(range(len(entries))):
                if entries[place].message.get("role") == "user" and (place > 0 or low < 0):
                    found = entries[place - 1] if place else None
                    before = None if found is None or found.id is None else Branch(at.id, found.id, found.depth)
                    return before, entries[place]
        return None, None

    def undo_compaction(self) -> bool:
        """Undo the newest compaction, which brings its messages back; return False if there is none."""
        if self.branch is None or not self.store.undo(self.branch):
            return False
        self.messages = self.store.context(self.branch)
        return True

    # -- turns ---------------------------------------------------------------------------------------------------------

    def begin_turn(self, model: str) -> int | None:
        """Store that a request goes out; return its number, None if the store fails."""
        if self.branch is None or self._waiting:
            return None
        with self._noting():
            return self.store.turns.begin(self.branch, model=model, session=self.session_id).id
        return None

    def finish_turn(self, number: int | None, reply: Reply, cost: float | None) -> None:
        """Store an answer, as the end of its request and as a message, in one batch."""
        usage = reply.usage.to_dict()

        def finish(nodes: list[bytes]) -> None:
            if number is not None:
                with self._noting():
                    turns, node = self.store.turns, nodes[-1]
                    turns.finish(number, reply.message, usage=usage, cost=cost or 0.0, echo_node=node)

        self.messages.append(reply.message)
        self._waiting.append(Said(reply.message))
        self.flush(finish)

    def fail_turn(self, number: int | None, error: BaseException | str, *, is_cancelled: bool = False) -> None:
        """Store that a request brought no answer."""
        if number is not None:
            status: Any = "cancelled" if is_cancelled else "failed"
            is_refused = isinstance(error, ProviderError) and (error.status or 0) >= 400
            usage: dict[str, Any] | None = {} if is_refused else None
            with self._noting():
                self.store.turns.finish(number, status=status, error=str(error), usage=usage)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Store a note about a turn in a ``with`` block; a failure is only warned about."""
        try:
            yield
        except StoreError as error:
            if not self._is_troubled:
                self.warn(f"a request could not be stored, so `everlong usage` misses it: {error}")

    # -- compacting ----------------------------------------------------------------------------------------------------

    def compact(self, engine: ContextEngine, reason: str, profile: str, **options: Any) -> Compacted:
        """Compact the stored conversation with an engine, and go on with the result in a child session.

        Raises:
            StoreError: some messages are not stored yet; nothing is compacted before they are.
        """
        self.flush()
        if self._waiting or self.branch is None:
            raise StoreError(
                "the conversation is not in the store, so it is not compacted; make room or repair the store "
                "(`everlong sessions verify`), then go on"
            )
        occasion = Occasion(reason, self.session_id, self.model, profile)
        done = self.store.compact(self.branch, engine, occasion, roll_over=self.session_id, **options)
        if done.outcome != "unchanged":
            self.messages = done.messages
        if done.child is not None:
            self.session = self.store.sessions.get(done.child)
        if done.warning is not None:
            self.warn(done.warning)
        return done

    def spill(self, limits: SpillLimits, profile: str) -> int:
        """Send stubs in the place of messages that no window holds; return how many, 0 if nothing has changed."""
        self.flush()
        if self._waiting or self.branch is None:
            return 0  # a stub would name a message that nobody can read
        occasion = Occasion("oversized", self.session_id, self.model, profile)
        before = self.messages
        try:
            done = self.store.spill(self.branch, limits, occasion)
        except StoreError as error:
            self.warn(f"a message that is too large for the window could not be shortened: {error}")
            return 0
        if done.outcome != "compacted":
            return 0
        self.messages = done.messages
        return sum(map(is_stub, done.messages)) - sum(map(is_stub, before))

    def end(self, reason: str) -> None:
        """End the session."""
        self.flush()
        if self.session is not None:
            try:
                self.session = self.store.sessions.end(self.session.id, reason)
            except StoreError as error:
                self.warn(f"session {self.session.id} could not be ended: {error}")
