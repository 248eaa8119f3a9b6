"""Does a search find what a person asks about? Share of the evidence among the first ten hits.

    python -m bench.store.retrieval [--data FOLDER]… [--part dev|test] [--ablation] [--cpu] [--exact] [--misses]
                                    [--url postgresql://…]

Two hand-written conversations, with questions as people ask them and the turns that hold each answer. With ``--data``
also the chats of ``beam_100k.jsonl`` and the transcripts of agents in that folder; it can be given twice. Every
conversation has a store of its own. Compared with SQLite's own full-text search over the same messages: all words of
the question joined by OR, BM25, Porter stemming, the speaker's name before each turn.

Half of the questions are for tuning (dev), the others only for checking (test). ``recall`` is the share of a question's
evidence that is found, ``any`` the share of questions of which any is found. The overall figure of the hand-written
ones counts evidence instead of questions, as it always has. ``--ablation`` leaves out one rule of the ranking at a
time. ``--cpu`` measures the CPU time of a question at 600 and 100,000 messages, beside plain BM25 in the same run.
``--exact`` asks for paths and identifiers of the transcripts: how often a message with one is first, or among ten.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.measure import best_cpu, verdict
from bench.store.retrieval_sets import CHATS, OWN, Conversation, Question, chats, own_conversation, transcripts
from bench.store.searching import COMMON, fill, texts, word_of_rank
from everlong.store.search import Searcher
from everlong.store.search.corpus import searchable_text
from everlong.store.search.rank import WEIGHTS, Weights
from everlong.store.store import Store

FIRST = 10
BAR, LEAD = 0.745, 0.05
CHAT_RECALL, CHAT_ANY, KIND = 1.3, 1.1, 0.02
"""The least ratios to plain BM25 in chats, and the most by which a kind of question may fall behind it."""

CPU_MS = 10.0

ABLATIONS: dict[str, Weights] = {
    "all rules": WEIGHTS,
    "no weight of persons": dataclasses.replace(WEIGHTS, person=1.0),
    "no named speakers": dataclasses.replace(WEIGHTS, speaker=1.0),
    "no neighbours": dataclasses.replace(WEIGHTS, after=0.0, before=0.0, second=0.0),
    "no weight of length": dataclasses.replace(WEIGHTS, length=1e9),
}

Finder = Callable[[str], list[int]]


class Result(NamedTuple):
    """The evidence that was found for one question, of how much."""

    found: int
    of: int


def plain_finder(conversation: Conversation) -> Finder:
    """Return a finder with OR, BM25 and stemming, as SQLite has them."""
    return plain_search([searchable_text(message) for message in conversation.messages])


def plain_search(said: list[str]) -> Finder:
    """Return such a finder for texts."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5(words, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO turns (rowid, words) VALUES (?, ?)", enumerate(said, 1))

    def find(question: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        statement = "SELECT rowid - 1 FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT ?"
        return [row[0] for row in connection.execute(statement, (words, FIRST))]

    return find


def stored(store: Store, conversation: Conversation) -> dict[bytes, int]:
    """Record a conversation, each session by itself; the place of each message by its node."""
    places: dict[bytes, int] = {}
    for session in sorted(set(conversation.sessions)):
        own = [place for place, number in enumerate(conversation.sessions) if number == session]
        branch = store.record(
            [conversation.messages[place] for place in own], times=[conversation.times[place] for place in own]
        )
        entries = iter(store.entries(branch))
        entry = next(entries, None)
        for place in own:  # a system prompt is stored with its conversation, not as one of its messages
            if entry is not None and searchable_text(entry.message) == searchable_text(conversation.messages[place]):
                if entry.id is not None:
                    places[entry.id] = place
                entry = next(entries, None)
    while store.searcher.index_pending(1_000):
        pass
    return places


def our_finder(store: Store, places: dict[bytes, int], weights: Weights = WEIGHTS) -> Finder:
    """Return the store's own search, as any program uses it."""
    searcher = Searcher(store.database, store.tenant, weights)

    def find(question: str) -> list[int]:
        return [places[hit.node] for hit in searcher.search(question, limit=FIRST).hits if hit.node]

    return find


def score(finder: Finder, question: Question) -> Result:
    """Return how much of a question's evidence is among a finder's first hits."""
    hits = set(finder(question.text))
    return Result(sum(not hits.isdisjoint(places) for places in question.evidence), len(question.evidence))


class Tally:
    """The results of two finders, by part and kind of question."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], list[tuple[Result, Result]]] = defaultdict(list)

    def add(self, question: Question, plain: Result, ours: Result) -> None:
        """Add the results of a question."""
        self._results["dev" if question.is_dev else "test", question.kind].append((plain, ours))

    def of(self, part: str | None = None, kind: str | None = None) -> tuple[list[Result], list[Result]]:
        """Return the results of both finders, of a part and a kind or of all."""
        chosen = [
            pair
            for (its_part, its_kind), pairs in self._results.items()
            if part in {None, its_part} and kind in {None, its_kind}
            for pair in pairs
        ]
        return [plain for plain, _ in chosen], [ours for _, ours in chosen]

    def kinds(self) -> list[str]:
        """Return the kinds of questions."""
        return sorted({kind for _, kind in self._results})

    def print(self, name: str, part: str) -> None:
        """Print a table for one part."""
        print(f"\n{name}, {part}{'':<20} questions   plain recall   any   everlong recall   any")
        for kind in [*self.kinds(), None]:
            plain, ours = self.of(part, kind)
            if plain:
                figures = f"{recall(plain):12.3f} {some(plain):7.3f} {recall(ours):15.3f} {some(ours):7.3f}"
                print(f"  {kind or 'all':<30} {len(plain):>6} {figures}")


def recall(results: list[Result]) -> float:
    """Return the share of the evidence that is found, on average over the questions."""
    return statistics.fmean(result.found / result.of for result in results) if results else 0.0


def some(results: list[Result]) -> float:
    """Return the share of questions of which any evidence is found."""
    return statistics.fmean(result.found > 0 for result in results) if results else 0.0


def share(results: list[Result]) -> float:
    """Return the share of all evidence that is found."""
    return sum(result.found for result in results) / max(1, sum(result.of for result in results))


@contextmanager
def store_of(conversation: Conversation, url: str | None, number: int) -> Iterator[tuple[Store, dict[bytes, int]]]:
    """Open a store with one conversation, indexed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(url or Path(folder) / "store.db", tenant=f"retrieval-{number}") as store,
    ):
        yield store, stored(store, conversation)


def compare(conversations: list[Conversation], parts: set[str], url: str | None, *, misses: bool) -> dict[str, Tally]:
    """Score both finders on conversations; the results by data set."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for number, conversation in enumerate(conversations):
        asked = [one for one in conversation.questions if ("dev" if one.is_dev else "test") in parts]
        if not asked:
            continue
        with store_of(conversation, url, number) as (store, places):
            plain, ours = plain_finder(conversation), our_finder(store, places)
            for question in asked:
                result = score(ours, question)
                tallies[conversation.data].add(question, score(plain, question), result)
                if misses and question.is_dev and result.found < result.of:
                    print(f"    missed {result.of - result.found} of {result.of}: {question.text}")
    return tallies


def ablate(conversations: list[Conversation], url: str | None) -> None:
    """Print what the questions for tuning lose without each rule, by data set."""
    table: dict[str, dict[str, list[Result]]] = {name: defaultdict(list) for name in ABLATIONS}
    for number, conversation in enumerate(conversations):
        with store_of(conversation, url, number) as (store, places):
            for name, weights in ABLATIONS.items():
                finder = our_finder(store, places, weights)
                results = table[name][conversation.data]
                results += [score(finder, question) for question in conversation.questions if question.is_dev]
    sets = list(dict.fromkeys(conversation.data for conversation in conversations))
    print(f"\nrecall and any on dev{'':<10}" + "".join(f"{data:>18}" for data in sets))
    for name, row in table.items():
        print(f"  {name:<29}" + "".join(f"{recall(row[data]):>11.3f} {some(row[data]):.3f}" for data in sets))


_NAME = re.compile(r"(?<![\w./-])(?:[A-Za-z]\w*(?:[./_-]\w+)+|[A-Za-z][a-z]+(?:[A-Z][a-z]+)+)(?![\w/-])")
NAMES = 400


def names_in(conversations: list[Conversation]) -> list[tuple[int, Question]]:
    """Return paths and identifiers that each stand in up to three messages, evenly taken, with their conversation."""
    found: dict[str, tuple[int, Question]] = {}
    for number, conversation in enumerate(conversations):
        texts = [searchable_text(message) for message in conversation.messages]
        lowered = [text.lower() for text in texts]
        names = {name for text in texts for name in _NAME.findall(text) if 6 <= len(name) <= 60}
        for name in sorted(names):
            places = frozenset(place for place, text in enumerate(lowered) if name.lower() in text)
            if len(places) <= 3 and all(conversation.messages[place]["role"] != "system" for place in places):
                found.setdefault(name, (number, Question("name", name, [places], is_dev=True)))
    return list(found.values())[:: max(1, len(found) // NAMES)][:NAMES]


def measure_exact(conversations: list[Conversation], url: str | None) -> None:
    """Print how often a message with a path or an identifier is found first, and among the first ten."""
    asked = names_in(conversations)
    first = ten = 0
    for number in sorted({number for number, _ in asked}):
        with store_of(conversations[number], url, number) as (store, places):
            find = our_finder(store, places)
            for question in (question for its, question in asked if its == number):
                hits = find(question.text)
                first += bool(hits) and hits[0] in question.evidence[0]
                ten += not question.evidence[0].isdisjoint(hits)
    print(f"paths and identifiers: {len(asked)}, first {first}, among ten {ten}")


def general_questions() -> list[str]:
    """Return questions for `bench.store.searching`'s texts: rare words, medium ones, and such as most messages have."""
    return [
        f"When did we first talk about the {word_of_rank(25_000)} and the {word_of_rank(21_000)}?",
        f"What did you say about {word_of_rank(1_000)} and {word_of_rank(3_000)} in the {word_of_rank(600)}?",
        f"When did the {COMMON[0]} reach the {COMMON[1]} with its {COMMON[2]}?",
        "Which port does the billing service listen on?",
        f"Why did the {word_of_rank(0)} break the {word_of_rank(5)} of the {word_of_rank(9)}?",
        f"Where did the {word_of_rank(7)} keep the {word_of_rank(22_000)} of the {word_of_rank(500)}?",
    ]


def measure_cpu(conversations: list[Conversation]) -> bool:
    """Print the CPU time of a question in a small and in a large store; whether both are low enough."""
    small = [one for one in conversations if one.data == "chats"][:3]
    asked = [question.text for one in small for question in one.questions if question.is_dev][::4]
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "small.db") as store:
        for one in small:
            stored(store, one)
        if not small:
            fill(store, 600)
        said = [searchable_text(message) for one in small for message in one.messages] or list(texts(600))
        held = _print_cpu(store, asked or general_questions(), said)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "large.db") as store:
        fill(store, 100_000)
        return _print_cpu(store, general_questions(), list(texts(100_000))) and held


def _print_cpu(store: Store, questions: list[str], said: list[str]) -> bool:
    count, plain = len(said), plain_search(said)
    while store.searcher.index_pending(1_000):
        pass
    spent = [1_000 * best_cpu(partial(store.search, question)) for question in questions]
    beside = [1_000 * best_cpu(partial(plain, question)) for question in questions]
    median = statistics.median(spent)
    told = f"{verdict(median, CPU_MS)}, bar {CPU_MS:g}"
    print(
        f"CPU of a question at {count:,} messages: median {median:.1f} ms, most {max(spent):.1f} ms ({told});", end=" "
    )
    print(f"plain BM25 {statistics.median(beside):.1f} and {max(beside):.1f} ms")
    return median <= CPU_MS


def _read_folder(folder: Path) -> list[Conversation]:
    if not folder.is_dir():
        raise SystemExit(f"there is no folder {folder}; give one with {CHATS} or with transcripts as *.jsonl")
    if found := [*chats(folder), *transcripts(folder)]:
        return found
    raise SystemExit(f"{folder} holds neither {CHATS} nor transcripts that there are questions about")


def _judge(tallies: dict[str, Tally], part: str) -> bool:
    """Print whether the bars are held."""
    held = True
    own = [tallies[name].of() for name in OWN]
    plain, ours = (share([result for pair in own for result in pair[side]]) for side in (0, 1))
    lead = ours - plain
    print(f"\nhand-written, share of all evidence: plain {plain:.3f}, everlong {ours:.3f}", end=" ")
    print(f"({verdict(ours, BAR, at_least=True)}, bar {BAR}; ahead {verdict(lead, LEAD, at_least=True)}, bar {LEAD})")
    held = round(ours, 3) >= BAR and lead >= LEAD
    if "chats" in tallies:
        plain_chats, our_chats = tallies["chats"].of(part)
        for name, figure, bar in (("recall", recall, CHAT_RECALL), ("any", some, CHAT_ANY)):
            ratio = figure(our_chats) / max(1e-9, figure(plain_chats))
            print(f"chats, {part}: {ratio:.2f} times plain in {name} ({verdict(ratio, bar, at_least=True)}, bar {bar})")
            held = held and ratio >= bar
    for data, tally in tallies.items():
        for kind in tally.kinds():
            plain_kind, our_kind = tally.of(None if data in OWN else part, kind)
            behind = recall(plain_kind) - recall(our_kind)
            if behind > KIND:
                print(f"{data}: {kind} is {behind:.3f} behind plain (MISSED, bar {KIND})")
                held = False
    return held


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison and say whether the bars are held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", default=[], help="a folder of chats or of transcripts")
    parser.add_argument("--part", choices=["dev", "test"], default="dev", help="the half of the chats to score")
    parser.add_argument("--ablation", action="store_true", help="leave out one rule at a time")
    parser.add_argument("--cpu", action="store_true", help="measure the CPU time of a question")
    parser.add_argument("--exact", action="store_true", help="ask for paths and identifiers of the transcripts")
    parser.add_argument("--misses", action="store_true", help="show what was not found of the questions for tuning")
    parser.add_argument("--url", help="use this (empty) database instead of a SQLite file")
    options = parser.parse_args(arguments)
    conversations = [own_conversation(name) for name in OWN]
    conversations += [one for folder in options.data for one in _read_folder(folder)]
    if options.cpu:
        return 0 if measure_cpu(conversations) else 1
    if options.exact:
        measure_exact([one for one in conversations if one.data == "transcripts"], options.url)
        return 0
    if options.ablation:
        ablate(conversations, options.url)
        return 0
    own = [one for one in conversations if one.data in OWN]
    others = [one for one in conversations if one.data not in OWN]
    tallies = compare(own, {"dev", "test"}, options.url, misses=options.misses)
    tallies |= compare(others, {options.part}, options.url, misses=options.misses)
    for data, tally in tallies.items():
        for part in ("dev", "test") if data in OWN else (options.part,):
            tally.print(data, part)
    return 0 if _judge(tallies, options.part) else 1


if __name__ == "__main__":
    sys.exit(main())
