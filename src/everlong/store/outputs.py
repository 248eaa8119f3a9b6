"""Whole outputs of tools: kept beside messages that show only their beginning and end, and read in pages.

An output belongs to a message and goes with it: when the message is forgotten or collected as garbage. It is no part of
the conversation, so it is neither sent nor searched. Its id follows from its words and is known before it is kept.
"""

from __future__ import annotations

import string
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, delete, select

from everlong.arguments import refuse
from everlong.errors import NotStored
from everlong.model import Message, whole_text
from everlong.store.content import blob, encoded, value_of
from everlong.store.schema import content, node, output
from everlong.store.upkeep.references import drop_unused

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


class ReadPage(NamedTuple):
    """A part of a message's words or of an output; ``pages`` and ``chars`` are of the whole."""

    text: str
    page: int
    pages: int
    chars: int


def check_page(page: int) -> None:
    """Raise `ConfigError` unless a page has a number from 1 on."""
    if page < 1:
        refuse("page", page, "a number from 1 on")


def page_of(message: Message, page: int, chars: int) -> ReadPage:
    """Return one page of a message, counted from 1; past the last one the text is empty."""
    check_page(page)
    text, size = whole_text(message), max(1, chars)
    return ReadPage(text[(page - 1) * size : page * size], page, -(-len(text) // size), len(text))


def page_ends(text: str, chars: int) -> list[int]:
    """Return where the pages of a text end: at most so many characters each, after a line or a word if possible."""
    size, ends, start = max(1, chars), [], 0
    while start < len(text):
        end = start + size
        if end < len(text):
            least = start + size // 2  # rather a torn line than a page that is half empty
            cut = text.rfind("\n", least, end) + 1 or text.rfind(" ", least, end) + 1
            end = cut or end
        start = min(end, len(text))
        ends.append(start)
    return ends


def page_of_text(text: str, page: int, chars: int) -> ReadPage:
    """Return one page of a text, counted from 1; past the last one the text is empty."""
    check_page(page)
    ends = [0, *page_ends(text, chars)]
    return ReadPage(text[ends[page - 1] : ends[page]] if page < len(ends) else "", page, len(ends) - 1, len(text))


IDENT_BYTES = 6
"""Bytes of a digest that make an id: 12 hexadecimal digits."""


class Outputs:
    """The whole outputs that one tenant keeps."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core

    def ident(self, text: str) -> str:
        """Return the id under which an output can be read once it is kept."""
        made = blob(self._core.tenant, encoded(self._core.cleaned_text(text)))
        return made.digest[:IDENT_BYTES].hex()

    def keep(self, node: bytes, text: str) -> None:
        """Store the whole output of which a message has a part; storing it again adds nothing.

        The output of a message that is forgotten is not kept.
        """
        core = self._core
        made = blob(core.tenant, encoded(self._core.cleaned_text(text)))
        add_output = core.database.sql(
            "INSERT INTO output (tenant, node, digest, ts) VALUES (?,?,?,?) ON CONFLICT DO NOTHING"
        )

        def work(connection: Connection) -> None:
            if self._state(connection, node) == "live":
                core.recorder.add_contents(connection, core.tenant, [(made, ())])
                connection.exec_driver_sql(add_output, (core.tenant, node, made.digest, time.time()))

        core.database.write(work)

    def read(self, ident: str, page: int = 1, chars: int = 8_000) -> ReadPage:
        """Return one page of an output, counted from 1; pages end at line ends if possible."""
        with self._core.database.read() as connection:
            row = connection.execute(
                select(content.c.bytes, content.c.codec)
                .join(output, output.c.digest == content.c.digest)
                .where(*self._find(ident), content.c.state == "live")
                .order_by(output.c.seq.desc())
                .limit(1)
            ).first()
        if row is None:
            raise NotStored(f"there is no stored output {ident!r}; ids are in the line that says what was left out")
        return page_of_text(value_of(row.bytes, row.codec), page, chars)

    def of(self, node: bytes) -> list[str]:
        """Return the ids of the outputs that are kept with a message."""
        mine = select(output.c.digest).where(output.c.node == node, output.c.tenant == self._core.tenant)
        with self._core.database.read() as connection:
            rows = connection.execute(mine.order_by(output.c.seq)).scalars()
            return [bytes(digest)[:IDENT_BYTES].hex() for digest in rows]

    def holding(self, text: str) -> list[bytes]:
        """Return all messages whose whole output holds a text, in whatever case; forgetting must miss none."""
        from everlong.store.search.query import normal  # noqa: PLC0415 - loaded only where it is used

        needle = normal(text)
        query = select(output.c.node, content.c.bytes, content.c.codec).join(
            content, content.c.digest == output.c.digest
        )
        mine = query.where(output.c.tenant == self._core.tenant, content.c.state == "live").order_by(output.c.seq)
        found: dict[bytes, None] = {}
        with self._core.database.read() as connection:
            for row in connection.execute(mine.execution_options(yield_per=20)):
                if needle in normal(value_of(row.bytes, row.codec)):
                    found[bytes(row.node)] = None
        return list(found)

    def _find(self, ident: str) -> tuple[Any, ...]:
        if len(ident) != 2 * IDENT_BYTES or not set(ident) <= set(string.hexdigits):
            raise NotStored(
                f"{ident!r} is no id of a stored output; one has {2 * IDENT_BYTES} hexadecimal digits, "
                "and stands in the line that says what was left out"
            )
        start = bytes.fromhex(ident)
        low, high = start.ljust(16, b"\x00"), start.ljust(16, b"\xff")
        return output.c.tenant == self._core.tenant, output.c.digest.between(low, high)

    def _state(self, connection: Connection, ident: bytes) -> str:
        state = connection.execute(
            select(content.c.state)
            .join(node, node.c.digest == content.c.digest)
            .where(node.c.id == ident, node.c.tenant == self._core.tenant)
        ).scalar()
        if state is None:
            raise NotStored(f"there is no message {ident.hex()} in {self._core.database.backend.where}")
        return str(state)


def drop_outputs(connection: Connection, tenant: str, nodes: list[bytes]) -> None:
    """Remove the outputs of some messages, and their words where nothing else has the same."""
    mine = output.c.tenant == tenant, output.c.node.in_(nodes)
    digests = {bytes(digest) for digest in connection.execute(select(output.c.digest).where(*mine)).scalars()}
    connection.execute(delete(output).where(*mine))
    drop_unused(connection, digests)
