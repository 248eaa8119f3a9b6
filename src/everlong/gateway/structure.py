"""The structure of a request's body, bounded before anybody reads it: how many values, how deep, how large unpacked.

A few kilobytes can stand for millions of values, each of which costs microseconds to read, hash and store. So a body is
measured by counting brackets and commas, which costs next to nothing, and refused where it has too many. A body that is
large and allowed is read in another thread than the one that serves clients. Knows no API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from everlong.gateway.encodings import TooLarge, is_compressed, plain
from everlong.gateway.limits import Refused
from everlong.gateway.raw import Read, structure
from everlong.model.long_texts import find_long_texts

__all__ = [
    "MOST_DEPTH",
    "check_model",
    "check_structure",
    "checked_structure",
    "encoding_of",
    "is_heavy",
    "is_unwieldy",
    "unpacked",
]

MOST_DEPTH = 128
"""Lists and objects inside of each other; the schemas of tools need about twenty."""
_HEAVY_VALUES = 2_000
_HEAVY_BYTES = 1_000_000
"""A body of more than these is read in another thread."""
_UNWIELDY_BYTES = 24_000_000
_UNWIELDY_TEXT = 3_500_000
_LONGEST_MODEL = 1_000
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_:;,."


def encoding_of(headers: Mapping[str, str]) -> str:
    """Return the encoding that a request says its body is in; several headers say one after the other."""
    every = getattr(headers, "getall", None)
    return ", ".join(every("Content-Encoding", [])) if every is not None else headers.get("Content-Encoding", "")


async def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body without its encoding.

    Raises:
        Unreadable: the encoding is not known, or the bytes are not in it.
        Refused: the body would come to more than so many bytes.
    """
    if not is_compressed(body, encoding):
        return body
    try:
        return await asyncio.to_thread(plain, body, encoding, most)
    except TooLarge as error:
        raise Refused(413, f"the request is larger than {most:,} bytes when it is unpacked", close=True) from error


def check_structure(data: bytes, most_values: int, start: int = 0) -> None:
    """Refuse JSON that has too many values from a place on, or nests them too deeply; what is no JSON may pass.

    Raises:
        Refused: with the status 413 for too many values, 400 for too deep a structure.
    """
    openings = data.count(b"[", start) + data.count(b"{", start)
    if openings <= MOST_DEPTH and openings + data.count(b",", start) <= most_values:
        return
    values, brackets = structure(data, start, most_values)
    if values > most_values:
        raise Refused(
            413,
            f"the request has more than {most_values:,} values (numbers, texts, lists and objects), which is the most "
            "here; gateway.body_values says how many may come",
            close=True,
        )
    is_deep = b"[" * (MOST_DEPTH + 1) in brackets
    for _ in range(0 if is_deep else MOST_DEPTH):
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == size:
            break
    if is_deep or b"[]" in brackets or brackets.count(b"[") > MOST_DEPTH:
        raise Refused(400, f"the request nests lists and objects more than {MOST_DEPTH} deep", close=True)


async def checked_structure(data: bytes, most_values: int, start: int = 0) -> None:
    """Do the same, beside the event loop where it takes longer than a moment."""
    if len(data) - start > _HEAVY_BYTES:
        await asyncio.to_thread(check_structure, data, most_values, start)
    else:
        check_structure(data, most_values, start)


def check_model(name: object) -> None:
    """Refuse a model whose name is longer than any, which is looked up and written down in many places.

    Raises:
        Refused: with the status 400.
    """
    if isinstance(name, str) and len(name) > _LONGEST_MODEL:
        raise Refused(400, f"the model's name has {len(name):,} characters; at most {_LONGEST_MODEL:,} are taken here")


def is_heavy(data: bytes, start: int = 0) -> bool:
    """Return whether reading JSON from a place on takes so long that others would notice."""
    if len(data) - start > _HEAVY_BYTES:
        return True
    values = data.count(b",", start) + data.count(b"[", start) + data.count(b"{", start)
    return values > _HEAVY_VALUES and structure(data, start, _HEAVY_VALUES)[0] > _HEAVY_VALUES


def is_unwieldy(body: bytes, read: Read) -> bool:
    """Return whether a body is too large for an engine: by itself, or by one text that is longer than any window."""
    if len(body) > _UNWIELDY_BYTES:
        return True
    return any(
        _is_text(body[start:end])
        for span in read.entries
        if span.end - span.start > _UNWIELDY_TEXT
        for start, end in find_long_texts(body, _UNWIELDY_TEXT, span.start, span.end)
    )


def _is_text(part: bytes) -> bool:
    return bool(part[1:-1].translate(None, _BASE64))  # a picture is no text
