"""One conversation through all cuts, shares and methods.

A trial is one compaction with everything that was measured of it. Runs in a process of its own: takes and gives plain
values. Knows nothing of averages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from bench.retention.data import CHAINS, CUTS, Conversation, cuts
from bench.retention.facts import Fact, Transcript
from bench.retention.measures import NOTHING, Share, held_facts, held_files, held_turns, invented
from bench.retention.methods import METHODS, body_tokens, method_of
from bench.retention.texts import Text
from bench.retention.validity import problems
from everlong.model import Message, calls_of

LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Work:
    """The trials for one conversation."""

    conversation: Conversation
    common: Set[str]
    """Entities that too many other conversations state as well."""
    shares: tuple[float, ...]
    methods: tuple[str, ...]
    chain: str = ""
    """``history`` or ``context``: of what each compaction of a chain may keep the share; empty for no chain."""
    with_misses: bool = False
    rounds: int = 3
    """The number of compactions of a chain."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A fact that a context lost, or kept without what it was about."""

    conversation: str
    cut: int
    fact: str
    kind: str
    far: bool
    stood: str
    """Role, tool and index of the message that said it last."""
    line: str
    used: str
    used_line: str
    company: tuple[str, ...]
    unbound: bool = False


@dataclass(slots=True)
class Trial:
    """One compaction and what it kept."""

    conversation: str
    kind: str
    method: str
    share: float
    cut: int
    chained: bool = False
    reached: bool = True
    tokens_before: int = 0
    tokens: int = 0
    facts: int = 0
    recall: Share = NOTHING
    far: Share = NOTHING
    bound: Share = NOTHING
    by_kind: dict[str, Share] = field(default_factory=dict)
    files: Share = NOTHING
    turns: Share = NOTHING
    valid: Share = NOTHING
    invented: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    seconds: float = 0.0


def try_all(work: Work) -> list[Trial]:
    """Return every trial of one conversation."""
    transcript = Transcript(work.conversation.messages)
    if work.chain:
        return _try_chains(work, transcript)
    trials = []
    for cut in cuts(work.conversation.messages, CUTS):
        prefix = work.conversation.messages[:cut]
        facts = transcript.facts_after(cut, work.common)
        for share in work.shares:
            for method in work.methods:
                start = time.perf_counter()
                context = METHODS[method](prefix, int(share * body_tokens(prefix)))
                spent = time.perf_counter() - start
                trial = measured(work, transcript, facts, cut, context)
                trial.method, trial.share, trial.seconds = method, share, spent
                trials.append(trial)
    return trials


def _try_chains(work: Work, transcript: Transcript) -> list[Trial]:
    messages = work.conversation.messages
    shares = CHAINS[work.rounds]
    places = cuts(messages, shares)
    if len(places) < len(shares):
        return []
    facts = transcript.facts_after(places[-1], work.common)
    trials = []
    for share in work.shares:
        for method in work.methods:
            trial = measured(work, transcript, facts, places[-1], _chained(work, places, share, method))
            trial.method, trial.share, trial.chained = method, share, True
            trials.append(trial)
    return trials


def _chained(work: Work, places: Sequence[int], share: float, method: str) -> list[Message] | None:
    """Return the context after a compaction at each place, each within its share of the history or of its input."""
    messages, compact = work.conversation.messages, method_of(method)
    context: list[Message] = []
    done = 0
    for place in places:
        given = [*context, *messages[done:place]]
        replaced = given if work.chain == "context" else messages[:place]
        compacted = compact(given, int(share * body_tokens(replaced)))
        if compacted is None:
            return None
        context, done = compacted, place
    return context


def measured(
    work: Work, transcript: Transcript, facts: Sequence[Fact], cut: int, context: list[Message] | None
) -> Trial:
    """Return a trial: the facts needed after a cut that a context keeps, whichever method made it."""
    prefix = work.conversation.messages[:cut]
    trial = Trial(work.conversation.name, work.conversation.kind, "", 0.0, cut, tokens_before=body_tokens(prefix))
    trial.facts = len(facts)
    if context is None:
        trial.reached = False
        return trial
    text = Text(context)
    held = held_facts(facts, text)
    trial.tokens = body_tokens(context)
    trial.recall, trial.far, trial.bound, trial.by_kind = held.recall, held.far, held.bound, held.by_kind
    trial.files, trial.turns = held_files(prefix, text), held_turns(prefix, text)
    trial.invented = invented(context, prefix)
    trial.problems = problems(context, prefix)
    trial.valid = Share(not trial.problems, 1)
    if work.with_misses:
        trial.misses = [_miss(work, transcript, cut, fact) for fact in held.lost]
        trial.misses += [_miss(work, transcript, cut, fact, unbound=True) for fact in held.unbound]
    return trial


def _miss(work: Work, transcript: Transcript, cut: int, fact: Fact, *, unbound: bool = False) -> Miss:
    text, messages = transcript.text, transcript.messages
    stood = text.message_at(fact.last_seen)
    border = text.start_of(fact.used_at)
    used = next(place for place in transcript.places(fact.text) if place >= border)
    return Miss(
        conversation=work.conversation.name,
        cut=cut,
        fact=fact.text,
        kind=fact.kind,
        far=fact.far,
        stood=_place(messages, stood),
        line=_clipped(text.line_at(fact.last_seen), fact.text),
        used=_place(messages, fact.used_at),
        used_line=_clipped(text.line_at(used), fact.text),
        company=tuple(sorted(fact.company)),
        unbound=unbound,
    )


def _place(messages: Sequence[Message], index: int) -> str:
    message = messages[index]
    calls = [call.name for call in calls_of(message)]
    role = str(message.get("role"))
    if role == "tool":
        call = str(message.get("tool_call_id"))
        asked = (c for m in reversed(messages[:index]) for c in calls_of(m) if c.id == call)
        name = message.get("name") or next((c.name for c in asked), "")
        return f"tool {name}[{index}]"
    return f"{role}{' calling ' + ','.join(calls) if calls else ''}[{index}]"


def _clipped(line: str, fact: str) -> str:
    """Return a long line cut down to the surroundings of the fact."""
    if len(line) <= LONGEST_LINE:
        return line.strip()
    place = max(0, line.find(fact) - LONGEST_LINE // 2)
    return "…" + line[place : place + LONGEST_LINE] + "…"
