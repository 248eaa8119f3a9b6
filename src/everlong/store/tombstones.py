"""Tombstones: the traces of forgotten messages, which keep their words from coming back.

A forgotten message keeps its shape (role, ids and names of calls), so that the conversation stays valid, and the hashes
of its blocks, so that the chain still verifies. A message that carries a forgotten block is stored as a tombstone too,
however it is sent again. `everlong.store.upkeep.forget` decides what to forget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from everlong.model import HashChain, Message, blocks_of, calls_of, parts_of, title_from
from everlong.store.content import PLAIN, Blob, decoded, encoded, unpacked
from everlong.store.database import ask, in_batches

PLACEHOLDER = "[This message was forgotten]"
"""The text in place of the words of a forgotten message."""

Row = tuple[str, bytes, bytes | None, int, str, bytes | None]


def stub_of(tenant: str, message: Message) -> bytes:
    """Return what is kept of a forgotten message."""
    chain = HashChain(tenant)
    trace = chain.trace([message])
    sides = [block.side for block in blocks_of(message)]
    proof = [side + block.hex() for side, block in zip(sides, trace.blocks, strict=True)]
    return encoded({"message": _shape(message), "blocks": proof})


def stub_of_prompt(value: Any) -> bytes:
    """Return what is kept of a forgotten system prompt, whether it was stored with tools or by itself."""
    shape = {"system": [{"role": "system", "content": PLACEHOLDER}], "tools": None}
    return encoded({"message": PLACEHOLDER if isinstance(value, str) else shape, "blocks": []})


def read_stub(stub: bytes) -> tuple[Message, list[str]]:
    """Return the shape of a forgotten message, and side and hash of each of its blocks."""
    value = decoded(stub)
    return value["message"], value["blocks"]


def _shape(message: Message) -> Message:
    shape: Message = {"role": message.get("role"), "content": PLACEHOLDER}
    parts = [_part(part) for part in parts_of(message) if part.get("type") in ("tool_use", "tool_result")]
    if parts:
        shape["content"] = parts
    if "tool_call_id" in message:
        shape["tool_call_id"] = message["tool_call_id"]
    if calls := calls_of(message):
        shape["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "{}"}} for call in calls
        ]
    return shape


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "tool_use":
        return {"type": "tool_use", "id": part.get("id"), "name": part.get("name"), "input": {}}
    return {"type": "tool_result", "tool_use_id": part.get("tool_use_id"), "content": PLACEHOLDER}


def forgotten_among(connection: Connection, tenant: str, blocks: Iterable[bytes]) -> set[bytes]:
    """Return those of some blocks that a tenant has forgotten."""
    asked = sorted(set(blocks))
    gone: set[bytes] = set()
    for some in in_batches(asked):
        marks = ",".join("?" * len(some))
        found = ask(connection, f"SELECT block FROM tombstone WHERE tenant = ? AND block IN ({marks})", (tenant, *some))  # noqa: S608 - marks only
        gone.update(bytes(block) for (block,) in found.fetchall())
    return gone


def title_of_opening(
    connection: Connection, tenant: str, messages: Sequence[Message], clean: Callable[[Message], Message]
) -> str | None:
    """Return the title that the first messages of a conversation give it; None if its words are forgotten."""
    for message in map(clean, reversed(messages)):
        if (title := title_from([message])) is not None:
            gone = forgotten_among(connection, tenant, HashChain(tenant).trace([message]).blocks)
            return None if gone else title
    return None


def forgotten_rows(connection: Connection, tenant: str, blobs: Sequence[tuple[Blob, Sequence[bytes]]]) -> list[Row]:
    """Return the rows of contents; those with forgotten blocks become tombstones."""
    gone = forgotten_among(connection, tenant, {block for _, blocks in blobs for block in blocks})
    rows: list[Row] = []
    for made, blocks in blobs:
        if gone.isdisjoint(blocks):
            rows.append((tenant, made.digest, made.bytes, made.codec, "live", None))
        else:
            message = decoded(unpacked(made.bytes, made.codec))
            rows.append((tenant, made.digest, None, PLAIN, "forgotten", stub_of(tenant, message)))
    return rows
