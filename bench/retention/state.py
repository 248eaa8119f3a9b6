"""The state of the work after a compaction, against labels that a person wrote: ``--state``.

Cuts the labelled transcripts where the labels say, compacts what is before the cut, and looks in the context for the
newest request, the plan, the open error and the files in hand; and under Blocked for errors that a later turn closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import verdict
from bench.retention.data import Conversation
from everlong.context import ContextCompressor
from everlong.context.chronicle import Chronicle
from everlong.context.document import SummaryDocument
from everlong.context.literals import is_summary, summary_body
from everlong.context.text import one_line
from everlong.model import Message, whole_text

LABELS = Path(__file__).parent / "labels" / "state.jsonl"
WINDOW = 32_000
KEPT = 4
"""Messages that every tail has; where a conversation is so short that the usual tail holds it all, the newest two."""
_ROUNDS = (0.4, 0.7)
"""With ``--chain``, where earlier compactions take place, as shares of the messages before the cut."""


@dataclass
class Tally:
    """The number of right answers, and of all."""

    right: int = 0
    asked: int = 0
    misses: list[str] = field(default_factory=list)

    def note(self, is_right: bool, what: str) -> None:
        """Count one answer."""
        self.asked += 1
        self.right += is_right
        if not is_right:
            self.misses.append(what)

    @property
    def share(self) -> float:
        """The share of right answers; 1 where nothing was asked."""
        return self.right / self.asked if self.asked else 1.0


class Bar(NamedTuple):
    """A measure and its required value."""

    name: str
    least: float


BARS = (
    Bar("newest request exact", 1.0),
    Bar("last written plan complete", 1.0),
    Bar("last error there", 1.0),
    Bar("last error called open", 0.72),
    Bar("files in hand named", 0.95),
    Bar("closed and not called open", 0.98),
)


def labels() -> list[dict[str, Any]]:
    """Return the labels, one for each cut."""
    return [json.loads(line) for line in LABELS.read_text("utf-8").splitlines() if line.strip()]


def measure(conversations: Sequence[Conversation], *, chain: bool = False) -> dict[str, Tally]:
    """Compact every labelled cut of these conversations and compare."""
    tallies = {bar.name: Tally() for bar in BARS}
    by_name = {conversation.name: conversation for conversation in conversations}
    for label in labels():
        conversation = by_name.get(label["conversation"])
        if conversation is not None:
            context = compacted(conversation.messages, label["cut"], chain=chain)
            if context is not None:
                compare(label, conversation.messages, context, tallies)
    return tallies


def compacted(messages: list[Message], cut: int, *, chain: bool = False) -> list[Message] | None:
    """Return the context after the compaction at a cut; with ``chain``, two more took place before it.

    None where so little is new at the cut that nothing is compacted: all of it stands there as it was.
    """
    engine = ContextCompressor(WINDOW, settings={"protect_last_n": KEPT})
    context: list[Message] = []
    start = 0
    for place in [*(round(share * cut) for share in _ROUNDS), cut] if chain else [cut]:
        context = [*context, *messages[start:place]]
        start = place
        made = engine.compress(context, force=True)
        if place == cut and (engine.last_report is None or engine.last_report.outcome != "summarized"):
            with engine.keeping(2):
                made = engine.compress(context, force=True)
        context = made
    report = engine.last_report
    return context if report is not None and report.outcome == "summarized" else None


def compare(label: dict[str, Any], messages: list[Message], context: list[Message], tallies: dict[str, Tally]) -> None:
    """Compare one context with its label."""
    where = f"{label['conversation']}@{label['cut']}"
    summary = "\n".join(summary_body(message) for message in context if is_summary(message))
    whole = one_line("\n".join(map(whole_text, context)))
    request = one_line(whole_text(messages[label["request"]]))
    tallies["newest request exact"].note(request in whole, f"{where}: {request[:60]!r}")
    blocked = one_line("\n".join(SummaryDocument.parse(summary).items["Blocked"]))
    for error in label["errors"]:
        text = one_line(error["text"])
        tallies["last error there"].note(text in whole, f"{where}: {text[:80]}")
        tallies["last error called open"].note(text in blocked, f"{where}: {text[:80]}")
    for path in label["files"]:
        tallies["files in hand named"].note(path.rpartition("/")[2] in whole, f"{where}: {path}")
    still_open = {error["text"] for error in label["errors"]}
    for error in label["closed"]:
        if error["text"] not in still_open:
            is_closed = one_line(error["text"]) not in blocked
            tallies["closed and not called open"].note(is_closed, f"{where}: {error['text'][:80]}")
    if label["plan"] is not None:
        wanted = [tuple(item) for item in label["plan"]["items"]]
        written = [(item.state, item.text) for item in Chronicle.carried_on(summary).plan]
        tallies["last written plan complete"].note(written == wanted, f"{where}: {written}")


def rows(tallies: dict[str, Tally]) -> Iterator[str]:
    """Return the table."""
    for bar in BARS:
        tally = tallies[bar.name]
        told = verdict(tally.share, bar.least, at_least=True) if tally.asked else "none labelled"
        yield f"{bar.name:<28} {tally.right:>4}/{tally.asked:<4} {tally.share:>6.3f}  (bar {bar.least:.2f}) {told}"


def run_state(conversations: Sequence[Conversation], *, chain: bool, misses: int) -> int:
    """Measure, print, and return 0 where every bar holds."""
    tallies = measure(conversations, chain=chain)
    cuts = sum(label["conversation"] in {c.name for c in conversations} for label in labels())
    print(f"The state of the work at {cuts} labelled cuts{' after three compactions' if chain else ''}:\n")
    for row in rows(tallies):
        print(row)
    for name, tally in tallies.items():
        for miss in tally.misses[:misses]:
            print(f"  {name}: {miss}")
    return int(any(tallies[bar.name].share < bar.least for bar in BARS))
