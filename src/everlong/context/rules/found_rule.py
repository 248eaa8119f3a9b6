"""A rule in a person's own words, as long as a rule may be."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["rule", "preference"]

LONGEST_RULE = 320
"""Characters of a rule; of a longer sentence only the clauses that say it are taken."""


class FoundRule(NamedTuple):
    """A rule in a person's own words."""

    text: str
    kind: Kind


def cut_rule(text: str, around: re.Match[str] | None = None) -> str:
    """Return at most the longest rule's length of a text, from the wish on, cut between words."""
    start = 0 if around is None or around.end() < LONGEST_RULE else around.start()
    if len(text) - start <= LONGEST_RULE:
        return text[start:]
    end = text.rfind(" ", start, start + LONGEST_RULE)
    return text[start : end if end > start else start + LONGEST_RULE]
