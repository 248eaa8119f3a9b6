"""Do teasers name what a question is about, and keep silent otherwise?

    python -m bench.store.teasers --data ../shared/data/questions [--transcripts FOLDER] [--fit]

The folder holds `beam_100k.jsonl`: long chats with questions and the messages that answer them. Each chat is played
into a store and compacted in a window of 32,000 tokens. Then the questions are asked whose answers are out of sight. A
teaser is right if one of its two messages is among the evidence. The ordinary turns of the chats, and those of real
transcripts, need no teaser; nor do questions about another chat. The first half of the chats is for calibration, as in
`bench.store.retrieval`; the second half and the transcripts are for the report. With ``--fit`` the weights are fitted
on the first half, and the curves are those of the fitted ones.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench.measure import verdict
from everlong.context import ContextCompressor
from everlong.model import Message, is_system, typed_words
from everlong.store import Branch
from everlong.store.search.confidence import THRESHOLD, WEIGHTS, RecallSigns, SignWeights, confidence
from everlong.store.store import Store
from everlong.store.teasers import MOST, find_candidates

WINDOW = 32_000
PRECISION, COVERAGE, ALARMS = 0.7, 0.3, 0.05
STEPS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)
QUESTIONS = "beam_100k.jsonl"
TRANSCRIPTS = ("claude_code", "pi_sessions", "tau_airline", "mini_swe_gemini3")
BROAD = frozenset({"event_ordering", "summarization"})
"""Kinds of questions that say so little that they could be asked in any chat."""

Kind = Literal["question", "never said", "other chat", "ordinary", "transcript"]


class Case(NamedTuple):
    """One turn of a user: the signs for a teaser, None if nothing was found, and whether it would be right."""

    kind: Kind
    signs: RecallSigns | None
    is_right: bool = False

    def reaches(self, threshold: float, weights: SignWeights) -> bool:
        """Return whether a teaser would be shown."""
        return self.signs is not None and confidence(self.signs, weights) >= threshold


@dataclass
class Chat:
    """A chat, its questions, and where its messages are stored."""

    name: str
    messages: list[Message]
    questions: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[bytes] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    at: Branch | None = None

    def play(self, store: Store, kind: Kind) -> Iterator[Case]:
        """Say and compact the chat as an agent would; yield a case for each turn of the user after a compaction."""
        engine = ContextCompressor(WINDOW, model="gpt-4o")
        lead = [message for message in self.messages if is_system(message)]
        context = list(lead)
        for message in (one for one in self.messages if not is_system(one)):
            self.at = (
                store.record([*lead, message], conversation=self.name)
                if self.at is None
                else store.append(self.at, [message])
            )
            self.nodes.append(self.at.head)
            self.depths.append(self.at.depth)
            context.append(message)
            if words := typed_words(message):
                found = find_candidates(store, self.at, words)
                if store.view_items(self.at)[0]:
                    yield Case(kind, None if found is None else found.signs)
            if message.get("tool_calls") or not engine.should_compress_preflight(context):
                continue
            if engine.has_content_to_compress(context):
                context = list(store.compact(self.at, engine).messages)
            while store.searcher.index_pending(1_000):
                pass

    def ask(self, store: Store) -> Iterator[Case]:
        """Yield a case for each question whose answer is out of sight, and for those about things never said."""
        for question in self.questions:
            evidence = {place for place in question["evidence"] if self._is_hidden(store, place)}
            if question["evidence"] and not evidence:
                continue
            yield self._ask(store, question, "question" if evidence else "never said")

    def ask_of_other(self, store: Store, other: Chat) -> Iterator[Case]:
        """Yield a case for each question about another chat."""
        for question in other.questions:
            if question["kind"] not in BROAD:
                yield self._ask(store, {**question, "evidence": []}, "other chat")

    def _ask(self, store: Store, question: dict[str, Any], kind: Kind) -> Case:
        assert self.at is not None  # noqa: S101 - it was played
        found = find_candidates(store, self.at, question["question"])
        if found is None:
            return Case(kind, None)
        right = {self.nodes[place] for place in question["evidence"]}
        return Case(kind, found.signs, any(one.node in right for one in found.found[:MOST]))

    def _is_hidden(self, store: Store, place: int) -> bool:
        assert self.at is not None  # noqa: S101 - as above
        items, cover = store.view_items(self.at)
        depth = self.depths[place]
        return depth <= cover and not any(i.kind == "keep" and i.from_depth < depth <= i.to_depth for i in items)


def read_chats(folder: Path) -> list[Chat]:
    """Return the chats of a folder with their questions."""
    lines = (folder / QUESTIONS).read_text("utf-8").splitlines()
    return [Chat(one["id"], one["messages"], one["questions"]) for one in map(json.loads, lines)]


def read_transcripts(folder: Path) -> list[Chat]:
    """Return the real transcripts of a folder, those that are there."""
    chats: list[Chat] = []
    for name in TRANSCRIPTS:
        path = folder / f"{name}.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        chats += [Chat(f"{name}-{number}", json.loads(line)["messages"]) for number, line in enumerate(lines)]
    return chats


def measure(chats: Sequence[Chat], transcripts: Sequence[Chat]) -> list[Case]:
    """Return the cases of chats and transcripts, all in one store."""
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db") as store:
        for chat in chats:
            print(f"  {chat.name}: {len(chat.messages)} messages", file=sys.stderr)
            cases += [*chat.play(store, "ordinary"), *chat.ask(store)]
        for number, chat in enumerate(chats):
            for other in (chats[number - 1], chats[number - 2]):
                cases += chat.ask_of_other(store, other) if other is not chat else ()
        for chat in transcripts:
            cases += chat.play(store, "transcript")
    return cases


class Point(NamedTuple):
    """The figures at one threshold."""

    coverage: float
    precision: float
    alarms: float
    others: dict[Kind, float]


def point_at(cases: Sequence[Case], threshold: float, weights: SignWeights) -> Point:
    """Return the figures of teasers that are shown from a confidence on."""

    def share(*kinds: Kind) -> float:
        asked = [case for case in cases if case.kind in kinds]
        return sum(case.reaches(threshold, weights) for case in asked) / max(1, len(asked))

    shown = [case for case in cases if case.kind == "question" and case.reaches(threshold, weights)]
    others: tuple[Kind, ...] = ("ordinary", "transcript", "other chat", "never said")
    right = sum(case.is_right for case in shown)
    precision = right / len(shown) if shown else 1.0
    return Point(share("question"), precision, share("ordinary", "transcript"), {kind: share(kind) for kind in others})


def show_curve(title: str, cases: Sequence[Case], weights: SignWeights) -> None:
    """Print the figures at each threshold."""
    counts = {kind: sum(case.kind == kind for case in cases) for kind in dict.fromkeys(case.kind for case in cases)}
    print(f"{title}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    print("  threshold  coverage  precision  needless  | ordinary  transcript  other chat  never said")
    for threshold in STEPS:
        found = point_at(cases, threshold, weights)
        mark = "*" if threshold == THRESHOLD else " "
        others = "".join(f"{share:>11.3f}" for share in found.others.values())
        print(
            f" {mark}{threshold:>9.2f}{found.coverage:>10.3f}{found.precision:>11.3f}{found.alarms:>10.3f}  |{others}"
        )


def fit(cases: Sequence[Case], ridge: float = 0.5) -> SignWeights:
    """Return the weights of a logistic function that tells right teasers from all others, by Newton's method."""
    rows = [(*case.signs, 1.0) for case in cases if case.signs is not None]
    right = [float(case.kind == "question" and case.is_right) for case in cases if case.signs is not None]
    size = len(rows[0])
    means = [sum(row[at] for row in rows) / len(rows) for at in range(size - 1)]
    spreads = [math.sqrt(sum((row[at] - means[at]) ** 2 for row in rows) / len(rows)) or 1.0 for at in range(size - 1)]
    scaled = [[*((row[at] - means[at]) / spreads[at] for at in range(size - 1)), 1.0] for row in rows]
    weights = [0.0] * size
    for _ in range(40):
        chances = [1 / (1 + math.exp(-sum(map(math.prod, zip(weights, row, strict=True))))) for row in scaled]
        penalty = [ridge] * (size - 1) + [1e-9]
        slope = [
            sum((chance - is_right) * row[at] for chance, is_right, row in zip(chances, right, scaled, strict=True))
            + penalty[at] * weights[at]
            for at in range(size)
        ]
        bend = [
            [
                sum(chance * (1 - chance) * row[at] * row[to] for chance, row in zip(chances, scaled, strict=True))
                + (penalty[at] if at == to else 0.0)
                for to in range(size)
            ]
            for at in range(size)
        ]
        weights = [weight - step for weight, step in zip(weights, solve(bend, slope), strict=True)]
    plain = [weight / spread for weight, spread in zip(weights, spreads, strict=False)]
    constant = weights[-1] - sum(map(math.prod, zip(plain, means, strict=True)))
    return SignWeights(*(round(weight, 2) for weight in (*plain, constant)))


def solve(matrix: list[list[float]], values: list[float]) -> list[float]:
    """Return the solution of a system of linear equations."""
    rows = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    for at in range(len(rows)):
        best = max(range(at, len(rows)), key=lambda other: abs(rows[other][at]))
        rows[at], rows[best] = rows[best], rows[at]
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for other in range(len(rows)):
            if other != at:
                factor = rows[other][at]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[at], strict=True)]
    return [row[-1] for row in rows]


def main(arguments: list[str] | None = None) -> int:
    """Print the curve of both halves and say whether the bars hold on the second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help=f"the folder with {QUESTIONS}")
    parser.add_argument("--transcripts", type=Path, help="the folder with real transcripts; by default beside the data")
    parser.add_argument("--fit", action="store_true", help="fit the weights on the calibration half first")
    options = parser.parse_args(arguments)
    if not (options.data / QUESTIONS).is_file():
        print(f"{options.data / QUESTIONS} is not there, so nothing is measured", file=sys.stderr)
        return 2
    chats = read_chats(options.data)
    transcripts = read_transcripts(options.transcripts or options.data.parent / "transcripts")
    if not transcripts:
        print("there are no transcripts, so only the chats are measured", file=sys.stderr)
    half = len(chats) // 2
    calibration = measure(chats[:half], [])
    weights = fit(calibration) if options.fit else WEIGHTS
    print(f"{'fitted on the calibration half' if options.fit else 'in use'}: {weights}")
    show_curve("calibration", calibration, weights)
    report = measure(chats[half:], transcripts)
    show_curve("report", report, weights)
    found = point_at(report, THRESHOLD, weights)
    print(f"at {THRESHOLD}, on the report half:")
    print(f"  precision {found.precision:.3f} ({verdict(found.precision, PRECISION, at_least=True)}, bar {PRECISION})")
    print(f"  coverage {found.coverage:.3f} ({verdict(found.coverage, COVERAGE, at_least=True)}, bar {COVERAGE})")
    print(f"  needless {found.alarms:.3f} ({verdict(found.alarms, ALARMS, at_least=False)}, bar {ALARMS})")
    holds = found.precision >= PRECISION and found.coverage >= COVERAGE and found.alarms <= ALARMS
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
