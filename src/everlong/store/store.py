"""The store of conversations: record what was said, get back what to send.

    with Store.open("conversations.db") as store:
        branch = store.record(messages)
        messages = store.context(branch)

Both verbs work on whole lists, so a caller needs to keep nothing but the list. Everything else (views, sessions,
search) stands on these two. The store is synchronous and may be used from several threads and processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, select, update

from everlong.arguments import refuse
from everlong.config.paths import data_home
from everlong.context.engine import ContextEngine
from everlong.context.oversized import SpillLimits
from everlong.model import Message, Trace, check_messages, checked_messages, is_system, list_messages
from everlong.redaction import redact_values
from everlong.store.compaction import (
    MANUAL,
    OVERSIZED,
    Compacted,
    Compaction,
    Occasion,
    compact,
    history,
    see,
    spill,
    undo,
    view_at,
)
from everlong.store.content import blob, encoded
from everlong.store.conversations import Conversations
from everlong.store.core import StoreCore
from everlong.store.costs import Receipts
from everlong.store.database import Database, TryAgain
from everlong.store.identity import Identity
from everlong.store.identity.cleared_results import carry, view_to_carry
from everlong.store.opening import open_database
from everlong.store.outputs import Outputs, ReadPage, page_of
from everlong.store.paths import read_message
from everlong.store.schema import branch as branches, noted_window
from everlong.store.sessions import Sessions
from everlong.store.summaries import StoredGraph
from everlong.store.tombstones import title_of_opening
from everlong.store.tree import BATCH, Aside, Branch, Match, NewMessage, RecordRequest, find_deepest
from everlong.store.turns import Turns
from everlong.store.upkeep.forget import Forgotten, forget
from everlong.store.upkeep.maintenance import retain
from everlong.store.upkeep.verify import Verified, verify
from everlong.store.views import ViewItem, items_of

if TYPE_CHECKING:
    from everlong.config.settings import StoreSettings
    from everlong.store.search import Page, Searcher
    from everlong.store.search.vectors import Embedder


_BELIEVED_SECONDS = 30 * 86_400
"""Seconds after which a noted window counts no more; the server may have a larger one by then."""


class Store(StoreCore, AbstractContextManager["Store"]):
    """Conversations of one tenant in one database; ``sessions``, ``conversations`` and ``turns`` list and read them.

    >>> with Store.open("conversations.db") as store:
    ...     branch = store.record(messages)
    ...     shorter = store.compact(branch, ContextCompressor(16_000)).messages
    ...     is_undone = store.undo(branch)
    ...     len(shorter) < len(store.context(branch)) == len(messages)
    True
    """

    def __init__(
        self,
        database: Database,
        tenant: str = "local",
        *,
        redact: Callable[[Message], Message] | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        super().__init__(database, tenant, redact=redact)
        self._embedder = embedder
        self.sessions = Sessions(self)
        self.conversations = Conversations(self, self.sessions)
        self.identity = Identity(self, self.sessions)
        self.turns = Turns(self, self.identity)
        self.receipts = Receipts(self)
        self.outputs = Outputs(self)

    @classmethod
    def open(
        cls, url_or_path: str | Path, tenant: str = "local", *, wait: float = 10.0, embedder: Embedder | None = None
    ) -> Store:
        """Open a store by the path of a SQLite file or by a url; create it if it is not there.

        With an ``embedder``, questions also find messages by their meaning.
        """
        return cls(open_database(url_or_path, wait), tenant, embedder=embedder)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- recording -----------------------------------------------------------------------------------------------------

    def record(
        self,
        messages: Iterable[Message],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        times: Sequence[float] | None = None,
        ext_id: str | None = None,
        conversation: str = "",
    ) -> Branch:
        """Store a conversation as far as it is not known; durable when this returns. Recording again adds nothing.

        Without a name a conversation is recognised by its words, and goes on from any that begins with the same ones.

        Args:
            messages: The conversation from its first message on, with the system messages that it is sent with.
            tools: The tools that it is sent with.
            times: When each message was said, in seconds since 1970; now, if not given.
            ext_id: The client's name for the conversation, which tells those that begin alike apart.
            conversation: The name of the conversation: it goes on from what was recorded under the same name, and never
                from another one, whatever it says.
        """
        given: list[Any] = list_messages(messages)
        lead = next((at for at, one in enumerate(given) if not isinstance(one, dict) or not is_system(one)), len(given))
        check_messages(given[:lead])
        said: list[Message] = given[lead:]
        root = self.chain.root(conversation)
        known: Trace | None = None
        if self.database.in_batch:  # what is imported in a batch does not come again soon
            check_messages(said, lead)
        else:
            known = self.checkpoints.traced(said, self.cleaned, root, skip=lead)
        preamble = None
        if lead or tools:
            sent = {"system": [self.cleaned(one) for one in given[:lead]], "tools": self.cleaned_tools(tools)}
            preamble = blob(self.tenant, encoded(sent))
        request = RecordRequest(
            self.chain,
            root,
            said,
            times[lead:] if times else [time.time()] * len(said),
            preamble=preamble,
            ext_id=ext_id,
            clean=self.cleaned,
            known=known,
            root=root.id if conversation else None,
        )
        return self._record(request) if conversation else self._record(*self.identity.resolve(request))

    def batch(self) -> AbstractContextManager[None]:
        """Commit what this thread stores in a ``with`` block together at its end, rather than one by one.

        For many small conversations, which would each wait for the disk. One that fails does not take the others with
        it; others who write wait for at most half a second. Nothing that takes long (a model's answer) belongs in it.
        """
        return self.database.batch()

    def append(self, to: Branch, messages: Iterable[Message], *, times: Sequence[float] | None = None) -> Branch:
        """Store messages after a place in the tree; the same as recording the whole list, without reading it again."""
        said = checked_messages(messages)
        request = RecordRequest(
            self.chain,
            to.node,
            said,
            times or [time.time()] * len(said),
            to.id,
            clean=self.cleaned,
        )
        return self._record(request)

    def use_system(self, at: Branch, text: str) -> None:
        """Send a branch with another system prompt from now on, and with the tools that it has."""

        def work(connection: Connection) -> None:
            held = connection.execute(select(branches.c.preamble).where(branches.c.id == at.id)).scalar()
            before = {} if held is None else self.reader.values(connection, [bytes(held)])[bytes(held)]
            system = [self.cleaned({"role": "system", "content": text})] if text else []
            made = blob(self.tenant, encoded({"system": system, "tools": before.get("tools")}))
            self.recorder.add_contents(connection, self.tenant, [(made, [])])
            connection.execute(update(branches).where(branches.c.id == at.id).values(preamble=made.digest))

        self.database.write(work)

    def _record(self, request: RecordRequest, match: Match | None = None) -> Branch:
        """Record a list after the deepest known node, which is looked for if it is not given."""
        if request.start_branch is not None and request.base is None and request.trace.ids:
            # Messages after the end of a branch are mostly new, so they are not looked up; the insert finds known ones.
            try:
                return self._write(request, Match(request.start_branch, request.start.id, request.start.depth))
            except TryAgain:
                pass
        if match is None:
            with self.database.read() as connection:
                match = find_deepest(connection, self.database, request)
                if match.branch is not None and _is_known(connection, request, match):
                    return Branch(match.branch, match.id, match.depth)

        def write(attempt: int) -> Branch:
            nonlocal match
            if attempt or match is None:
                with self.database.read() as connection:
                    match = find_deepest(connection, self.database, request)
            return self._write(request, match)

        return self.database.retry(write)

    def _write(self, request: RecordRequest, match: Match, at_once: int | None = BATCH) -> Branch:
        now = time.time()
        waiting = request.additions(match.depth)
        while True:
            batch = list(islice(waiting, at_once))
            try:
                done = self.database.write(partial(self._write_batch, request, match, batch, now))
            except _MustWriteAll:
                return self._write(request, match, None)
            if at_once is None or len(batch) < at_once:
                return done
            match = Match(done.id, done.head, done.depth)

    def _write_batch(
        self,
        request: RecordRequest,
        match: Match,
        batch: list[tuple[NewMessage, list[Aside]]],
        now: float,
        connection: Connection,
    ) -> Branch:
        locked = self.recorder.lock(connection, match)
        done = self.recorder.add_at(locked, request, match, batch, now, connection)
        is_fork = match.branch is not None and done.id != match.branch
        if is_fork and (carried := view_to_carry(self, connection, request, match)):
            if done.depth < carried.saw_depth:
                raise _MustWriteAll
            carry(self, connection, carried, done)
        return done

    # -- reading -------------------------------------------------------------------------------------------------------

    def context(self, at: Branch) -> list[Message]:
        """Return the messages to send: system messages, the view in force, and all messages that it does not cover."""
        return see(self, at).messages

    # -- views ---------------------------------------------------------------------------------------------------------

    def compact(self, at: Branch, engine: ContextEngine, occasion: Occasion = MANUAL, **options: Any) -> Compacted:
        """Have an engine compact a branch and put the result in force; ``options`` go to it if it takes them."""
        if callable(attach := getattr(engine, "attach", None)):
            graph = getattr(engine, "graph", None)
            if not isinstance(graph, StoredGraph) or not graph.is_of_host:  # its host does not tell where it is
                attach(self.graph(at))
        return compact(self, at, engine, occasion, **options)

    def graph(self, at: Branch | Callable[[], Branch | None]) -> StoredGraph:
        """Return the graph of summaries that the engine ``lcm`` makes for a conversation.

        Args:
            at: where the conversation is, or a function that tells where it is by now.
        """
        return StoredGraph(self, at, lambda: self.searcher)

    def spill(self, at: Branch, limits: SpillLimits, occasion: Occasion = OVERSIZED) -> Compacted:
        """Send stubs in the place of messages that no window holds; `read` and ``read_turn`` give the whole."""
        return spill(self, at, limits, occasion)

    def view_items(self, at: Branch) -> tuple[list[ViewItem], int]:
        """Return the items of the view in force at a place, and the depth that it covers; none and 0 without a view."""
        with self.database.read() as connection:
            shown = view_at(connection, at)
            return ([], 0) if shown is None else (items_of(connection, self.reader, shown.id), shown.cover_depth)

    def undo(self, at: Branch) -> bool:
        """Take back the latest compaction of a branch, of no other; return False if there is none."""
        is_undone = undo(self, at)
        self.database.backend.announce_views()
        return is_undone

    def compactions(self, *, session: str | None = None, branch: int | None = None) -> list[Compaction]:
        """Return the compaction history of a session, of a branch, or of all, oldest first."""
        return history(self, session=session, branch=branch)

    # -- finding, forgetting, checking ---------------------------------------------------------------------------------

    def search(self, text: str, **options: Any) -> Page:
        """Return one page of what was said about something; see `everlong.store.search.Searcher.search`."""
        return self.searcher.search(text, **options)

    @cached_property
    def searcher(self) -> Searcher:
        """The search over this tenant's conversations."""
        from everlong.store.search import Searcher  # noqa: PLC0415 - what it needs is loaded only where it is used

        return Searcher(self.database, self.tenant, embedder=self._embedder)

    def read(self, node: bytes, page: int = 1, chars: int = 8_000) -> ReadPage:
        """Return one page of a message's words, of so many characters; the first page is 1."""
        return page_of(read_message(self.database, self.tenant, node), page, chars)

    def forget(self, nodes: Sequence[bytes]) -> Forgotten:
        """Forget messages for good, wherever the same words stand; sent again, they are not stored again."""
        return forget(self, nodes)

    def title_for(self, messages: Sequence[Message]) -> str | None:
        """Return the title that the first messages of a conversation give it; None if its words are forgotten."""
        with self.database.read() as connection:
            return title_of_opening(connection, self.tenant, messages, self.cleaned)

    def note_window(self, model: str, tokens: int) -> None:
        """Remember the window of a model, as its provider told it when it refused a request."""
        row = {"tenant": self.tenant, "model": model, "tokens": tokens, "ts": time.time()}
        mine = noted_window.c.tenant == self.tenant, noted_window.c.model == model

        def work(connection: Connection) -> None:
            connection.execute(delete(noted_window).where(*mine))
            connection.execute(noted_window.insert().values(row))

        self.database.write(work)

    def noted_window(self, model: str) -> int | None:
        """Return the window that was noted for a model; None if there is none, or it is too old to be believed."""
        mine = noted_window.c.tenant == self.tenant, noted_window.c.model == model
        query = select(noted_window.c.tokens).where(*mine, noted_window.c.ts > time.time() - _BELIEVED_SECONDS)
        with self.database.read() as connection:
            tokens: int | None = connection.execute(query).scalar()
        return tokens

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Verified:
        """Check every hash and every reference; report problems, change nothing.

        ``progress`` is called with the number of messages done and of all.
        """
        return verify(self, progress)


class _MustWriteAll(Exception):  # noqa: N818 - a signal inside this module
    """A sign that all messages must be written at once: a fork and its carried view come together or not at all."""


def _is_known(connection: Connection, request: RecordRequest, match: Match) -> bool:
    if match.depth < request.start.depth + len(request.trace.ids):
        return False
    if request.preamble is None and not request.asides_at(match.depth):
        return True
    held = select(branches.c.head, branches.c.preamble).where(branches.c.id == match.branch)
    row = connection.execute(held).first()
    if row is None or bytes(row.head) != match.id:
        return True
    return not request.asides_at(match.depth) and (request.preamble is None or row.preamble == request.preamble.digest)


# -- by the settings ---------------------------------------------------------------------------------------------------

FILE_NAME = "store.db"
"""The name of the user's own store, if no setting names another."""


def location(settings: StoreSettings) -> str | Path:
    """Return the url or the path of the store that the settings of the ``store`` section name."""
    return settings.url or data_home() / FILE_NAME


def open_store(
    settings: StoreSettings | str | Path | None = None,
    tenant: str = "local",
    *,
    waits_for_disk: bool = True,
    embedder: Embedder | None = None,
) -> Store:
    """Open a store by its path or url, or the one that the settings of the ``store`` section name; else the user's own.

    Whoever has what it stores in a journal, too, need not wait for the disk with every commit.
    With an ``embedder``, questions also find messages by their meaning.

    >>> with open_store("mine.db") as store:
    ...     len(store.context(store.record([{"role": "user", "content": "hi"}])))
    1
    """
    if settings is None or isinstance(settings, str | Path):
        where = settings or data_home() / FILE_NAME
        return Store(open_database(where, waits_for_disk=waits_for_disk), tenant, embedder=embedder)
    if not hasattr(settings, "url"):
        refuse("settings", settings, "a path, a url, StoreSettings, or None")
    return Store(
        open_database(location(settings), waits_for_disk=waits_for_disk),
        tenant,
        redact=redacted_message if settings.redact else None,
        embedder=embedder,
    )


def apply_retention(store: Store, settings: StoreSettings) -> list[str]:
    """Delete the conversations that the settings say are too old; return the ids of the deleted sessions."""
    return [] if settings.retention_days is None else retain(store, settings.retention_days)


def redacted_message(message: Message) -> Message:
    """Return a copy of a message with every secret in it replaced by a mark."""
    result: Message = redact_values(message)
    return result
