"""Summaries as models write them, good and bad, made from the conversation itself without a model.

Each kind is a function of a request. The good one is true: plain sentences of the turns under the right headings. The
others are what goes wrong in practice. Knows nothing of how it is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from everlong.context import SummaryRequest
from everlong.context.text import clip, one_line
from everlong.model import Message, calls_of, text_of

INVENTED = ("config/zeta_plan.yaml", "prod-cluster-1794", "48213", "ZetaPlannerFactory")
"""Names that no conversation has."""
_GOAL_LENGTH = 300
_SENTENCE_LENGTH = 200
_MOST_DONE = 16
_MOST_FILES = 10
_LONG_WORD = re.compile(r"(?<![\w/.])[a-z]{6,}(?![\w/.])")
_LABEL = re.compile(r"^[A-Z]{4,}:\s*")
_PATH = re.compile(r"(?<![\w/])[\w.~-]*/[\w./-]+\.\w{1,5}\b")


def good(request: SummaryRequest) -> str:
    """Return a summary of an able model: true, under the right headings, far from complete."""
    asked = [_sentence(message) for message in request.turns if message["role"] == "user"]
    told = [_sentence(message) for message in request.turns if message["role"] == "assistant"]
    asked = [f"The user: {line}" for line in asked if line]
    told = [f"The assistant: {line}" for line in told if line]
    opening = clip(one_line(text_of(request.opening)), _GOAL_LENGTH) if request.opening else ""
    done = told[:-1][:: max(1, len(told) // _MOST_DONE)]
    blocks = (
        ("## Goal", [opening] if opening else asked[:1]),
        ("## Constraints & Preferences", asked[1:5]),
        ("## Progress\n### Done", done),
        ("### In Progress", told[-1:]),
        ("## Relevant Files", list(dict.fromkeys(_paths(request)))[-_MOST_FILES:]),
        ("## Next Steps", ["Go on from there."]),
    )
    lines = [line for heading, items in blocks if items for line in (heading, *(f"- {item}" for item in items))]
    return "\n".join(lines)


def empty(request: SummaryRequest) -> str:
    """Return nothing."""
    del request
    return "  \n"


def truncated(request: SummaryRequest) -> str:
    """Return the good summary, broken off in the middle of a word."""
    whole = good(request)
    said = "\n".join(text_of(message) for message in request.prefix or request.turns).lower()
    for word in _LONG_WORD.finditer(whole, len(whole) * 3 // 5):
        half = word[0][: len(word[0]) // 2]
        if not re.search(rf"\b{half}\b", said):  # half of a word that is one by itself gives nothing away
            return whole[: word.start() + len(half)]
    return f"{whole}\n- Then look at the"


def off_topic(request: SummaryRequest) -> str:
    """Return a summary in form, of something else."""
    del request
    return (
        "## Goal\n- Bake an apple cake for grandmother's birthday.\n## Progress\n### Done\n"
        "- Melted butter, whipped cream, peeled apples, sprinkled cinnamon over everything.\n"
        "## Next Steps\n- Preheat oven, invite cousins, choose candles, borrow folding chairs.\n"
    )


def answering(request: SummaryRequest) -> str:
    """Return a reply to the latest request instead of a summary."""
    asked = clip(one_line(text_of(request.latest_user)), _SENTENCE_LENGTH) if request.latest_user else "that"
    return (
        f"Sure! You asked me: {asked}\n\nI had a look, and this is easily done. First I will make the change, then run "
        "the checks again.\n\nLet me know if you would like me to go on."
    )


def inventing(request: SummaryRequest) -> str:
    """Return the good summary with names that are not in the conversation."""
    config, cluster, port, factory = INVENTED
    return (
        f"{good(request)}\n- Deploy {config} to {cluster} on port {port}.\n"
        f"## Key Decisions\n- Everything goes through {factory}.\n"
    )


class Script:
    """A summarizer that answers by one kind of script after the other."""

    name = "script"

    def __init__(self, kind: str = "good") -> None:
        self.kind = kind

    def summarize(self, request: SummaryRequest) -> str:
        """Return the answer of the kind whose turn it is."""
        return SCRIPTS[self.kind](request)


SCRIPTS: dict[str, Callable[[SummaryRequest], str]] = {
    "good": good,
    "empty": empty,
    "truncated": truncated,
    "off-topic": off_topic,
    "answering": answering,
    "inventing": inventing,
}


def _sentence(message: Message) -> str:
    said = _LABEL.sub("", one_line(text_of(message)))
    return clip(re.split(r"(?<=[.!?。！？])\s", said, maxsplit=1)[0], _SENTENCE_LENGTH)


def _paths(request: SummaryRequest) -> Iterator[str]:
    for message in request.turns:
        for call in calls_of(message):
            yield from _PATH.findall(call.arguments)
