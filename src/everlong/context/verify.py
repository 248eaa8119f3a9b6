"""Fifth stage: is the result valid, and how good is it?

Validity is checked by the invariants; quality is measured by what survived: entities of the summarized turns, sections
with content, the latest request. A large source is measured on an even sample of its turns, so that measuring never
costs more than compacting. Measures only; mending is the business of whoever reads the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from everlong.context.invariants import LatestUserTurn
from everlong.context.report import Quality
from everlong.context.summarize import Written
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.entities import entities
from everlong.model import Message, calls_of, is_system, text_of

_MOST_TURNS = 120
_MOST_CHARACTERS = 800
_SECTIONS_EXPECTED = 5
_WEIGHTS = {"user": 3.0, "assistant": 2.0}


def measure(
    turns: Sequence[Message],
    previous: str | None,
    written: Written,
    result: Sequence[Message],
    source: Sequence[Message],
) -> Quality:
    """The quality of a compaction that put a summary in place of ``turns``."""
    step = max(1, -(-len(turns) // _MOST_TURNS))
    wanted = _weighted_entities(turns[::step])
    there = {
        name for message in result if not is_system(message) for text in _texts(message) for name in entities(text)
    }
    total = sum(wanted.values())
    kept = sum(weight for name, weight in wanted.items() if name in there) / total if total else 1.0
    # What was chosen from the source cannot be invented; only a model's words need the search.
    invented = () if written.is_extract else _invented(written.text, turns, previous, source)
    sections = SummaryDocument.parse(written.text).filled_sections()
    intact = not LatestUserTurn(source).check(result)
    score = (
        0.6 * kept
        + 0.2 * min(1.0, len(sections) / _SECTIONS_EXPECTED)
        + 0.1 * intact
        + 0.1 * (1.0 - min(1.0, len(invented) / 5))
    )
    return Quality(
        score=round(score, 4),
        entities_kept=round(kept, 4),
        invented=invented,
        sections=sections,
        latest_request_intact=intact,
        sampled=step > 1,
    )


def _texts(message: Message) -> list[str]:
    return [text_of(message), *(call.arguments for call in calls_of(message))]


def _weighted_entities(turns: Sequence[Message]) -> dict[str, float]:
    """The entities of the turns; those that people and models wrote, and those that recur, weigh more."""
    seen: Counter[str] = Counter()
    weights: dict[str, float] = {}
    for message in turns:
        weight = _WEIGHTS.get(message["role"], 1.0)
        for text in _texts(message):
            for name in set(entities(text[:_MOST_CHARACTERS])):
                seen[name] += 1
                weights[name] = max(weight, weights.get(name, 0.0))
    return {name: weights[name] * min(count, 5) for name, count in seen.items()}


def _invented(
    summary: str, turns: Sequence[Message], previous: str | None, source: Sequence[Message]
) -> tuple[str, ...]:
    """Entities of a summary that stand nowhere in what it was made from."""
    known = [previous or ""]
    # A count that the summary itself made up of many turns (×12) is an observation, not an invention.
    suspects = [name for name in dict.fromkeys(entities(summary)) if not name.isdigit() or len(name) > 3]
    missing = [name for name in suspects if not any(name in text for text in known)]
    found: list[str] = []
    for name in missing:
        if any(name in text for message in reversed(turns) for text in _texts(message)):
            continue
        if any(name in text for message in source for text in _texts(message)):
            continue
        found.append(name)
    return tuple(found)
