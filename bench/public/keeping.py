"""What a compaction keeps: needed facts, alone, with context and far; after a chain; and whether it may be sent.

The measures are those of `bench.retention`: a fact is needed if the assistant's real later turns use it and only the
part before the cut states it. Every method gets the same conversations, cuts and rooms. Only conversations that nothing
was tuned on are used, and only cuts that leave a room of some size: what a package says around a summary would be most
of a smaller one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bench.public.peers import Adapter, Compaction
from bench.public.processes import in_processes
from bench.retention.data import CHAINS, Conversation, cuts, load, shipped
from bench.retention.facts import COMMON, Transcript, common_entities, own_entities
from bench.retention.measures import NOTHING, Share
from bench.retention.methods import body_tokens
from bench.retention.rules import load_chats, split_of
from bench.retention.summary import Mean, mean_of
from bench.retention.trials import Trial, Work, measured
from bench.retention.validity import latest_request, pairing
from everlong.model import Message

__all__ = ["CHAIN_SHARE", "LEAST_ROOM", "SHARES", "at_most", "conversations", "measure_keeping"]

Item = TypeVar("Item")
CUTS = (0.65,)
SHARES = (0.15, 0.25, 0.40)
CHAIN_SHARE = 0.25
LEAST_ROOM = 2_000
MEASURES = ("recall", "bound", "far", "turns", "valid", "latest")


@dataclass(slots=True)
class PublicTrial(Trial):
    """One compaction by one method."""

    latest: Share = NOTHING
    """Whether the newest request is still there word for word."""
    is_over: bool = False
    cpu: float = 0.0
    asked: int = 0
    """Tokens of the prompts to the model."""


def conversations(folders: Sequence[Path]) -> tuple[list[Conversation], list[Conversation]]:
    """Return all conversations of folders, and those of them that nothing was tuned on.

    Without any, there is the shipped session only, which was written to show Everlong.
    """
    everything: list[Conversation] = []
    chosen: list[Conversation] = []
    for folder in folders:
        chats = load_chats(folder)
        halves = {str(chat["id"]): split_of(place, len(chats)) for place, chat in enumerate(chats)}
        for read in load(folder):
            one = Conversation(read.name, "chats", read.messages) if read.name in halves else read
            everything.append(one)
            if halves.get(one.name, one.split) == "test":
                chosen.append(one)
    return (everything, chosen) if chosen else (shipped(), shipped())


def at_most(items: Sequence[Item], most: int, named: Callable[[Item], tuple[str, str]]) -> list[Item]:
    """Return the first items of each kind by name, up to a number; all of them for 0."""
    counted: Counter[str] = Counter()
    kept = []
    for item in sorted(items, key=named):
        kind, _ = named(item)
        counted[kind] += 1
        if not most or counted[kind] <= most:
            kept.append(item)
    return kept


def measure_keeping(folders: Sequence[Path], methods: Sequence[str], jobs: int = 2, most: int = 0) -> dict[str, Any]:
    """Return the rows of all methods, and the conversations that they were measured on."""
    everything, chosen = conversations(folders)
    stated = [own_entities(one.messages) for one in everything]
    common = {entity for entity, count in common_entities(stated).items() if count > COMMON}
    works = [
        Work(one, common & own, SHARES, tuple(methods))
        for one, own in zip(everything, stated, strict=True)
        if one in chosen and _is_long(one)
    ]
    works = at_most(works, most, lambda work: (work.conversation.kind, work.conversation.name))
    works.sort(key=lambda work: -sum(len(str(message)) for message in work.conversation.messages))
    trials, done = in_processes("keeping", works, methods, _trials, jobs)
    measured_on = [work.conversation for work in works]
    return {
        "conversations": [
            {"name": one.name, "kind": one.kind, "messages": len(one.messages), "tokens": body_tokens(one.messages)}
            for one in sorted(measured_on, key=lambda one: (one.kind, one.name))
        ],
        "missing": done.missing,
        "failures": {name: dict(Counter(reasons)) for name, reasons in done.failures.items()},
        "versions": done.versions,
        "rows": _rows(trials, methods),
    }


def _is_long(conversation: Conversation) -> bool:
    places = cuts(conversation.messages, CUTS)
    return bool(places) and SHARES[0] * body_tokens(conversation.messages[: places[-1]]) >= LEAST_ROOM


def _trials(work: Work, adapter: Adapter) -> list[PublicTrial]:
    transcript = Transcript(work.conversation.messages)
    return [*_single(work, transcript, adapter), *_chain(work, transcript, adapter)]


def _single(work: Work, transcript: Transcript, adapter: Adapter) -> list[PublicTrial]:
    trials = []
    for cut in cuts(work.conversation.messages, CUTS):
        prefix = work.conversation.messages[:cut]
        for share in work.shares:
            room = int(share * body_tokens(prefix))
            if room >= LEAST_ROOM:
                trials.append(_trial(work, transcript, cut, adapter.fit(prefix, room), adapter, share))
    return trials


def _chain(work: Work, transcript: Transcript, adapter: Adapter) -> list[PublicTrial]:
    """Return the trial of three compactions in a row, each within its share of all the history that it stands for."""
    messages = work.conversation.messages
    places = cuts(messages, CHAINS[3])
    context: list[Message] = []
    done = 0
    made: Compaction | None = None
    for place in places:
        room = int(CHAIN_SHARE * body_tokens(messages[:place]))
        made = adapter.fit([*context, *messages[done:place]], max(room, LEAST_ROOM))
        if made is None:
            break
        context, done = made.messages, place
    trial = _trial(work, transcript, places[-1], made, adapter, CHAIN_SHARE)
    trial.chained = True
    return [trial]


def _trial(
    work: Work, transcript: Transcript, cut: int, made: Compaction | None, adapter: Adapter, share: float
) -> PublicTrial:
    prefix = work.conversation.messages[:cut]
    context = None if made is None else [_plain(message) for message in made.messages]
    facts = transcript.facts_after(cut, work.common)
    plain = measured(work, transcript, facts, cut, context)
    trial = PublicTrial(**{field.name: getattr(plain, field.name) for field in fields(Trial)})
    trial.method, trial.share = adapter.method.name, share
    if made is not None and context is not None:
        trial.valid = NOTHING if pairing(prefix) else Share(not pairing(context), 1)
        trial.latest = Share(not latest_request(context, prefix), 1)
        trial.is_over, trial.cpu = made.is_over, made.cpu
        trial.asked = sum(prompt for prompt, _ in made.calls)
    return trial


def _plain(message: Message) -> Message:
    return {key: value for key, value in message.items() if not key.startswith("_")}


def _rows(trials: Sequence[PublicTrial], methods: Sequence[str]) -> list[dict[str, Any]]:
    kinds = sorted({trial.kind for trial in trials})
    found = []
    for chained in (False, True):
        for kind in [*kinds, "all"]:
            for share in sorted({trial.share for trial in trials if trial.chained == chained}):
                for name in methods:
                    mine = [
                        trial
                        for trial in trials
                        if trial.method == name
                        and trial.chained == chained
                        and trial.share == share
                        and kind in (trial.kind, "all")
                    ]
                    if mine:
                        found.append({"kind": kind, "method": name, "share": share, "chained": chained, **_row(mine)})
    return found


def _row(trials: Sequence[PublicTrial]) -> dict[str, Any]:
    reached = [trial for trial in trials if trial.reached]
    shares = [trial.tokens / max(1, trial.tokens_before) for trial in reached]
    return {
        **{measure: _told(mean_of(reached, measure)) for measure in MEASURES},
        "kept": sum(shares) / len(shares) if shares else None,
        "compactions": len(trials),
        "failed": len(trials) - len(reached),
        "over": sum(trial.is_over for trial in reached),
        "facts": sum(trial.recall.of for trial in reached),
        "cpu_ms": 1e3 * sum(trial.cpu for trial in reached) / len(reached) if reached else None,
        "asked": sum(trial.asked for trial in reached) / len(reached) if reached else None,
    }


def _told(mean: Mean | None) -> dict[str, float] | None:
    return None if mean is None else {key: round(value, 4) for key, value in asdict(mean).items()}
