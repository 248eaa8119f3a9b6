"""The report of a compaction, as a value for people, for the history and for tests, and the checks of its summary.

A check can fail: the summary may not name the task or the newest request, may have few of the names that recur, or
names that are nowhere in the source. `check_summary` reports the findings as a `Quality`, and changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from everlong.context.document import SummaryDocument
from everlong.context.literals import COMPACTION_NOTE
from everlong.context.names import entities, names_by_line
from everlong.model import Message, text_of, whole_text

if TYPE_CHECKING:
    from everlong.context.summarizers import SummaryRequest

Outcome = Literal["summarized", "cleared", "unchanged"]


@dataclass(frozen=True, slots=True)
class Quality:
    """The findings of the checks after a compaction; `score` is derived from them.

    >>> engine = ContextCompressor(16_000)
    >>> _ = engine.compress(messages)
    >>> quality: Quality = engine.last_report.quality
    >>> quality.task_kept, quality.request_kept, quality.invented
    (True, True, ())
    """

    task_kept: bool
    """True if the summary names the task: three in ten of the telling words of the first request."""
    request_kept: bool
    """True if the summary names the newest request."""
    names_kept: float
    """The share of the names that recur in the summarized turns, or stand in the turns after them, in the summary."""
    rules_kept: tuple[int, int] = (0, 0)
    """The user's standing rules that stand in the result, and all of them."""
    invented: tuple[str, ...] = ()
    """Names in the summary that are nowhere in the source."""
    problems: tuple[str, ...] = ()
    """What was wrong with answers that could not be used, and with the summary's form."""

    @property
    def score(self) -> float:
        """One number from 0 to 1: names weigh one half, task and request a fifth each, rules a tenth.

        Names count by their square root, because no summary has all of them; each invented name costs a twentieth.
        """
        kept, of = self.rules_kept
        rules = kept / of if of else 1.0
        told = 0.5 * self.names_kept**0.5 + 0.2 * self.task_kept + 0.2 * self.request_kept + 0.1 * rules
        return round(max(0.0, float(told) - 0.05 * len(self.invented)), 4)

    def in_words(self, *, is_stored: bool = True) -> str:
        """Return the findings as a person reads them; only what is stored can be searched."""
        kept, of = self.rules_kept
        said = [
            "task kept" if self.task_kept else "the summary does not name the task",
            *([] if self.request_kept else ["the newest request is not in the summary"]),
            *([f"{kept} of {of} rules"] if of else []),
            f"{self.names_kept:.0%} of the recurring names in the summary{', the rest by search' if is_stored else ''}",
        ]
        if self.invented:
            shown = ", ".join(self.invented[:5]) + (" …" if len(self.invented) > 5 else "")
            many = len(self.invented)
            said.append(f"{many} name{'' if many == 1 else 's'} not in the source: {shown}")
        return " · ".join(said)


# -- the checks of a summary -------------------------------------------------------------------------------------------

_LOOKED_AT = 60_000
"""Characters of the source in which recurring names are counted; of a longer one, a sample of its messages."""
_TELLING = 0.3
"""The share of the telling words of a request that a summary must have to name it; one in other words has few."""
_FEWEST_TELLING = 4
"""A request with fewer telling words, such as a greeting, need not be named."""
_LONGEST_REQUEST = 600
"""Characters of a request whose words are looked for."""
_MOST_WANTED = 400
_WORD = re.compile(r"[^\W\d_]{4,}|[\u3400-\u9fff\u3040-\u30ff]")
_PIECE = re.compile(r"[A-Za-z0-9_]+")


def check_summary(
    text: str,
    request: SummaryRequest,
    *,
    rules: tuple[int, int] = (0, 0),
    problems: Sequence[str] = (),
    prose: str | None = None,
) -> Quality:
    """Return the findings on a summary; only its ``prose``, all of it if not given, may invent names."""
    told = _without_names(text).casefold()
    written = text if prose is None else prose
    found = list(problems)
    if not SummaryDocument.parse(text).items["Goal"]:
        found.append("it has no Goal")
    return Quality(
        task_kept=_is_named(request.opening_words, told),
        request_kept=_is_named(request.newest_words, told),
        names_kept=_names_kept(text, request),
        rules_kept=rules,
        invented=tuple(_invented_names(written, request)) if written else (),
        problems=tuple(found),
    )


def _is_named(words: str, told: str) -> bool:
    """Return whether a text has enough of the telling words of a request."""
    wanted = set(_WORD.findall(_without_names(words[:_LONGEST_REQUEST]).casefold()))
    return len(wanted) < _FEWEST_TELLING or sum(word in told for word in wanted) >= _TELLING * len(wanted)


def _without_names(text: str) -> str:
    """Return the words of a text that name nothing: a list of names says nothing about a request."""
    words = text.split()
    return " ".join(word for word, names in zip(words, names_by_line(words), strict=True) if not names)


def _names_kept(text: str, request: SummaryRequest) -> float:
    """Return the share of recurring names that a summary has."""
    step = 1 + sum(len(str(message.get("content") or "")) for message in request.turns) // _LOOKED_AT
    covered = [set(entities(whole_text(message))) for message in request.turns[::step]]
    counted = Counter(name for names in covered for name in names)
    later = set(entities("\n".join(map(whole_text, request.after))))
    wanted = [name for name, times in counted.most_common() if times > 1 or name in later][:_MOST_WANTED]
    wanted = wanted or list(counted)[:_MOST_WANTED]
    return len(set(wanted).intersection(entities(text))) / len(wanted) if wanted else 1.0


def _invented_names(text: str, request: SummaryRequest) -> list[str]:
    """Return the names of a text that are nowhere in its source; a dotted name is there if its parts are."""
    names = [name for name in dict.fromkeys(entities(text)) if not _is_plain_number(name)]
    messages: Iterable[Message] = [*request.prefix, *request.before, *request.turns, *request.after]
    unique = {id(message): message for message in messages}.values()
    more = (request.previous, request.memory_context, request.focus_topic)
    source = "\n".join([*map(whole_text, unique), *(text for text in more if text)])
    unknown = [name for name in names if name not in source]
    if not unknown:
        return []
    whole = source.casefold()
    return [name for name in unknown if not all(part.casefold() in whole for part in _PIECE.findall(name))]


def _is_plain_number(name: str) -> bool:
    """Return whether a name is a small number, which a writer may have counted."""
    return name.isdigit() and len(name) < 3


# -- the report --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The cuts between the parts, as indices of the repaired input.

    >>> engine = ContextCompressor(16_000)
    >>> _ = engine.compress(messages)
    >>> cuts: Boundaries = engine.last_report.boundaries
    >>> 0 < cuts.head_end < cuts.tail_start < len(messages)
    True
    """

    head_end: int
    tail_start: int
    covered: tuple[int, int]
    """The range of messages that the summary replaces."""


@dataclass(frozen=True, slots=True)
class SummarizerInput:
    """The size of the summarizer's task.

    >>> engine = ContextCompressor(16_000)
    >>> _ = engine.compress(messages)
    >>> task: SummarizerInput = engine.last_report.summarizer_input
    >>> task.messages > 0, task.previous_summary
    (True, False)
    """

    messages: int
    tokens: int
    previous_summary: bool
    budget_tokens: int
    focus_topic: str | None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """Everything worth knowing about one compaction.

    >>> engine = ContextCompressor(16_000)
    >>> _ = engine.compress(messages)
    >>> report: CompactionReport | None = engine.last_report  # None before the first call
    >>> report and (report.outcome, report.tokens_after < report.tokens_before)
    ('summarized', True)
    """

    outcome: Outcome
    tokens_before: int
    tokens_after: int
    reported_tokens: int | None
    """The provider's count of the conversation before, if the host passed it on."""
    messages_before: int
    messages_after: int
    results_cleared: int
    results_shortened: int
    latest_user_repeated: bool
    boundaries: Boundaries
    counter: str
    summarizer: str | None = None
    summarizer_input: SummarizerInput | None = None
    summary_tokens: int = 0
    fallback_reason: str | None = None
    """The reason why the built-in summary replaced the chosen summarizer's; None if it did not."""
    quality: Quality | None = None
    rules: int = 0
    """The number of the user's standing rules in the block after the summary."""
    rules_tokens: int = 0
    """The size of that block."""
    rules_by_id: int = 0
    """The number of rules in force that only fit there as ids."""
    repaired: bool = False
    """True if the input broke the message protocol and was mended."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds spent in each stage."""

    @property
    def tokens_saved(self) -> int:
        """The tokens that the conversation lost."""
        return self.tokens_before - self.tokens_after

    @property
    def saved_share(self) -> float:
        """The saved tokens as a share of the tokens before."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        told = {**asdict(self), "tokens_saved": self.tokens_saved, "saved_share": round(self.saved_share, 4)}
        if self.quality is not None:
            told["quality"] |= {"score": self.quality.score, "in_words": self.quality.in_words()}
        return told


MessageFate = Literal["kept", "cleared", "noted", "repeated", "summarized", "added"]


class MessageChange(NamedTuple):
    """A message and its fate; ``source`` is its index before, None for an added one."""

    fate: MessageFate
    message: Message
    source: int | None


def compare_lists(before: Sequence[Message], after: Sequence[Message]) -> list[MessageChange]:
    """Return every message of both lists once: the old ones in their order, the new ones at their places."""
    partners = _partners(before, after)
    placed: list[MessageChange] = []
    cursor = 0
    seen: set[int] = set()
    for message, source in zip(after, partners, strict=True):
        if source is None:
            placed.append(MessageChange("added", message, None))
            continue
        placed.extend(MessageChange("summarized", before[gone], gone) for gone in range(cursor, source))
        cursor = max(cursor, source + 1)
        repeated = source in seen
        seen.add(source)
        placed.append(MessageChange("repeated" if repeated else _fate(before[source], message), message, source))
    placed.extend(MessageChange("summarized", before[gone], gone) for gone in range(cursor, len(before)))
    kept = {change.source for change in placed if change.fate != "summarized"}
    return [change for change in placed if change.fate != "summarized" or change.source not in kept]


def _fate(old: Message, new: Message) -> MessageFate:
    if old is new or old == new:
        return "kept"
    return "noted" if text_of(new).endswith(COMPACTION_NOTE) else "cleared"


def _partners(before: Sequence[Message], after: Sequence[Message]) -> list[int | None]:
    """Return for each message after the index of the one before that it came from."""
    by_object = {id(message): place for place, message in enumerate(before)}
    by_call: defaultdict[tuple[object, object], deque[int]] = defaultdict(deque)
    unclaimed = set(range(len(before)))
    partners: list[int | None] = []
    for message in after:
        place = by_object.get(id(message))
        partners.append(place)
        unclaimed.discard(-1 if place is None else place)
    for place in sorted(unclaimed):
        by_call[before[place]["role"], before[place].get("tool_call_id")].append(place)
    for position, message in enumerate(after):
        if partners[position] is None:
            waiting = by_call.get((message["role"], message.get("tool_call_id")))
            if waiting and _could_be(before[waiting[0]], message):
                partners[position] = waiting.popleft()
    return partners


def _could_be(old: Message, new: Message) -> bool:
    """Return whether a changed message may be this old one: results by their id, others if they begin alike."""
    if old["role"] == "tool":
        return True
    return bool(text_of(old)) and text_of(new).startswith(text_of(old)[:40])
