"""The history that one caller may see: the conversations of a tenant, of one folder or of all.

Each method returns the text of an answer, within a number of tokens, with the id of everything that it shows and where
it comes from. Words of a conversation stand in lines that begin with ``>``, and names in quotation marks, so none of
them can pass for a line of the answer. A conversation of another folder does not exist here: its id is as unknown as
one that was made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from everlong.context.text import shorten_text
from everlong.errors import AmbiguousName, NotStored, QueryError, ToolError
from everlong.mcp.quotations import (
    Quotation,
    Quote,
    conversations_of,
    fit_quotations,
    name_quoted,
    quoted,
    role_named,
    source_of,
    when,
)
from everlong.model import counted, without_reminders
from everlong.store.conversations import CompactionMark, ConversationLine, ListCursor
from everlong.store.outputs import page_of_text
from everlong.store.paths import read_message
from everlong.store.recall import FOUND, Passage, find_passages
from everlong.store.search import Filters
from everlong.store.search.snippets import passages
from everlong.store.sessions import clean_title, conversations_in
from everlong.store.shown_path import find_message, message_after
from everlong.store.transcripts.parts import compaction_line, pieces_of, plain
from everlong.tokens import EstimatingCounter

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.store import Conversation, Store

__all__ = ["History"]

PASSAGE = 900
"""Characters of a passage that `recall` shows at most."""
SNIPPET = 280
"""Characters of a hit that `search` shows at most."""
RECALLED = 6
"""Passages of an answer of `recall`, at most."""
MESSAGE = 1_600
"""Characters of a message on a page of a conversation; a longer one is read by its own id."""
_REPLY = 500
_READ = 400_000
_DIGITS = 12
_LEAST_PAGE = 60
_MOST_HITS = 60
_LONGEST_QUERY = 2_000
_LEAST = 30
"""Tokens that are left for the last line of an answer."""
_MOST_CHARS = 8
"""Characters for each token of an answer that are read; no text has more."""

_count = EstimatingCounter().count_text


class History:
    """The conversations that one caller may search and read.

    Args:
        store: the store, with the caller's tenant.
        folders: the folder by all of its names; None for the conversations of every folder.
        answer_tokens: the most tokens of an answer.
    """

    def __init__(self, store: Store, folders: Sequence[str] | None, *, answer_tokens: int = 2_000) -> None:
        self.store = store
        self.folders = None if folders is None else tuple(folders)
        self.answer_tokens = answer_tokens

    # -- finding -------------------------------------------------------------------------------------------------------

    def search(self, query: str, *, page: int = 1, limit: int = 8, conversation: str | None = None) -> str:
        """Return where something was said: one short line around each hit, with ids."""
        found = self._passages(_checked_query(query), conversation)
        first = (page - 1) * limit
        shown = list(islice(found, first, first + limit + 1))
        if not shown:
            return self._nothing(query, page)
        entries = [self._entry(one, query, SNIPPET) for one in shown[:limit]]
        text, count = self._fit(entries, f"{FOUND}{name_quoted(query)}:")
        if count < len(entries):
            return f"{text}\n\n[more: limit={max(1, count)}, page={first // max(1, count) + 2}]"
        return f"{text}\n\n[more: page={page + 1}]" if len(shown) > limit else text

    def recall(self, question: str, *, tokens: int | None = None) -> str:
        """Return the few best passages for a question, in their own words and with ids."""
        question = _checked_query(question)
        known: set[bytes] = set()
        found = (one for one in self._passages(question) if one.hit.node is None or one.hit.node not in known)
        entries = [self._entry(one, question, PASSAGE, known) for one in islice(found, RECALLED)]
        if not entries:
            return self._nothing(question, 1)
        return self._fit(entries, f"{FOUND}{name_quoted(question)}:", tokens)[0]

    def _fit(self, entries: Sequence[Quotation], opening: str, tokens: int | None = None) -> tuple[str, int]:
        """Return the entries that have room in an answer, and how many these are."""
        room = min(self.answer_tokens, tokens or self.answer_tokens) - _LEAST
        return fit_quotations(entries, room, _count, opening=opening)

    def _passages(self, query: str, conversation: str | None = None) -> Iterator[Passage]:
        """Yield hits that the caller may see, best first."""
        allowed: set[str] | None = None
        if conversation is not None:
            filters = Filters(session=self.conversation(conversation).id)
        elif self.folders is not None:
            with self.store.database.read() as connection:
                allowed = set(conversations_in(connection, self.store.tenant, self.folders))
            filters = Filters(folders=self.folders)
        else:
            filters = Filters()
        try:
            for one in find_passages(self.store, self.store.searcher, query, filters, most=_MOST_HITS):
                # A message that two conversations begin with is shown under the name of the older one.
                if allowed is None or one.hit.session in allowed:
                    yield one
        except QueryError as error:
            raise ToolError(str(error)) from error

    def _entry(self, one: Passage, query: str, room: int, known: set[bytes] | None = None) -> Quotation:
        hit = one.hit
        ident = f", id {_short(hit.node)}" if hit.node is not None else ", a summary"
        where = self._place(hit.session, hit.turn)
        text = passages(without_reminders(plain(one.text)), query, room)
        quotes = [Quote(f"[{role_named(hit.role)}, {when(hit.at)}, {where}{ident}]", text)]
        if known is None or hit.node is None:
            return quotes
        known.add(hit.node)
        if hit.role == "user" and "?" in one.text and len(one.text) < room:
            after = message_after(self.store, hit.node, hit.session or "")
            if after is not None and after not in known:  # the question is found, but not its answer
                known.add(after)
                reply = passages(plain(self.store.read(after, 1, _READ).text), query, _REPLY)
                quotes.append(Quote(f"[and then, id {_short(after)}]", reply))
        return quotes

    def _nothing(self, query: str, page: int) -> str:
        if page > 1:
            return f"[nothing more for {name_quoted(query)}]"
        return f"[nothing found for {name_quoted(query)}{self._near()}; try other words]"

    def _near(self) -> str:
        return "" if self.folders is None else " in this folder"

    # -- conversations -------------------------------------------------------------------------------------------------

    def conversation(self, name: str) -> Conversation:
        """Return a conversation by its id, the beginning of its id or its title, if the caller may see it.

        Raises:
            ToolError: there is none that the caller may see.
        """
        unknown = (
            f"there is no conversation {name_quoted(name)}{self._near()}; list_conversations shows those that there are"
        )
        if clean_title(name) is None:
            raise ToolError(unknown)
        try:
            found = self.store.conversations.find(name.strip())
        except AmbiguousName as error:
            among = [one for one in self.newest() if one.title == name.strip() or one.id.startswith(name.strip())]
            if len(among) != 1:
                raise ToolError(f"{unknown}; several are meant, so name its id" if among else unknown) from error
            found = among[0]
        except NotStored as error:
            raise ToolError(unknown) from error
        if not self.may_see(found):
            raise ToolError(unknown)
        return found

    def may_see(self, one: Conversation) -> bool:
        """Return whether a conversation is the caller's to see."""
        return self.folders is None or one.folder in self.folders

    def newest(self, after: str | None = None) -> Iterator[Conversation]:
        """Yield conversations, the most recently active first, from one on."""
        cursor = None
        if after is not None:
            last = self.conversation(after)
            cursor = ListCursor(last.active, last.id)
        return conversations_of(self.store, self.folders, cursor)

    def list_conversations(self, *, limit: int = 10, after: str | None = None, client: str | None = None) -> str:
        """Return a line for each conversation, the most recently active first."""
        found = (one for one in self.newest(after) if client is None or one.client == client)
        shown = list(islice(found, limit + 1))
        if not shown:
            elsewhere = "; `everlong mcp --all` shows those of every folder" if self._near() else ""
            return f"[no {'more ' if after else ''}conversations{self._near()}{elsewhere}]"
        lines = [[Quote(self._line(one))] for one in shown[:limit]]
        text, count = fit_quotations(lines, self.answer_tokens - _LEAST, _count, between="\n")
        return f"{text}\n[more: after={shown[count - 1].id}]" if len(shown) > count else text

    def _line(self, one: Conversation) -> str:
        facts = [source_of(one)]
        if self.folders is None and one.folder:
            facts.append(f"folder {name_quoted(one.folder, 200)}")
        return ", ".join([*facts, counted(one.messages, "message"), when(one.active)])

    def _place(self, session: str | None, turn: int | None) -> str:
        if not session:
            return "in no conversation any more"
        try:
            return f"message {turn} of {source_of(self.store.conversations.get(session))}"
        except NotStored:  # deleted in this moment
            return f"message {turn} of conversation {session}"

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, ident: str, *, after: int = 0, page: int = 1) -> str:
        """Return a page of a conversation after a message, or a page of one message by its id.

        A negative ``after`` counts from the end: -10 gives the last ten.
        """
        if _is_message_id(ident):
            try:
                return self._read_message(ident, page)
            except NotStored as error:
                raise ToolError(f"there is no message {name_quoted(ident)}{self._near()}") from error
        one = self.conversation(ident)
        total = self.store.conversations.count_turns(one.id)
        start = max(0, total + after if after < 0 else after)
        if start >= total > 0:
            raise ToolError(f"there is no message after {start:,}; the conversation has {total:,}")
        heading = f"[{self._line(one)}; messages {start + 1:,} and on, of {total:,}]"
        found: list[tuple[int, Quotation]] = []
        spent = 0
        for line in self.store.conversations.entries(one.id, after=start):
            if quotation := _shown_line(line):
                found.append((line.turn or start, quotation))
                spent += sum(len(quote.heading) + len(quote.words) for quote in quotation)
            if spent > _MOST_CHARS * self.answer_tokens:
                break
        text, count = fit_quotations(
            [quotation for _, quotation in found], self.answer_tokens - _LEAST, _count, opening=heading
        )
        last = max((turn for turn, _ in found[:count]), default=total)
        return f"{text}\n\n[more: after={last}]" if last < total else text

    def _read_message(self, ident: str, page: int) -> str:
        found = find_message(self.store, ident)
        if found.session is None and self.folders is not None:
            raise NotStored(ident)
        if found.session is not None and not self.may_see(self.store.conversations.get(found.session)):
            raise NotStored(ident)
        text = _words(read_message(self.store.database, self.store.tenant, found.node))
        place = self._place(found.session, found.turn)
        about = f"{role_named(found.role)}, {when(found.at)}, {place}, id {_short(found.node)}"
        # Even where every character is a token, a page and its marks have room.
        read = page_of_text(text, page, _page_chars(text, self.answer_tokens - 2 * _LEAST - _count(about)))
        if page > max(1, read.pages):
            raise ToolError(f"there is no page {page}; the message has {read.pages}")
        more = f"; more: page={page + 1}" if page < read.pages else ""
        of = f", page {page} of {read.pages}{more}" if read.pages > 1 else ""
        return Quote(f"[{about}{of}]", read.text).render()


# -- texts ------------------------------------------------------------------------------------------------------------


def _checked_query(query: str) -> str:
    if not query.strip():
        raise ToolError("say what to look for: the query is empty")
    if len(query) > _LONGEST_QUERY:
        raise ToolError(f"the query has {len(query):,} characters; {_LONGEST_QUERY:,} are allowed, so say it shorter")
    return query


def _short(node: bytes) -> str:
    return node.hex()[:_DIGITS]


def _is_message_id(ident: str) -> bool:
    """Return whether an id has the form of a message's; those of conversations have an underscore."""
    text = ident.strip().lower()
    return 8 <= len(text) <= 32 and all(char in "0123456789abcdef" for char in text)


def _page_chars(text: str, room: int) -> int:
    """Return how many characters of a text have room on each of its pages."""
    size = max(_LEAST_PAGE, min(len(text), 4 * room))
    while size > _LEAST_PAGE and any(_count(quoted(text[at : at + size])) > room for at in _samples(text, size)):
        size = size * 4 // 5
    return size


def _samples(text: str, size: int) -> Iterator[int]:
    step = max(size, len(text) // 20)
    return iter(range(0, max(1, len(text)), step))


def _words(message: Message) -> str:
    """Return all words of a message, with a heading before calls, results and thoughts."""
    pieces = pieces_of(message)
    told = [one.body if one.kind == "text" else f"({one.kind} {one.label})\n{one.body}".strip() for one in pieces]
    return plain("\n".join(filter(None, told)))


def _shown_line(line: ConversationLine | CompactionMark) -> Quotation:
    """Return a line of a transcript for a page; empty for what has no identity, such as a client's reminders."""
    if isinstance(line, CompactionMark):
        return [Quote("[a compaction]", compaction_line(line))]
    if line.turn is None or line.entry.id is None:
        return []
    words = _words(line.entry.message)
    more = f", {len(words):,} characters in all" if len(words) > MESSAGE else ""
    broken = f", {line.status}" if line.status else ""
    heading = (
        f"[{role_named(line.entry.message.get('role'))}, message {line.turn}, id {_short(line.entry.id)}{more}{broken}]"
    )
    return [Quote(heading, shorten_text(words, MESSAGE, len, otherwise="") if more else words)]
