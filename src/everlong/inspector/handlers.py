"""The handlers of pages: from a visit to the template and its values. They run in worker threads and know no HTTP."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from everlong.context import ContextCompressor
from everlong.errors import NotStored
from everlong.inspector.pages import compactions, conversation_list, cost, now, search, timeline, transcript
from everlong.inspector.pages.compactions import CompactionPage
from everlong.inspector.rendering import BASE
from everlong.redaction import redact
from everlong.store import Occasion, Store
from everlong.store.transcripts import FORMATS, Format, suffix_of, write_transcript

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.store import Conversation
    from everlong.store.database import Database

__all__ = ["Answer", "ConversationHandlers", "ExportFile", "Reader", "StoreHandlers", "Visit"]

_LEAST_WINDOW = 1_000
"""The least tokens of a window in which a compaction is tried."""
_CONTENT_TYPES = {"markdown": "text/markdown", "json": "application/json"}


@dataclass(slots=True)
class Reader:
    """The database that is looked at, with the settings for prices and windows."""

    database: Database
    settings: Settings
    name: str = ""
    """The store as people know it."""
    is_copy: bool = False
    """True if the store is a copy of a file: its requests are reckoned, and compactions may be tried on it."""
    ledgers: cost.Ledgers = field(default_factory=cost.Ledgers)

    def store(self, tenant: str) -> Store:
        """Return the store of a tenant."""
        return Store(self.database, tenant)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request that was let in."""

    store: Store
    path: str
    names: Mapping[str, str]
    """The parts of the path that name something."""
    query: Mapping[str, str]
    form: Mapping[str, str]
    language: str
    is_part: bool
    """True if a script asks for a part of a page only."""
    token: Callable[[str], str]
    """Returns the token for a form, by the address that it is sent to."""

    def number(self, name: str) -> int | None:
        """Return a whole number of the query or the path; None if it is not there or is none."""
        text = self.query.get(name) or self.names.get(name) or ""
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a visit: a template with its values, JSON data, or another address to go to."""

    template: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None
    location: str = ""


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file to be saved."""

    disposition: str
    content_type: str
    data: IO[bytes]


def _page(visit: Visit, reader: Reader, template: str, section: str, **values: Any) -> Answer:
    common = {
        "path": visit.path,
        "given": dict(visit.query),
        "section": section,
        "store_name": reader.name,
        "tenant": visit.store.tenant,
        "token": visit.token,
        "is_part": visit.is_part,
        "is_copy": reader.is_copy,
    }
    return Answer(template, {**common, **values})


class StoreHandlers:
    """The pages over the whole store, and those of one message."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def conversations(self, visit: Visit) -> Answer:
        """Show the list of conversations, or only its rows."""
        page = conversation_list.read_list(visit.store, visit.query)
        if page.is_store_empty:
            return _page(visit, self._reader, "empty.html", "list")
        return _page(visit, self._reader, "list_rows.html" if visit.is_part else "list.html", "list", page=page)

    def search(self, visit: Visit) -> Answer:
        """Show the hits of a search."""
        page = search.read_search(visit.store, visit.query)
        fate_of = partial(search.fate_of, visit.store)
        return _page(visit, self._reader, "search.html", "search", page=page, asked=search, fate_of=fate_of)

    def cost(self, visit: Visit) -> Answer:
        """Show what models were paid; the figures may take a while, so the page begins without them."""
        load = partial(cost.read_cost, visit.store, self._reader.settings, self._reader.ledgers, visit.query)
        return _page(visit, self._reader, "cost.html", "cost", load=load, ages=cost.AGES)

    def message(self, visit: Visit) -> Answer:
        """Show one message and what has become of it."""
        page = transcript.read_message_page(visit.store, visit.names["node"])
        return _page(visit, self._reader, "message.html", "list", page=page)


class ConversationHandlers:
    """The pages of one conversation."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def now(self, visit: Visit) -> Answer:
        """Show the context as the model gets it."""
        found = self._found(visit)
        page = now.read_now(visit.store, self._reader.settings, found.id)
        return self._tab(visit, found, "now.html", "now", page=page)

    def timeline(self, visit: Visit) -> Answer:
        """Show the size of each request, and what the provider's cache did with it."""
        found = self._found(visit)
        is_by_cost = visit.query.get("order") == "cost"
        page = timeline.read_timeline(visit.store, found.id, visit.number("before"), is_by_cost=is_by_cost)
        return self._tab(visit, found, "timeline.html", "timeline", page=page)

    def chart(self, visit: Visit) -> Answer:
        """Return the data of the timeline's chart."""
        return Answer(data=timeline.read_chart(visit.store, self._reader.settings, self._found(visit).id))

    def transcript(self, visit: Visit) -> Answer:
        """Show one page of the transcript; an address with a turn leads to the page that has it."""
        found = self._found(visit)
        turn = visit.number("turn")
        if turn is not None:
            place = f"transcript?page={transcript.page_of_turn(turn)}#t{turn}"
            return Answer(location=f"{BASE}/c/{quote(found.id, safe='')}/{place}")
        number, after = visit.number("page") or (1 if "page" in visit.query else None), visit.number("after")
        page = transcript.read_transcript(visit.store, found.id, number, after if visit.is_part else None)
        template = "transcript_page.html" if visit.is_part else "transcript.html"
        if visit.is_part and after is not None:
            template = "transcript_lines.html"
        return self._tab(visit, found, template, "transcript", page=page)

    def compactions(self, visit: Visit) -> Answer:
        """Show all compactions."""
        found = self._found(visit)
        rows = compactions.compaction_rows(visit.store, found.id)
        shown: dict[str, Any] = {"rows": rows}
        if self._reader.is_copy:  # half of the context is a window in which there is something to see
            tokens = now.read_now(visit.store, self._reader.settings, found.id).tokens
            shown["window"] = max(_LEAST_WINDOW, tokens // 2 // 1_000 * 1_000)
        return self._tab(visit, found, "compactions.html", "compactions", **shown)

    def compaction(self, visit: Visit) -> Answer:
        """Show one compaction."""
        found = self._found(visit)
        page = self._compaction(visit, found)
        return self._tab(visit, found, "compaction.html", "compactions", page=page)

    def tree(self, visit: Visit) -> Answer:
        """Show sub-agents and forks."""
        found = self._found(visit)
        return self._tab(visit, found, "tree.html", "tree", page=conversation_list.read_tree(visit.store, found.id))

    def try_compaction(self, visit: Visit) -> Answer:
        """Compact a conversation of a copy as in a window of so many tokens, and show what came of it."""
        found = self._found(visit)
        told = visit.form.get("window", "")
        if not self._reader.is_copy:
            raise NotStored("a compaction is tried on the copy of a file: everlong inspect --web FILE")
        if not (told.isascii() and told.isdecimal() and int(told[:9]) >= _LEAST_WINDOW):
            raise NotStored(f"a window has {_LEAST_WINDOW:,} tokens or more")
        last = visit.store.conversations.path(found.id).runs[-1]
        engine = ContextCompressor(int(told[:9]), model=found.model, settings=self._reader.settings.compression)
        occasion = Occasion("manual", found.parts[-1], found.model, told[:9])
        done = visit.store.compact(visit.store.branch(last.branch, last.high), engine, occasion, force=True)
        place = "?result=unchanged"
        if done.outcome == "compacted":
            place = f"/{len(compactions.compaction_rows(visit.store, found.id))}"
        return Answer(location=f"{BASE}/c/{quote(found.id, safe='')}/compactions{place}")

    def undo(self, visit: Visit) -> Answer:
        """Undo the compaction in force, if it is still the one that the reader saw."""
        found = self._found(visit)
        rows = compactions.compaction_rows(visit.store, found.id)
        seen = next((row for row in rows if str(row.done.id) == visit.form.get("compaction")), None)
        is_undone = False
        if seen is not None and seen.is_in_force:
            last = visit.store.conversations.path(found.id).runs[-1]
            is_undone = visit.store.undo(visit.store.branch(last.branch, last.high))
        told = "undone" if is_undone else "kept"
        return Answer(location=f"{BASE}/c/{quote(found.id, safe='')}/compactions?result={told}")

    def export(self, visit: Visit) -> ExportFile:
        """Return the conversation as a file."""
        found = self._found(visit)
        form = visit.names["form"]
        if form not in FORMATS:
            raise NotStored(f"a conversation cannot be exported as {form!r}; there are {', '.join(FORMATS)}")
        chosen: Format = form
        name = f"{found.id}{suffix_of(chosen)}"
        kind = _CONTENT_TYPES.get(form, "application/x-ndjson")
        file = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed by whoever sends it
        write_transcript(
            visit.store, [found], chosen, lambda text: file.write(text.encode("utf-8", "replace")), clean=redact
        )
        file.seek(0)
        return ExportFile(f'attachment; filename="{name}"', kind, file)

    def _found(self, visit: Visit) -> Conversation:
        return visit.store.conversations.get(visit.names["ident"])

    def _compaction(self, visit: Visit, found: Conversation) -> CompactionPage:
        number = visit.number("number") or 0
        return compactions.read_compaction(visit.store, found.id, number)

    def _tab(self, visit: Visit, found: Conversation, template: str, tab: str, **values: Any) -> Answer:
        row = conversation_list.row_of(found, is_waiting=found.id in visit.store.conversations.waiting([found]))
        link = f"{BASE}/c/{quote(found.id, safe='')}"
        values["agents_cost"] = conversation_list.agents_cost(visit.store, found.id) if found.agents else 0.0
        return _page(visit, self._reader, template, "list", tab=tab, conversation=found, row=row, link=link, **values)
