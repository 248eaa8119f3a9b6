"""Entities: the paths, identifiers, numbers, ids and addresses that later work needs by their exact name.

A word of prose can be paraphrased; a port number cannot. One pass over a text with one expression, then cheap checks of
each token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, pairwise

_TOKEN = re.compile(r"[A-Za-z0-9_~@#$](?:[A-Za-z0-9_./:@~+#%=&?\-]*[A-Za-z0-9_/]|(?<=\d))")
_MARK = re.compile(r"[_./:@#\-=0-9]")
_EDGES = ".:,-=?&+/"
_MAX_LENGTH = 160
_MOST_REMEMBERED = 50_000
_COMMON = frozenset(
    ("e.g", "i.e", "and/or", "either/or", "true/false", "yes/no", "n/a", "N/A", "I/O", "UTF-8", "utf-8")
)


_JOINTS = re.compile(r"[/:=&?#@,.](?:(?<!\.)[/:=&?#@,]*|(?=[A-Za-z_]*[A-Z_])|(?<=[a-z_A-Z]{4}\.)(?![a-z]{1,4}$))")
"""Places where a path or a dotted name falls apart into names of its own; a file keeps its ending.

The expression begins with characters that can be searched for at once, as most names have no joint.
"""


def _characters(*shapes: str) -> str:
    """Return the ASCII characters that make a token of every shape."""
    return "".join(c for c in map(chr, range(128)) if all(_TOKEN.fullmatch(shape.format(c)) for shape in shapes))


_ANYWHERE = {*_characters("{0}a"), *_characters("a{0}a"), *_characters("a{0}")}
_CHUNK_BYTES = bytes(byte if chr(byte) in _ANYWHERE else 0x20 for byte in range(256))
_LINE_BYTES = bytes(0x0A if byte == 0x0A else _CHUNK_BYTES[byte] for byte in range(256))
_NO_ENDS = "".join(sorted(_ANYWHERE - {*_characters("a{0}")}))
_ONLY_STARTS = re.compile(f"[{re.escape(''.join({*_characters('{0}a')} - {*_characters('a{0}a')}))}]")
_STARTS, _ENDS = frozenset(_characters("{0}a")), frozenset(_characters("a{0}"))
_MARKS = "".join(sign for sign in sorted(_ANYWHERE) if not sign.isalnum() and sign != "_")
_MARK_BYTES = _MARKS.encode()
_LONGEST_REMEMBERED = 400


class _Remembered(dict[bytes, tuple[str, ...]]):
    """A cache of the entities in each run of token characters."""

    def __missing__(self, chunk: bytes) -> tuple[str, ...]:
        # Most new runs are plain words or punctuation, which name nothing.
        is_plain = chunk.isalpha() if chunk.islower() else not chunk[:1].isalnum() and not chunk.strip(_MARK_BYTES)
        found = () if is_plain else _named_in(chunk.decode("ascii"))
        if len(chunk) <= _LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[chunk] = found
        return found


_remembered = _Remembered()


def entities(text: str) -> list[str]:
    """Return the entities of a text in order, with repeats; of a path or dotted name also its parts."""
    # Tokens are ASCII and stay within a run of token characters; splitting bytes is the fastest way to find runs.
    data = text.encode() if text.isascii() else text.encode("utf-8", "surrogatepass")
    return list(chain.from_iterable(map(_remembered.__getitem__, data.translate(_CHUNK_BYTES).split())))


def names_by_line(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the entities of each of many lines, each once; faster than asking for one after the other."""
    text = "\n".join(lines)
    data = (text.encode() if text.isascii() else text.encode("utf-8", "surrogatepass")).translate(_LINE_BYTES)
    if data.count(b"\n") != len(lines) - 1:  # a line has breaks of its own
        return [tuple(dict.fromkeys(entities(line))) for line in lines]
    # No Python code runs for each word; adding up tuples would take the square of the names in a line.
    named = [tuple(chain.from_iterable(map(_remembered.__getitem__, line.split()))) for line in data.split(b"\n")]
    return [names if len(names) < 2 else tuple(dict.fromkeys(names)) for names in named]


def _named_in(run: str) -> tuple[str, ...]:
    if run.isalnum():
        return (run,) if _entity(run) else ()
    named: list[str] = []
    for token in _tokens(run):  # the token itself and its parts, as far as they are entities
        whole, parts = _entity(token), _JOINTS.split(token)
        if whole:
            named.append(whole)
        if len(parts) > 1:
            found = dict.fromkeys([part for piece in parts if piece and (part := _entity(piece)) and part != whole])
            named += found
    return tuple(named)


def _tokens(run: str) -> list[str]:
    # Cut where only a new token can start and strip trailing marks: then each piece is one token to its end, and the
    # expression never backtracks over long runs of marks.
    if not _ONLY_STARTS.search(run):
        if run[0] in _STARTS and run[-1] in _ENDS:
            return [run]
        return _TOKEN.findall(run.rstrip(_NO_ENDS))
    starts = [0, *(found.start() for found in _ONLY_STARTS.finditer(run)), len(run)]
    return [token for start, end in pairwise(starts) for token in _TOKEN.findall(run[start:end].rstrip(_NO_ENDS))]


def _entity(raw: str) -> str:
    if raw.isalpha():
        return raw if _is_identifier(raw) else ""
    token = raw.strip(_EDGES)
    if token.isdigit():
        return token if len(token) > 1 else ""
    if not 3 <= len(token) <= _MAX_LENGTH:
        return ""
    if token.isalnum():
        return token if not token.isalpha() or _is_identifier(token) else ""
    if token in _COMMON or not _MARK.search(token) or _is_hyphenated_word(token):
        return ""
    return token if token[0].isalnum() or token.strip(_MARKS) else ""


def _is_identifier(word: str) -> bool:
    """Return whether a capital inside of a word makes it a name, such as parseDate."""
    return len(word) > 3 and not (word.islower() or word.isupper() or word.istitle())


def _is_hyphenated_word(token: str) -> bool:
    return "-" in token and token.replace("-", "").isalpha() and not token.isupper()
