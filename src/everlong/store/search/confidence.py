"""The confidence that something found is what a message asks about.

A ranking is always an order, even of texts that have nothing to do with the question. Whoever shows a hit unasked needs
to know whether to keep silent. Four signs are weighed: how much of the question's rare words one passage of the best
hits holds, whether the message refers back, whether it asks for a fact, and whether it is about the person's own
matters. `python -m bench.store.teasers` measures the result and fits the weights. Pure functions; no database.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from everlong.store.search.snippets import pieces_of
from everlong.store.search.text import terms_of

_BACK = re.compile(
    r"\b(?:did (?:i|we|you)|ha(?:ve|d) (?:i|we)|again|earlier|before|previous(?:ly)?|remember|remind|last time|so far|"
    r"(?:i|we|you) (?:said|told|mention\w*|discuss\w*|decid\w*|agreed|recommend\w*|suggest\w*|brought up|planned|asked|"
    r"chose|set|used|picked)|w(?:as|ere) (?:my|our)|(?:my|our) (?:first|original|initial))\b"
    r"|之前|上次|刚才|以前|当时|记得|说过|提过|决定过"
)
_FACT = re.compile(
    r"^\W*(?:(?:and|so|but|by|in|on|at|for|from|to|with|since|until|of) )?"
    r"(?:what|which|who|whose|when|where|how (?:many|much|long|often|old|did)|have (?:i|we)|did (?:i|we|you)|am i|"
    r"(?:is|are|was|were) (?:my|our)|do i|was)\b"
    r"|什么|哪|多少|几[个次天点]|是谁|吗[？?]?\s*$"
)
_OWN = re.compile(r"\b(?:my|our|i|we)\b|我")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_FEWEST_TERMS = 5
"""Terms below which a message that asks nothing says too little: every text about a command's name holds all of it."""
_PASSAGE = 2
"""Sentences in a row that count as one passage."""


class RecallSigns(NamedTuple):
    """Signs that the best hits are about what a message asks, each from 0 to 1."""

    coverage: float
    """The share of the question's words, by their rarity, that the best passage holds."""
    refers_back: float
    asks_fact: float
    is_own: float


class SignWeights(NamedTuple):
    """The weights of a logistic function of the signs, and its constant."""

    coverage: float
    refers_back: float
    asks_fact: float
    is_own: float
    constant: float


WEIGHTS = SignWeights(7.67, 0.61, 1.07, 1.48, -7.51)
"""Fitted by the benchmark on its calibration half."""

THRESHOLD = 0.25
"""The least confidence with which something is shown unasked.

On the same half, six of seven teasers are right with it, and fewer than one in a hundred ordinary turns has one.
"""


def read_signs(question: str, rarities: Mapping[str, float], found: Sequence[str]) -> RecallSigns:
    """Return the signs for the texts that were found, of which any may answer.

    Args:
        question: the message.
        rarities: the terms of the question, each with its weight.
        found: the best texts.
    """
    words = question.strip().lower()
    refers_back, asks_fact = _BACK.search(words) is not None, _FACT.search(words) is not None
    says_enough = refers_back or asks_fact or len(rarities) >= _FEWEST_TERMS
    coverage = max((best_passage(text, rarities).coverage for text in found if says_enough), default=0.0)
    return RecallSigns(coverage, float(refers_back), float(asks_fact), float(_OWN.search(words) is not None))


def confidence(signs: RecallSigns, weights: SignWeights = WEIGHTS) -> float:
    """Return the probability that one of the texts is what the message asks about."""
    total = weights.constant + sum(weight * sign for weight, sign in zip(weights, signs, strict=False))
    return 1 / (1 + math.exp(-total))


class Passage(NamedTuple):
    """A few sentences in a row, and the share of a question's words that they hold."""

    coverage: float
    text: str


def best_passage(text: str, rarities: Mapping[str, float]) -> Passage:
    """Return the first passage of a text with the most of a question's words, by their rarity."""
    sentences = list(_sentences(text))
    held = [rarities.keys() & set(terms_of(sentence)) for sentence in sentences]
    whole, best, place = sum(rarities.values()), 0.0, 0
    for start in range(len(sentences)):
        share = sum(rarities[term] for term in set().union(*held[start : start + _PASSAGE]))
        if share > best:
            # A sentence that adds nothing to the next one does not begin the passage.
            place = start if held[start] else min(start + 1, len(sentences) - 1)
            best = share
    return Passage(best / whole if whole > 0 else 0.0, " ".join(sentences[place : place + _PASSAGE]))


def _sentences(text: str) -> Iterator[str]:
    for piece in pieces_of(text):
        yield from (sentence for sentence in _SENTENCE_END.split(piece) if sentence and not sentence.isspace())
