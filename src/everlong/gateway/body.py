"""The bytes of a request's body: reading its fields, bounding its structure, and changing it in place.

A body is read once, as spans of the client's own bytes; what the gateway changes is spliced in between them, so every
byte that is not changed reaches the upstream as the client wrote it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]  # as old as the module, and documented nowhere
from typing import Any

import orjson

from everlong.gateway.auth import Refused
from everlong.model.long_texts import LONG, find_long_texts, read_in_steps, structure, text_end, write_in_steps

__all__ = [
    "MOST_DEPTH",
    "BrokenBody",
    "Change",
    "Draft",
    "Overgrown",
    "Read",
    "Span",
    "Stretch",
    "check_model",
    "check_structure",
    "check_structure_apart",
    "dump_json",
    "fields_at",
    "is_heavy",
    "is_unwieldy",
    "items_at",
    "model_in",
    "parse_json",
    "read_body",
    "read_fields",
    "read_more",
    "splice",
]

_SPACE = frozenset(" \t\n\r")
_SPACES = b" \t\n\r"
_QUOTE, _COMMA = 0x22, 0x2C
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")
_NO_SIGNS = re.compile(rb'[^"\[\]{},]+')
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 19
"""A number that may not fit into 64 bits, with all digits written as 0."""
_STEP, _SPACE_STEP = 1 << 18, 1 << 10

MOST_IN_ONE = 30_000
"""Values in one message, or in one field beside the messages; work on a whole message holds up the event loop."""
_MOST_FIELDS = 500

Change = tuple[int, int, bytes]
"""A stretch of a body, and the bytes that replace it."""
Stretch = tuple[int, int]
"""The beginning and the end of a value."""


class BrokenBody(ValueError):  # noqa: N818 - what a body is that cannot be read
    """The body is no JSON object with a list of messages, or says something twice."""


class Overgrown(BrokenBody):
    """The body has one message or field with too many values, or too many fields."""


@dataclass(frozen=True, slots=True)
class Span:
    """A value, and the bytes where it stands."""

    start: int
    end: int
    value: Any


@dataclass(slots=True)
class Read:
    """A body as far as it was read: its fields, and the entries of its list from the first unknown one on."""

    body: bytes
    fields: dict[str, Stretch]
    """The places of its fields' values, without the list."""
    start: int
    """The place after the list's opening bracket."""
    end: int
    """The place of its closing bracket."""
    entries: list[Span]
    values: dict[str, Any] = field(default_factory=dict)
    """The values of fields, as far as they were asked for."""

    def field(self, name: str) -> Any:
        """Return the value of a field; None if there is none."""
        if name not in self.values:
            place = self.fields.get(name)
            self.values[name] = None if place is None else parse_json(self.body, *place)
        return self.values[name]

    def beginning(self) -> Read:
        """Return the part before the list, without any content: small enough to be kept."""
        before = {name: place for name, place in self.fields.items() if place[0] < self.start}
        return Read(b"", before, self.start, 0, [])


def read_body(body: bytes, list_name: str) -> Read:
    """Read a whole body; `BrokenBody` if it has no such list."""
    scanner = _scanner(body, 0)
    before = scanner.fields_until(list_name)
    start = scanner.place
    entries, end = scanner.entries()
    read = Read(body, before | scanner.fields({list_name, *before}), start, end, entries)
    for name in read.fields:
        read.field(name)  # what is no text in UTF-8 shows now
    return read


def read_more(body: bytes, known: Read, place: int, list_name: str = "messages") -> Read:
    """Read the rest of a body that is the same as a known one up to a place, the end of an entry of its list."""
    scanner = _scanner(body, place)
    entries, end = scanner.entries(goes_on=place > known.start)
    after = scanner.fields({list_name, *known.fields})
    read = Read(body, known.fields | after, known.start, end, entries)
    for name in after:
        read.field(name)
    return read


def fields_at(body: bytes, place: Stretch) -> dict[str, Stretch]:
    """Return the places of an object's values in a body; of several with one name, the last one's."""
    scanner = _scanner(body, *place)
    return dict(scanner.places("{", "}", named=True))


def read_fields(body: bytes) -> dict[str, Stretch]:
    """Return the places of a body's values; `BrokenBody` if it is no object, no UTF-8, or says something twice.

    Names that differ in case only count as the same: some upstreams read them so.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BrokenBody(str(error)) from error
    if len(body) > LONG:
        parse_json(body)  # a long body is walked through without a look at what its values are
    return _scanner(body, 0).whole()


def model_in(body: bytes) -> str | None:
    """Return the model that a body names, even if the rest cannot be read; None if it is not certain."""
    try:
        place = read_fields(body).get("model")
        model = None if place is None else parse_json(body, *place)
    except BrokenBody:
        return None
    return model if isinstance(model, str) else None


def items_at(body: bytes, place: Stretch) -> list[Stretch]:
    """Return the places of a list's items in a body."""
    scanner = _scanner(body, *place)
    return [found for _, found in scanner.places("[", "]", named=False)]


def splice(body: bytes, changes: Iterable[Change]) -> bytes:
    """Return the body with some stretches replaced; they must not overlap."""
    parts: list[bytes] = []
    place = 0
    for start, end, instead in sorted(changes, key=lambda change: change[:2]):
        parts += (body[place:start], instead)
        place = end
    parts.append(body[place:])
    return b"".join(parts)


def dump_json(value: Any) -> bytes:
    """Return a value as JSON, the same bytes every time."""
    try:
        return write_in_steps(value, orjson.dumps)
    except TypeError:  # a lone surrogate, or a number that is too large for it
        return write_in_steps(value, lambda part: json.dumps(part, separators=(",", ":")).encode())


class _Scanner:
    """A scanner of a body. It treats one byte as one character; texts are decoded from their bytes afterwards."""

    def __init__(self, body: bytes, place: int, end: int | None = None) -> None:
        self._body = body
        self._offset = place
        self._stop = len(body) if end is None else end
        self._text = body[place:end].decode("latin-1")
        self._at = 0
        decoder: Any = json.JSONDecoder(strict=False, parse_int=len)  # the places count, not the numbers
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once

    @property
    def place(self) -> int:
        return self._offset + self._at

    def fields_until(self, list_name: str) -> dict[str, Stretch]:
        """Return the fields before a list; the scanner stops after its opening bracket."""
        self._expect("{", "the body is no JSON object")
        found: dict[str, Stretch] = {}
        while not self._has("}"):
            name = self._name()
            if name == list_name:
                self._expect("[", f"{list_name!r} is no list")
                return found
            self._field(found, name)
            self._comma("}")
        raise BrokenBody(f"the body has no list {list_name!r}")

    def entries(self, *, goes_on: bool = False) -> tuple[list[Span], int]:
        """Return the entries of a list, and the place of its closing bracket; the scanner stops at the next field."""
        if goes_on:
            self._comma("]")
        places: list[Stretch] = []
        while not self._has("]"):
            places.append(self._bounded_stretch())
            self._comma("]")
        end = self.place
        self._at += 1
        self._comma("}")
        return [Span(*place, value) for place, value in zip(places, self._values(places), strict=True)], end

    def _values(self, places: Sequence[Stretch]) -> Sequence[Any]:
        """Return the values of entries: all at once, which is many times as fast as one by one."""
        values: list[Any] = parse_json(b"[%b]" % self._body[places[0][0] : places[-1][1]]) if places else []
        return values

    def whole(self) -> dict[str, Stretch]:
        """Return the fields of a whole body; of names that differ in case only, there may be one."""
        self._expect("{", "the body is no JSON object")
        return self.fields(set(), folds=True)

    def fields(self, names: set[str], *, folds: bool = False) -> dict[str, Stretch]:
        """Return the fields up to the end of the body, of which none may have one of some names."""
        found: dict[str, Stretch] = {}
        while not self._has("}"):
            name = self._name()
            spelled = name.casefold() if folds else name
            if spelled in names:
                raise BrokenBody(f"{name!r} stands there twice")
            names.add(spelled)
            self._field(found, name)
            self._comma("}")
        self._at += 1
        self._skip()
        if self.place < self._stop:
            raise BrokenBody("something stands after the end of the body")
        return found

    def places(self, opening: str, closing: str, *, named: bool) -> Iterator[tuple[str, Stretch]]:
        """Yield the places of an object's or a list's values, without reading what they mean."""
        self._expect(opening, f"{opening!r} is missing")
        while not self._has(closing):
            name = self._name() if named else ""
            yield name, self._stretch()
            self._comma(closing)

    def _field(self, found: dict[str, Stretch], name: str) -> None:
        if name in found:
            raise BrokenBody(f"{name!r} stands there twice")
        if len(found) >= _MOST_FIELDS:
            raise Overgrown(f"the body has more than {_MOST_FIELDS} fields")
        found[name] = self._bounded_stretch()

    def _name(self) -> str:
        self._expect('"', "the name of a field is missing")
        start = self.place - 1
        self._skip_text()
        name = parse_json(self._body, start, self.place)
        self._expect(":", "a colon is missing")
        return str(name)

    def _bounded_stretch(self) -> Stretch:
        """Return the next value; `Overgrown` if it contains too many others."""
        start, end = self._stretch()
        body = self._body
        if end - start > MOST_IN_ONE and (
            body.count(b",", start, end) + body.count(b"[", start, end) + body.count(b"{", start, end) > MOST_IN_ONE
            and structure(body, start, MOST_IN_ONE, end)[0] > MOST_IN_ONE
        ):
            raise Overgrown(f"one message or field has more than {MOST_IN_ONE:,} values in it, which is the most here")
        return start, end

    def _stretch(self) -> Stretch:
        self._skip()
        start = self._at
        try:
            _, self._at = self._scan(self._text, start)
        except StopIteration as error:
            raise BrokenBody(f"a value is missing at {self.place}") from error
        except (ValueError, RecursionError) as error:
            raise BrokenBody(str(error)) from error
        return self._offset + start, self.place

    def _comma(self, closing: str) -> None:
        if self._has(","):
            self._at += 1
            if self._has(closing):
                raise BrokenBody(f"nothing follows the comma at {self.place}")
        elif not self._has(closing):
            raise BrokenBody(f"a comma or {closing!r} is missing at {self.place}")

    def _expect(self, sign: str, otherwise: str) -> None:
        if not self._has(sign):
            raise BrokenBody(otherwise)
        self._at += 1

    def _has(self, sign: str) -> bool:
        self._skip()
        return self._text.startswith(sign, self._at)

    def _skip(self) -> None:
        text, at = self._text, self._at
        while at < len(text) and text[at] in _SPACE:
            at += 1
        self._at = at

    def _skip_text(self) -> None:
        """Go on behind a text whose opening quote was read."""
        try:
            _, self._at = scanstring(self._text, self._at, False)
        except ValueError as error:
            raise BrokenBody(str(error)) from error


class _LongScanner(_Scanner):
    """A scanner of a long body, in small steps on its bytes.

    It only finds where values begin and end; whether they are valid is checked when they are read.
    """

    def __init__(self, body: bytes, place: int, end: int | None = None) -> None:
        self._body = body
        self._offset = place
        self._stop = len(body) if end is None else end
        self._at = 0

    def _values(self, places: Sequence[Stretch]) -> Sequence[Any]:
        """Return the values of entries, read one by one, so that others get their turn."""
        return [parse_json(self._body, *place) for place in places]

    def _has(self, sign: str) -> bool:
        self._skip()
        return self._body.startswith(sign.encode(), self.place, self._stop)

    def _skip(self) -> None:
        body, place, stop = self._body, self.place, self._stop
        while place < stop and body[place] in _SPACES:
            piece = body[place : min(place + _SPACE_STEP, stop)]
            place += len(piece) - len(piece.lstrip(_SPACES))
        self._at = place - self._offset

    def _skip_text(self) -> None:
        self._at = self._text_end(self.place - 1) - self._offset

    def _text_end(self, start: int) -> int:
        try:
            return text_end(self._body, start, self._stop)
        except ValueError as error:
            raise BrokenBody(str(error)) from error

    def _stretch(self) -> Stretch:
        self._skip()
        start = self.place
        end = self._end_of_value(start)
        if end == start:
            raise BrokenBody(f"a value is missing at {start}")
        self._at = end - self._offset
        return start, end

    def _end_of_value(self, place: int) -> int:
        body, stop, depth = self._body, self._stop, 0
        while place < stop:
            sign = body[place]
            if sign == _QUOTE:
                place = self._text_end(place)
            elif sign in _OPENING:
                depth += 1
                place += 1
            elif depth and (sign in _CLOSING or sign == _COMMA):
                depth -= sign != _COMMA
                place += 1
            elif sign in _CLOSING or sign == _COMMA:
                return place
            else:
                end, place = self._end_of_plain(place)
                if not depth:
                    return end
            if not depth:
                return place
        if depth:
            raise BrokenBody("a list or an object has no end")
        return place

    def _end_of_plain(self, place: int) -> tuple[int, int]:
        """Return the ends of numbers, constants and colons, and of the spaces behind them."""
        end = place
        while (found := _NO_SIGNS.match(self._body, place, min(place + _STEP, self._stop))) is not None:
            place = found.end()
            piece = found[0].rstrip(_SPACES)
            end = found.start() + len(piece) if piece else end
        return end, place


def _scanner(body: bytes, place: int, end: int | None = None) -> _Scanner:
    size = (len(body) if end is None else end) - place
    return _LongScanner(body, place, end) if size > LONG else _Scanner(body, place, end)


def parse_json(data: bytes, start: int = 0, stop: int | None = None) -> Any:
    """Return the value of some JSON, or of a stretch of it; `BrokenBody` if it is none."""
    try:
        return read_in_steps(data, _loads, start, stop)
    except (ValueError, RecursionError) as error:
        raise BrokenBody(str(error)) from error


def _loads(data: bytes) -> Any:
    if _LONG_NUMBER not in data.translate(_DIGITS):  # a number of more than 64 bits would lose its last digits
        with suppress(ValueError):
            return orjson.loads(data)
    text = data.decode(json.detect_encoding(data))  # strictly: bytes would pass with halves of characters in them
    return json.loads(text)


_BETWEEN = b", \t\n\r"


@dataclass(frozen=True, slots=True)
class Draft:
    """A body on its way to the upstream, with the changes made so far."""

    body: bytes
    fields: Mapping[str, Stretch]
    """The places of its fields' values, without the list of messages."""
    start: int
    """The place after the list's opening bracket."""
    ends: Sequence[int]
    """The place after each entry of the list."""

    def entry(self, number: int) -> Stretch:
        """Return the place of an entry, counted from 0."""
        place = self.ends[number - 1] if number else self.start
        while self.body[place] in _BETWEEN:
            place += 1
        return place, self.ends[number]

    def changed(self, changes: Sequence[Change], ends: Sequence[int] | None = None) -> Draft:
        """Return the body with some stretches replaced.

        If entries are among them, ``ends`` has their new ends, as if nothing before the list had changed.
        """
        fields = {name: (_begin(changes, start), _end(changes, end)) for name, (start, end) in self.fields.items()}
        start = _end(changes, self.start)
        ends, shift = self.ends if ends is None else ends, start - self.start
        return Draft(splice(self.body, changes), fields, start, [end + shift for end in ends] if shift else ends)

    def cut(self, count: int) -> Draft:
        """Return the body with only the first entries of its list, of which there must be one."""
        return self.changed([(self.ends[count - 1], self.ends[-1], b"")], self.ends[:count])

    def with_field(self, name: str, value: bytes) -> Draft:
        """Return the body with one more field, behind all others."""
        place = self.body.rindex(b"}")
        written = b',"' + name.encode() + b'":'
        begin = place + len(written)
        body = splice(self.body, [(place, place, written + value)])
        return Draft(body, {**self.fields, name: (begin, begin + len(value))}, self.start, self.ends)


def _begin(changes: Sequence[Change], place: int) -> int:
    """Return the new place of something that begins at a place, after some changes."""
    return place + sum(len(new) - (end - start) for start, end, new in changes if end <= place)


def _end(changes: Sequence[Change], place: int) -> int:
    """Return the new place of something that ends at a place, after some changes; insertions there come after it."""
    return place + sum(len(new) - (end - start) for start, end, new in changes if start < place and end <= place)


MOST_VALUES = 300_000
"""Values (numbers, texts, lists, objects) in one request; long conversations have some ten thousand."""
MOST_DEPTH = 128
"""Depth of lists and objects inside each other; the schemas of tools need about twenty."""
_HEAVY_VALUES = 2_000
_HEAVY_BYTES = 1_000_000
"""Bytes of a body that is read in another thread."""
_UNCHECKED_BYTES = 200_000
"""Bytes of a body whose structure is checked in another thread; nothing but quotes takes longest."""
_UNWIELDY_BYTES = 24_000_000
_UNWIELDY_TEXT = 3_500_000
_LONGEST_MODEL = 1_000
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_:;,."


def check_structure(data: bytes, start: int = 0, most_values: int = MOST_VALUES) -> int:
    """Refuse JSON that has too many values from a place on, or nests them too deeply; other bytes may pass.

    Returns the number of values from that place on. Raises `Refused`: 413 for too many values, 400 for too deep ones.
    """
    values, brackets = structure(data, start, most_values)
    if values > most_values:
        raise Refused(
            413,
            f"the request has more than {most_values:,} values (numbers, texts, lists and objects)",
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
    return values


async def check_structure_apart(data: bytes, start: int = 0) -> int:
    """Check the structure of JSON; in another thread if it takes longer than a moment. Returns the number of values."""
    if len(data) - start > _UNCHECKED_BYTES:
        return await asyncio.to_thread(check_structure, data, start)
    return check_structure(data, start)


def check_model(name: object) -> str:
    """Return the name of a model, empty if there is none; it must not be too long to be looked up and logged.

    Raises:
        Refused: with the status 400.
    """
    model = str(name or "")
    if len(model) > _LONGEST_MODEL:
        raise Refused(400, f"the model's name has {len(model):,} characters; at most {_LONGEST_MODEL:,} are taken here")
    return model


def is_heavy(data: bytes, start: int = 0, values: int | None = None) -> bool:
    """Return whether reading JSON from a place on takes so long that others would notice; ``values`` if counted."""
    if len(data) - start > _HEAVY_BYTES:
        return True
    return (structure(data, start, _HEAVY_VALUES)[0] if values is None else values) > _HEAVY_VALUES


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
