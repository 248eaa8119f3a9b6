"""The facts of a text: paths, file names, identifiers, ids, hashes, numbers, URLs, dates.

These rules are the benchmark's own. The engine must not use them, nor they the engine's: an engine that is measured by
the patterns that it keeps by would only be measured against itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_SCAN = re.compile(
    r"(?P<url>https?://[^\s\"'`<>()\[\]{}\\,;|]+)"
    r"|(?P<date>\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?\b"
    rf"|\b(?:{_MONTHS})[a-z]{{0,6}}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b"
    r"|\b\d{1,2}:\d\d(?::\d\d)?\b)"
    r"|(?P<mail>\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<chunk>(?:~|\.{1,2})?/?\.?\w[\w@.+/-]*)"
)
_EXTENSIONS = (
    "bash|bat|c|cc|cfg|cjs|class|conf|cpp|cs|css|csv|db|diff|env|go|gz|h|hpp|htm|html|ini|ipynb|java|jpg|js|json|"
    "jsonl|jsx|kt|less|lock|log|lua|m|md|mjs|mk|mod|patch|pdf|php|pickle|pkl|pl|png|po|proto|ps1|py|pyc|pyi|pyx|"
    "rb|rs|rst|sass|scala|scss|sh|sql|sqlite|svg|swift|tar|tex|toml|ts|tsv|tsx|txt|vue|wasm|xml|yaml|yml|zip|zsh"
)
_FILE = re.compile(rf"[\w.+-]*\w\.(?:{_EXTENSIONS})", re.IGNORECASE)
_DOTFILE = re.compile(r"\.(?:git|env|npm|docker|claude|github|vscode|eslint|prettier|bash|zsh)[\w.-]*")
_NUMBER = re.compile(r"(?:\d{2,}|\d+(?:\.\d+)+)(?:[munp]s|px|r?em|[kKMG]i?[bB]?|min|h|x|th|st|nd|rd)?")
"""Two digits or more, or decimals, perhaps with a unit."""
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_SENTENCE_END = re.compile(r"[a-z]+\.[A-Z][a-z]*")
_CAMEL = re.compile(
    r"[a-z]+[a-z0-9]*(?:[A-Z][a-zA-Z0-9]*)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z]{2,}[a-z][a-zA-Z0-9]+"
)
_HYPHENATED_ID = re.compile(r"(?=.*\d)(?=.*[^\W\d_])(?=.*-)[\w.-]{5,}")
_ADDRESS = re.compile(r"\d+[a-z]")
"""A line and what an editor does there, as in ``sed -n 1750p``: no number, and nobody's id."""
_HEX = re.compile(r"[0-9a-f]{7,}")
_OWNERS = ("self.", "this.", "cls.")
_LATIN = frozenset({"e.g", "i.e", "a.m", "p.m", "u.s"})


class Entity(NamedTuple):
    """One fact as it stands in a text."""

    text: str
    kind: str


def entities(text: str) -> Iterator[Entity]:
    """Return every entity of a text, including parts of others, such as a file's name in its path."""
    for found in _SCAN.finditer(text):
        kind, piece = found.lastgroup, found.group()
        if kind == "chunk":
            yield from _in_chunk(piece)
        elif kind == "url":
            yield Entity(piece.rstrip(".:/!?*"), "url")
        else:
            yield Entity(piece, "date" if kind == "date" else "id")


@lru_cache(maxsize=200_000)
def _in_chunk(chunk: str) -> tuple[Entity, ...]:
    """Return the entities of a run of characters without white space."""
    if "/" not in chunk:
        return tuple(_in_piece(chunk))
    path = chunk.rstrip(".+-/@").removeprefix("./")
    pieces = [piece for piece in path.split("/") if piece]
    parts = [entity for piece in pieces for entity in _in_piece(piece)]
    is_path = (
        len(pieces) > 1
        and any(c.isalpha() for c in path)
        and (len(pieces) > 2 or path.startswith(("/", "~", "..")) or bool(_FILE.fullmatch(pieces[-1])) or "_" in path)
    )
    return (Entity(path, "path"), *parts) if is_path else tuple(parts)


def _in_piece(piece: str) -> Iterator[Entity]:
    """Yield the entities of a run of characters without white space or slash."""
    if _DOTFILE.fullmatch(piece.rstrip(".")):
        yield Entity(piece.rstrip("."), "file")
        return
    piece = piece.strip(".-+@~")
    if _FILE.fullmatch(piece):
        yield Entity(piece, "file")
    elif _NUMBER.fullmatch(piece):
        yield Entity(piece, "number")
    elif "@" in piece or "+" in piece or "-" in piece:
        if _HYPHENATED_ID.fullmatch(piece):
            yield Entity(piece, "id")
        for part in re.split(r"[@+-]", piece):
            yield from _in_piece(part)
    elif "." in piece:
        yield from _in_dotted(piece)
    else:
        yield from _in_word(piece)


def _in_dotted(piece: str) -> Iterator[Entity]:
    for owner in _OWNERS:
        piece = piece.removeprefix(owner)
    if "." in piece and _DOTTED.fullmatch(piece) and not _SENTENCE_END.fullmatch(piece) and piece.lower() not in _LATIN:
        yield Entity(piece, "identifier")
    for part in piece.split("."):
        yield from _in_word(part)


def _in_word(word: str) -> Iterator[Entity]:
    letters, digits = any(c.isalpha() for c in word), sum(c.isdigit() for c in word)
    if not letters:
        if digits > 1 and word.isdigit():
            yield Entity(word, "number")
    elif digits and len(word) >= 7 and _HEX.fullmatch(word):
        yield Entity(word, "hash")
    elif _ADDRESS.fullmatch(word):
        return
    elif digits and "_" not in word and (len(word) >= 5 or (len(word) >= 4 and word.isupper())):
        yield Entity(word, "id")
    elif len(word) >= 4 and ("_" in word.strip("_") or (word.startswith("_") and letters)):
        yield Entity(word, "id" if digits >= 3 else "identifier")
    elif len(word) >= 4 and _CAMEL.fullmatch(word):
        yield Entity(word, "identifier")


def sightings(text: str, fact: str) -> Iterator[int]:
    """Yield the places of a fact in a text as a whole token: not inside a longer word or number."""
    size = len(fact)
    left_matters, right_matters = _is_word(fact[0]), _is_word(fact[-1])
    left_digit, right_digit = fact[0].isdigit(), fact[-1].isdigit()
    place = text.find(fact)
    while place >= 0:
        before, after = text[max(0, place - 2) : place], text[place + size : place + size + 2]
        inside_word = (left_matters and before and _is_word(before[-1])) or (
            right_matters and after and _is_word(after[0])
        )
        inside_number = (left_digit and len(before) > 1 and before[1] == "." and before[0].isdigit()) or (
            right_digit and len(after) > 1 and after[0] == "." and after[1].isdigit()
        )
        if not inside_word and not inside_number:
            yield place
        place = text.find(fact, place + 1)


def stands(text: str, fact: str) -> bool:
    """Return whether a fact stands in a text as a whole token."""
    return next(sightings(text, fact), None) is not None


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
