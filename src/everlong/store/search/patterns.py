"""What every match of a regular expression must contain, so that an index can say where to look.

Reads the pattern with the standard library's own parser; where that cannot read it, nothing is known and every text
has to be looked at. Never claims a literal that a match might lack.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

LEAST = 3
"""Shorter literals are of no use to an index of trigrams."""

_Parser: Any = getattr(re, "_parser")  # noqa: B009 - private, yet the one parser that knows the language


def required_literals(pattern: str) -> tuple[str, ...]:
    """Literals of at least three plain characters that stand in every match; none if that cannot be told."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = _Parser.parse(pattern)
    except (re.error, OverflowError, RecursionError, ValueError, IndexError):
        return ()
    if parsed.state.flags & re.VERBOSE:
        return ()
    found: list[str] = []
    _collect(parsed, found)
    return tuple(dict.fromkeys(text for run in found for text in run.split() if len(text) >= LEAST))


def _collect(parsed: Any, found: list[str]) -> None:
    run: list[str] = []
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL" and argument < 0x80:
            run.append(chr(argument))
            continue
        found.append("".join(run))
        run = []
        if name == "SUBPATTERN":
            _collect(argument[3], found)
        elif name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"} and argument[0] > 0:
            _collect(argument[2], found)
        elif name == "ATOMIC_GROUP":
            _collect(argument, found)
    found.append("".join(run))
