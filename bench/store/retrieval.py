"""Does a search find what a person asks about? Share of evidence turns among the first ten hits.

    python -m bench.store.retrieval [--misses] [--url postgresql://…]

Two hand-written conversations, with questions as people ask them and the turns that hold each answer. Every other
question is for tuning (dev), the others only for checking (test). Compared with SQLite's own full-text search: all
words of the question joined by OR, BM25, Porter stemming, the speaker's name before each turn.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.measure import verdict
from everlong.store.search import Searcher
from everlong.store.store import Store

DATA = Path(__file__).parent / "retrieval_data"
NAMES = ("friends", "assistant")
FIRST = 10
BAR, LEAD = 0.65, 0.05


class Turn(NamedTuple):
    """One turn: the session it stands in, when that took place, who speaks."""

    session: int
    at: float
    speaker: str
    text: str


class Question(NamedTuple):
    """A question of a kind, and the places of the turns that answer it."""

    kind: str
    text: str
    evidence: list[int]


class Score(NamedTuple):
    """Evidence turns that were found among the first hits, of how many."""

    found: int
    of: int

    @property
    def share(self) -> float:
        """The share that was found."""
        return self.found / self.of if self.of else 0.0


def read_turns(name: str) -> list[Turn]:
    """Return a conversation: sessions begin with ``## date``, turns with the speaker."""
    turns: list[Turn] = []
    session, at = 0, 0.0
    for line in (DATA / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            session += 1
            at = datetime.datetime.fromisoformat(line[3:]).replace(tzinfo=datetime.UTC).timestamp()
        elif line and not line.startswith("#"):
            speaker, _, text = line.partition(": ")
            turns.append(Turn(session, at, speaker, text))
            at += 40
    return turns


def read_questions(name: str, turns: list[Turn]) -> list[Question]:
    """Return questions with their evidence, named by fragments that each stand in one turn."""
    questions: list[Question] = []
    for line in (DATA / f"{name}.questions.txt").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        kind, text, fragments = line.split(" | ")
        evidence: list[int] = []
        for fragment in fragments.split(" ;; "):
            places = [place for place, turn in enumerate(turns) if fragment in turn.text]
            if len(places) != 1:
                raise ValueError(f"{name}: {fragment!r} stands in {len(places)} turns, and must in one")
            evidence += places
        questions.append(Question(kind, text, evidence))
    return questions


Finder = Callable[[str], list[int]]


def plain_finder(turns: list[Turn]) -> Finder:
    """Return a finder with OR, BM25 and stemming, as SQLite has them."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5(words, tokenize='porter unicode61')")
    rows = [(place + 1, f"{turn.speaker}: {turn.text}") for place, turn in enumerate(turns)]
    connection.executemany("INSERT INTO turns (rowid, words) VALUES (?, ?)", rows)

    def find(question: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        statement = "SELECT rowid - 1 FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT ?"
        return [row[0] for row in connection.execute(statement, (words, FIRST))]

    return find


def stored(store: Store, turns: list[Turn]) -> dict[bytes, int]:
    """Record a conversation, each session by itself; the place of each turn by its node."""
    places: dict[bytes, int] = {}
    is_chat = {turn.speaker for turn in turns} <= {"user", "assistant"}
    first = turns[0].speaker
    for session in sorted({turn.session for turn in turns}):
        own = [place for place, turn in enumerate(turns) if turn.session == session]
        messages = [
            {"role": turns[place].speaker, "content": turns[place].text}
            if is_chat
            else {
                "role": "user" if turns[place].speaker == first else "assistant",
                "content": f"{turns[place].speaker}: {turns[place].text}",
            }
            for place in own
        ]
        branch = store.record(messages, times=[turns[place].at for place in own])
        for place, entry in zip(own, store.entries(branch), strict=True):
            if entry.id is not None:
                places[entry.id] = place
    return places


def our_finder(store: Store, places: dict[bytes, int]) -> Finder:
    """Return the store's own search, as any program uses it."""
    searcher = Searcher(store.database, store.tenant)
    while searcher.index_pending(1_000):
        pass

    def find(question: str) -> list[int]:
        return [places[hit.node] for hit in searcher.search(question, limit=FIRST).hits if hit.node]

    return find


def scored(finder: Finder, questions: list[Question]) -> Score:
    """Return the share of the evidence among a finder's first hits."""
    found = of = 0
    for question in questions:
        hits = finder(question.text)
        found += sum(place in hits for place in question.evidence)
        of += len(question.evidence)
    return Score(found, of)


def _show_misses(finder: Finder, questions: list[Question], turns: list[Turn]) -> None:
    for question in questions:
        hits = finder(question.text)
        for place in question.evidence:
            if place not in hits:
                print(f"    {question.text}\n        missed: {turns[place].speaker}: {turns[place].text[:100]}")


def compare(name: str, url: str | None, *, misses: bool) -> dict[str, list[Score]]:
    """Score both finders on one conversation and print a line for each half of its questions."""
    turns = read_turns(name)
    questions = read_questions(name, turns)
    scores: dict[str, list[Score]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(url or Path(folder) / "store.db", tenant=f"retrieval-{name}") as store,
    ):
        finders = {"plain": plain_finder(turns), "everlong": our_finder(store, stored(store, turns))}
        for part, chosen in (("dev", questions[::2]), ("test", questions[1::2])):
            line = f"{name:<10} {part:<5} {len(turns)} turns, {len(chosen):>3} questions "
            for label, finder in finders.items():
                score = scored(finder, chosen)
                scores.setdefault(label, []).append(score)
                line += f"  {label} {score.share:.3f}"
            print(line)
        if misses:
            _show_misses(finders["everlong"], questions[::2], turns)
    return scores


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison and say whether the bar is held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="show what was not found of the questions for tuning")
    parser.add_argument("--url", help="use this (empty) database instead of a SQLite file")
    options = parser.parse_args(arguments)
    print(f"share of evidence turns among the first {FIRST} hits")
    results = [compare(name, options.url, misses=options.misses) for name in NAMES]
    shares: dict[str, float] = {}
    for label in ("plain", "everlong"):
        scores = [score for result in results for score in result[label]]
        shares[label] = Score(sum(score.found for score in scores), sum(score.of for score in scores)).share
    ours, lead = shares["everlong"], shares["everlong"] - shares["plain"]
    print(f"all: plain {shares['plain']:.3f}, everlong {ours:.3f} ({verdict(ours, BAR, at_least=True)}, bar {BAR})")
    print(f"ahead by {lead:.3f} ({verdict(lead, LEAD, at_least=True)}, bar {LEAD})")
    return 0 if ours >= BAR and lead >= LEAD else 1


if __name__ == "__main__":
    sys.exit(main())
