"""Does the quality score rank good summaries above bad ones? ``--ranking FOLDER``.

The folder has summaries written by hand: ``NAME.json`` is a good one, ``NAME.para.json`` a good one in other words, and
``NAME.bad1.json``, ``NAME.bad2.json`` are bad: vague, or with false names. Each names its ``conversation``, how many of
its messages it covers (``cut``), and the ``summary``. The conversations come from ``--data``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench.retention.data import Conversation
from everlong.context import SummaryRequest
from everlong.context.report import Quality, check_summary
from everlong.model import Message, leading_system_count, newest_request, typed_words
from everlong.tokens import MessageCounter

WRITTEN = Path(__file__).with_name("written")


class Ranked(NamedTuple):
    """A summary with its findings."""

    name: str
    kind: str
    """Empty for a good one, ``para`` for one in other words, ``bad…`` for a bad one."""
    quality: Quality

    @property
    def is_bad(self) -> bool:
        """True for a bad summary."""
        return self.kind.startswith("bad")


def rank(folder: Path, conversations: Sequence[Conversation]) -> Iterator[Ranked]:
    """Yield the findings on every summary of a folder whose conversation is at hand."""
    known = {conversation.name: conversation.messages for conversation in conversations}
    for path in sorted(folder.glob("*.json")):
        written = json.loads(path.read_text("utf-8"))
        if written["conversation"] in known:
            name, _, kind = path.stem.partition(".")
            covered = known[written["conversation"]][: written["cut"]]
            yield Ranked(name, kind, check_summary(written["summary"], request_for(covered)))


def request_for(covered: Sequence[Message]) -> SummaryRequest:
    """Return the request for a summary of these messages."""
    turns = covered[leading_system_count(covered) :]
    newest = newest_request(turns)
    return SummaryRequest(
        turns,
        previous=None,
        budget_tokens=2_000,
        count=MessageCounter().count_text,
        opening=next((m for m in turns if m["role"] == "user" and typed_words(m)), None),
        latest_user=None if newest is None else turns[newest],
    )


def run_ranking(folder: Path, conversations: Sequence[Conversation]) -> int:
    """Print every summary and the pairs that the score ranks right; return 1 if there are none."""
    found = list(rank(folder, conversations))
    if not found:
        print(f"retention: no summary in {folder} belongs to a conversation of --data")
        return 1
    for one in found:
        print(f"{one.name:<20} {one.kind or 'good':<5} {one.quality.score:.3f}  {one.quality.in_words()}")
    for title, kinds in (("good", ("",)), ("in other words", ("para",))):
        good = [one for one in found if one.kind in kinds]
        pairs = list(product(good, [one for one in found if one.is_bad]))
        same = [(best, worst) for best, worst in pairs if best.name == worst.name]
        print(f"{title} above bad: {_told(same)} of the same conversation, {_told(pairs)} of all")
    return 0


def _told(pairs: Sequence[tuple[Ranked, Ranked]]) -> str:
    return f"{sum(best.quality.score > worst.quality.score for best, worst in pairs):,} of {len(pairs):,} pairs"
