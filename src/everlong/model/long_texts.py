"""JSON with long texts, read and written in steps.

One call that reads or writes tens of megabytes blocks every other thread until it is done. So long texts are taken
out, the rest is read or written as usual, and then each long text piece by piece.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "LONG",
    "cut_before_escape",
    "find_long_texts",
    "has_long_text",
    "read_in_steps",
    "structure",
    "text_end",
    "write_in_steps",
]

LONG = 1_000_000
"""Bytes or characters above which a text is long."""

_STEP = 1 << 18
_FIRST_STEP = 1 << 10
_ESCAPE = 6
"""Bytes of the longest escape."""
_PIECE = 1 << 17
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{},'))
_BACKSLASH, _U = 0x5C, 0x75
_FIRST_HALVES = frozenset({b"d8", b"d9", b"da", b"db"})
"""The first hexadecimal digits of an escape that makes one character together with the next."""


def text_end(data: bytes, start: int, stop: int) -> int:
    """Return the index after a text's closing quote; ``start`` is that of its opening quote.

    Raises:
        ValueError: it does not end before ``stop``.
    """
    place, step = start + 1, _FIRST_STEP
    quote = data.find(b'"', place, min(place + _STEP, stop))
    if quote >= 0 and data[quote - 1] != _BACKSLASH:
        return quote + 1
    while place < stop:
        end = cut_before_escape(data, place, min(place + step, stop), stop)
        found = data[place:end].replace(b"\\\\", b"  ").replace(b'\\"', b"  ").find(b'"')
        if found >= 0:
            return place + found + 1
        place, step = end, min(2 * step, _STEP)
    raise ValueError("a text has no end")


def cut_before_escape(data: bytes, start: int, end: int, stop: int) -> int:
    """Return where to cut a text without splitting an escape: at ``end``, or one byte before."""
    if end >= stop or data[end - 1] != _BACKSLASH:
        return end
    piece = data[start:end]
    run = len(piece) - len(piece.rstrip(b"\\"))
    return end - run % 2 if end - run % 2 > start else end


def find_long_texts(
    data: bytes, most: int = LONG, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield start and end of the texts of JSON with more than ``most`` bytes, quotes included.

    Raises:
        ValueError: a text has no end.
    """
    place, stop = start, len(data) if stop is None else stop
    while (quote := data.find(b'"', place, stop)) >= 0:
        place = text_end(data, quote, stop)
        if place - quote > most:
            yield quote, place


def structure(data: bytes, start: int, most: int, stop: int | None = None) -> tuple[int, bytes]:
    """Return the number of values in JSON, and its brackets, all written as ``[`` and ``]``; texts are left out.

    Looks no further once there are more than so many values.
    """
    values, brackets, is_text, place = 0, bytearray(), False, start
    stop = len(data) if stop is None else stop
    while place < stop and values <= most:
        end = cut_before_escape(data, place, min(place + _PIECE, stop), stop)
        piece = data[place:end]
        place = end
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.translate(None, _NO_STRUCTURE).split(b'"')  # a few signs are left of long texts
        signs = b"".join(parts[1::2] if is_text else parts[::2])
        is_text ^= len(parts) % 2 == 0
        values += signs.count(b",") + signs.count(b"[") + signs.count(b"{")
        brackets += signs.translate(_BRACKETS, b",")
    return values, bytes(brackets)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_in_steps(data: bytes, loads: Callable[[bytes], Any], start: int = 0, stop: int | None = None) -> Any:
    """Return the value of JSON, as ``loads`` reads it; of a stretch, which may be too long for a copy.

    Raises:
        ValueError: it is no JSON.
    """
    stop = len(data) if stop is None else stop
    places = list(find_long_texts(data, LONG, start, stop)) if stop - start > LONG else []
    if not places:
        return loads(data[start:stop])
    token = secrets.token_hex()
    named = {f"{token}{number}": place for number, place in enumerate(places)}
    parts: list[bytes] = []
    for name, (begin, end) in named.items():
        parts += (data[start:begin], b'"%s"' % name.encode())
        start = end
    value = loads(b"".join((*parts, data[start:stop])))
    texts = {name: _read_text(data, begin + 1, end - 1, loads) for name, (begin, end) in named.items()}
    try:
        return _put_back(value, texts)
    except RecursionError as error:
        raise ValueError("lists and objects are nested too deeply") from error


def _put_back(value: Any, texts: dict[str, str]) -> Any:
    """Return a value with its texts put back in place of their names."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [_put_back(item, texts) for item in value]
    if isinstance(value, dict):
        return {texts.get(name, name): _put_back(item, texts) for name, item in value.items()}
    return value


def _read_text(data: bytes, start: int, stop: int, loads: Callable[[bytes], Any]) -> str:
    """Return the text between two quotes."""
    parts: list[str] = []
    while start < stop:
        end = _cut_between_characters(data, start, min(start + _STEP, stop), stop)
        parts.append(loads(b'"%s"' % data[start:end]))
        start = end
    return "".join(parts)


def _cut_between_characters(data: bytes, start: int, end: int, stop: int) -> int:
    """Return an index at or before ``end`` that splits no character, neither in bytes nor as escapes."""
    if end >= stop:
        return stop
    while end > start + 1 and data[end] & 0xC0 == 0x80:
        end -= 1  # inside of a character; bytes that are no text at all are refused with their first piece
    for _ in range(2):  # the escape that is cut, and the one before it
        begin = data.rfind(b"\\", max(start, end - _ESCAPE), end)
        if begin <= start or cut_before_escape(data, start, begin + 1, stop) == begin + 1:
            return end  # no escape is near, or its backslash is what another one stands for
        size = _ESCAPE if data[begin + 1] == _U else 2
        is_first_half = size == _ESCAPE and data[begin + 2 : begin + 4].lower() in _FIRST_HALVES
        if begin + size < end or (begin + size == end and not is_first_half):
            return end
        is_cut, end = begin + size > end, begin
        if not is_cut:
            return end
    return end


# -- writing -----------------------------------------------------------------------------------------------------------


def has_long_text(value: Any) -> bool:
    """Return whether a value contains a long text."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if len(item) > LONG:
                return True
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return False


def write_in_steps(value: Any, dumps: Callable[[Any], bytes]) -> bytes:
    """Return a value as the JSON that ``dumps`` writes."""
    if not has_long_text(value):
        return dumps(value)
    token, texts = secrets.token_hex(), list[str]()
    data = dumps(_take_out(value, token, texts))
    parts: list[bytes] = []
    place = 0
    for number, text in enumerate(texts):
        name = b'"%s%d"' % (token.encode(), number)
        found = data.index(name, place)
        parts += (data[place:found], b'"')
        parts += (dumps(text[start : start + _STEP]).strip()[1:-1] for start in range(0, len(text), _STEP))
        parts.append(b'"')
        place = found + len(name)
    return b"".join((*parts, data[place:]))


def _take_out(value: Any, token: str, texts: list[str]) -> Any:
    """Return a value with names in place of its long texts; append the texts to a list, in order."""
    if isinstance(value, str) and len(value) > LONG:
        texts.append(value)
        return f"{token}{len(texts) - 1}"
    if isinstance(value, dict):
        return {name: _take_out(item, token, texts) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_take_out(item, token, texts) for item in value]
    return value
