"""Additions: what a client says with its newest message and leaves out when it sends the same message again.

Coding clients append reminders and instructions to the newest question, put notices before it, and send file listings
that always stand right before it. One request later these are gone or have moved. They are learnt by comparison, and
only where the reply to the longer message is repeated right after the shorter one; anything else is an edit. What is
learnt is kept in the database, so that a later request is known by its lasting words at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from sqlalchemy import Connection, select

from everlong.model import HashChain, Message, blocks_of, parts_of, with_content
from everlong.store.schema import addition

if TYPE_CHECKING:
    from everlong.store.database import Database

SURE = 2
"""An addition that came and went this often is taken off later messages before they are stored."""

_MOST = 256
"""Additions of a tenant that are looked for, the newest ones."""
_MOST_MESSAGES = 32
"""More whole messages than these do not move along with one question."""
_SHORTEST = 8
"""Shorter texts at the start or end of a message are too ordinary to be taken off."""

Where = Literal["start", "end", "block", "message"]


class Addition(NamedTuple):
    """One thing that came and went: a text at the start or end of another, a block, or a message of its own."""

    where: Where
    text: str | None
    """What a start or an end says; blocks and messages are known by their digest."""
    digest: bytes


def removed_additions(
    chain: HashChain, stored: Sequence[Message], sent: Sequence[Message], *, follows_question: bool = False
) -> list[Addition] | None:
    """Compare the messages of a request with what its client sends in their place one request later.

    Args:
        chain: derives the digests of what is gone.
        stored: the messages of the request, up to its reply.
        sent: what stands in their place now.
        follows_question: whether both come right after a user's message, so that all of the stored ones may be gone.

    Returns:
        What is gone; None where they differ in any other way.
    """
    hashes = [_hashes(chain, message) for message in stored]
    if not sent or not stored:
        is_added = not sent and (not stored or follows_question) and not any(map(_is_working, stored))
        whole = [Addition("message", None, _joined(chain, one)) for one in hashes]
        return whole if is_added and len(stored) <= _MOST_MESSAGES else None
    for place in reversed(range(len(stored))):
        shorter = _shortened(chain, stored[place], sent[-1])
        if shorter is None:
            continue
        kept = _in_order(hashes[:place], [_hashes(chain, message) for message in sent[:-1]])
        if kept is None:
            continue
        gone = [at for at in range(len(stored)) if at != place and at not in kept]
        if len(gone) > _MOST_MESSAGES or any(_is_working(stored[at]) for at in gone):
            return None
        return [*(Addition("message", None, _joined(chain, hashes[at])) for at in gone), *shorter]
    return None


def _is_working(message: Message) -> bool:
    """Return whether a message calls a tool or answers a call; those do not move along."""
    return message.get("role") == "tool" or any(
        block.identity.startswith((b"call:", b"result:")) for block in blocks_of(message)
    )


def _in_order(stored: Sequence[list[bytes]], sent: Sequence[list[bytes]]) -> set[int] | None:
    """Return where the sent messages stand among the stored ones, in order; None where one is not there."""
    found: set[int] = set()
    place = 0
    for hashes in sent:
        while place < len(stored) and stored[place] != hashes:
            place += 1
        if place == len(stored):
            return None
        found.add(place)
        place += 1
    return found


def _shortened(chain: HashChain, stored: Message, sent: Message) -> list[Addition] | None:
    """Return what is gone from a stored message where the sent one is what is left of it; None where it is not."""
    if stored.get("role") != sent.get("role") or sent.get("role") == "tool":
        return None
    longer, shorter = _said(stored), _said(sent)
    if not shorter or len(shorter) > len(longer):
        return None
    for shift in range(len(longer) - len(shorter) + 1):
        gone = _gone(longer[shift : shift + len(shorter)], shorter)
        if gone is not None:
            outside = [*longer[:shift], *longer[shift + len(shorter) :]]
            blocks = [Addition("block", None, chain.step(b"", "u", one)) for one in outside]
            return [*(Addition(where, text, _digest(chain, where, text)) for where, text in gone), *blocks]
    return None


def _said(message: Message) -> list[bytes]:
    return [block.identity for block in blocks_of(message)]


def _gone(longer: Sequence[bytes], shorter: Sequence[bytes]) -> list[tuple[Literal["start", "end"], str]] | None:
    """Return the texts that are missing at the start of the first block and at the end of the last one."""
    if longer[1:-1] != shorter[1:-1]:
        return None
    if len(longer) > 1:
        before, after = _cut(longer[0], shorter[0]), _cut(longer[-1], shorter[-1])
        if before is None or after is None or before[1] or after[0]:
            return None
        return [*_named("start", before[0]), *_named("end", after[1])]
    both = _cut(longer[0], shorter[0])
    return None if both is None else [*_named("start", both[0]), *_named("end", both[1])]


def _named(where: Literal["start", "end"], text: str) -> list[tuple[Literal["start", "end"], str]]:
    return [(where, text)] if text else []


def _cut(longer: bytes, shorter: bytes) -> tuple[str, str] | None:
    """Return what stands before and after a text in a longer one; None where it does not stand in it."""
    if longer == shorter:
        return "", ""
    if not longer.startswith(b"text:") or not shorter.startswith(b"text:"):
        return None
    whole, part = _text(longer), _text(shorter)
    stripped = part.strip()
    if not stripped:
        return None
    if whole.startswith(part):
        return "", whole[len(part) :]
    if whole.rstrip().endswith(stripped):
        return whole[: whole.rindex(stripped)], ""
    return None


def _text(identity: bytes) -> str:
    return identity.removeprefix(b"text:").decode("utf-8", "surrogatepass")


def _hashes(chain: HashChain, message: Message) -> list[bytes]:
    return chain.trace([message]).blocks


def _joined(chain: HashChain, hashes: Sequence[bytes]) -> bytes:
    return chain.step(b"message", "u", b"".join(hashes))


def _digest(chain: HashChain, where: str, text: str) -> bytes:
    return chain.step(where.encode(), "u", text.encode("utf-8", "surrogatepass"))


class Known:
    """The additions that a tenant's clients are known for."""

    def __init__(self, chain: HashChain, rows: Sequence[tuple[Where, str | None, bytes]]) -> None:
        self._chain = chain
        texts = [(where, text) for where, text, _ in rows if text is not None and len(text.strip()) >= _SHORTEST]
        self._starts = sorted((text for where, text in texts if where == "start"), key=len, reverse=True)
        self._ends = sorted((text for where, text in texts if where == "end"), key=len, reverse=True)
        self._blocks = {digest for where, _, digest in rows if where == "block"}
        self._messages = {digest for where, _, digest in rows if where == "message"}

    def __bool__(self) -> bool:
        return bool(self._starts or self._ends or self._blocks or self._messages)

    def without(self, message: Message) -> Message:
        """Return a newest message with only its lasting words; the message itself where nothing is added to it."""
        if message.get("role") != "user":
            return message
        content = message.get("content")
        if isinstance(content, str):
            left = self._trimmed(content)
            return message if left == content else with_content(message, left)
        if not isinstance(content, list):
            return message
        parts = [part for part in parts_of(message) if not self._is_added(part)]
        for place in {0, len(parts) - 1} if parts else ():
            text = parts[place].get("text")
            if parts[place].get("type", "text") == "text" and isinstance(text, str):
                left = self._trimmed(text)
                parts[place] = parts[place] if left == text else {**parts[place], "text": left}
        return message if not parts or parts == content else with_content(message, parts)

    def is_moving(self, message: Message) -> bool:
        """Return whether a whole message is one that moves along before the newest question."""
        return bool(self._messages) and _joined(self._chain, _hashes(self._chain, message)) in self._messages

    def _is_added(self, part: Message) -> bool:
        found = blocks_of({"role": "user", "content": [part]})
        return len(found) == 1 and self._chain.step(b"", "u", found[0].identity) in self._blocks

    def _trimmed(self, text: str) -> str:
        said = text.rstrip()
        for start in self._starts:
            if said.startswith(start) and said[len(start) :].strip():
                said = said[len(start) :]
                break
        for end in self._ends:
            if said.endswith(end.rstrip()) and said[: -len(end.rstrip())].strip():
                said = said[: -len(end.rstrip())]
                break
        return text if said == text.rstrip() else said


class Additions:
    """What one store has learnt of the additions of a tenant's clients."""

    def __init__(self, database: Database, chain: HashChain) -> None:
        self._chain = chain
        self._run = database.backend.run
        self._learn = database.sql(
            "INSERT INTO addition (tenant, digest, place, text, times, ts) VALUES (?,?,?,?,?,?)"
            " ON CONFLICT (tenant, digest) DO UPDATE SET times = addition.times + excluded.times, ts = excluded.ts"
        )

    def learn(self, connection: Connection, seen: Sequence[Addition]) -> None:
        """Note that these came and went once more."""
        now = time.time()
        rows: Mapping[bytes, Addition] = {one.digest: one for one in seen}
        if rows:
            values = [(self._chain.tenant, one.digest, one.where, one.text, 1, now) for one in rows.values()]
            self._run(connection, self._learn, sorted(values, key=lambda row: row[1]))

    def known(self, connection: Connection) -> Known:
        """Return those that came and went often enough."""
        query = select(addition.c.place, addition.c.text, addition.c.digest).where(
            addition.c.tenant == self._chain.tenant, addition.c.times >= SURE
        )
        rows = connection.execute(query.order_by(addition.c.ts.desc()).limit(_MOST)).all()
        return Known(self._chain, [(row.place, row.text, bytes(row.digest)) for row in rows])
