"""JSON text of files: encodings, error positions, layout, and JSON's dark corners.

Everything wrong with the input becomes a `TranscriptError` that says where.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

from everlong.errors import TranscriptError

__all__ = ["JsonLayout", "decode_text", "layout_of", "parse_json", "render_json"]

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?P<sign>[,:])(?P<gap>\s?)', re.DOTALL)
"""Strings, which are skipped, and the commas and colons between them."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonLayout(NamedTuple):
    """The layout of a JSON text: ``indent`` as `json.dumps` takes it, separators and line ends."""

    indent: int | str | None = None
    comma: str = ", "
    colon: str = ": "
    newline: str = "\n"


def decode_text(data: bytes | str) -> str:
    """Return the text of a file in any Unicode encoding, without its byte order mark."""
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise TranscriptError("the input is no text file; name one with a conversation in it") from error
        line = data.count(b"\n", 0, error.start) + 1
        raise TranscriptError(
            f"the input is not valid {encoding.upper()} text: byte {error.start} (line {line}) is wrong; "
            "save it as UTF-8 and try again"
        ) from error


def parse_json(text: str, what: str, line: int = 1) -> Any:
    """Return a JSON value; ``what`` names it in errors, ``line`` is where it starts in its file."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise TranscriptError(_syntax_problem(text, line, error)) from error
    except RecursionError:
        raise TranscriptError(
            f"{what} is nested too deeply to be read; real conversations are not: check how the file was made"
        ) from None
    except _ContentError as error:
        raise TranscriptError(f"{what} contains {error}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise TranscriptError(f"{what} contains a number that is too long; write it as text") from error


def layout_of(text: str) -> JsonLayout:
    """Return the layout of a JSON text, read from its first comma, colon and line break outside of strings."""
    gaps: dict[str, str] = {}
    for token in _TOKENS.finditer(text):
        if token["sign"]:
            gaps.setdefault(token["sign"], token["gap"])
        if len(gaps) == 2:
            break
    colon = ": " if gaps.get(":", " ") else ":"
    newline = "\r\n" if text.find("\r\n") == text.find("\n") - 1 else "\n"
    broken = re.match(r"\s*[\[{]\r?\n([ \t]*)", text)
    if broken:
        space = broken[1]
        return JsonLayout(len(space) if space.isspace() and "\t" not in space else space, ",", colon, newline)
    return JsonLayout(None, ", " if gaps.get(",", " ") else ",", colon, newline)


def render_json(value: Any, layout: JsonLayout) -> str:
    """Return JSON text in a layout, with a line end; only characters without a UTF-8 form are escaped."""
    try:
        text = _encoder(layout).encode(value)
    except RecursionError:
        raise TranscriptError("a message is nested too deeply to be written as JSON") from None
    if not text.isascii():
        # Half of a surrogate pair, as truncated logs contain.
        text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if layout.newline != "\n":
        text = text.replace("\n", layout.newline)  # line breaks inside of strings are escaped
    return text + layout.newline


class _ContentError(Exception):
    """A value in well-formed JSON that would not survive reading and writing."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise _ContentError(f"the key {name!r} twice in one object, so that a value would be lost; remove one")
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _ContentError(f"the number {text[:40]}, which JSON cannot hold; replace it by null or a plain number")
    return number


# Made once: json.loads makes a new decoder for every call with hooks, which is slow for JSONL of many lines.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


@cache
def _encoder(layout: JsonLayout) -> json.JSONEncoder:
    separators = (layout.comma, layout.colon)
    return json.JSONEncoder(ensure_ascii=False, check_circular=False, indent=layout.indent, separators=separators)


def _syntax_problem(text: str, line: int, error: json.JSONDecodeError) -> str:
    where = f"line {line + error.lineno - 1}, column {error.colno}"
    if error.msg.startswith("Invalid control character"):
        problem = f"a raw control character ({ord(text[error.pos]):#04x}) stands in a string; write it as an escape"
    elif error.pos < len(text) and text[error.pos] == "\0":
        problem = "there is a NUL byte; the file is damaged or not text"
    else:
        problem = error.msg[:1].lower() + error.msg[1:]
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        problem += "; the input seems to be cut off: get the whole file"
    return f"the input is not valid JSON at {where}: {problem}"
