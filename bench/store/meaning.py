"""What the search by meaning finds beyond words, and what it costs.

    python -m bench.store.meaning MODEL [--data FOLDER] [--keep FOLDER] [--messages 100000,1000000]

MODEL is the folder of an ONNX model, such as `python -m bench.store.minilm` makes. With ``--data``, a folder of *.jsonl
files with long chats, questions and evidence (`messages`, `questions` with `question` and `evidence`): the share of the
evidence among the first ten hits, for SQLite's own BM25, for the search by words, and for both together. The two
hand-written conversations of `bench.store.retrieval` follow. Then the CPU of a question by meaning alone, in stores
with so many messages and random vectors, with the rate of the model and the size on the disk. ``--keep`` keeps the
vectors of texts in a folder for the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.measure import best_cpu, verdict
from bench.store.retrieval import FIRST, NAMES, Turn, plain_finder, read_questions, read_turns, stored
from everlong.providers.onnx_model import OnnxModel
from everlong.store import Store
from everlong.store.search.embedding import PASSAGE_CHARS
from everlong.store.search.index import SearchScope
from everlong.store.search.meaning import Meaning
from everlong.store.search.vectors import BLOCK, VectorRow, VectorTable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sqlalchemy import Connection

BAR = 1.4
"""The share of the evidence beside that of plain BM25."""
ALLOWED = {100_000: 60.0, 1_000_000: 200.0}
"""CPU milliseconds of one question, by the number of messages."""
QUESTION = "Which port did we agree on for the staging server?"
_PER_CONVERSATION = 5_000


class KeptVectors:
    """An embedder that keeps the vectors of texts in a folder."""

    def __init__(self, inner: OnnxModel, folder: Path | None) -> None:
        self._inner = inner
        self._file = None if folder is None else folder / "vectors.npz"
        self._known: dict[str, NDArray[np.float32]] = {}
        if self._file is not None and self._file.exists():
            with np.load(self._file) as kept:
                self._known = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))
        self.made, self.cpu = 0, 0.0

    @property
    def model_id(self) -> str:
        """The name of the model."""
        return self._inner.model_id

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return vectors, of which those that are kept are not made again."""
        keys = [hashlib.sha256(f"{is_query}:{text}".encode()).hexdigest() for text in texts]
        new = [place for place, key in enumerate(keys) if key not in self._known]
        if new:
            start = time.process_time()
            vectors = self._inner.embed([texts[place] for place in new], is_query=is_query)
            self.cpu += time.process_time() - start
            self.made += len(new)
            self._known.update((keys[place], vector) for place, vector in zip(new, vectors, strict=True))
        return np.array([self._known[key] for key in keys], np.float32)

    def keep(self) -> None:
        """Write the vectors, if there is a folder for them."""
        if self._file is not None and self._known:
            np.savez(self._file, keys=np.array(list(self._known)), vectors=np.array(list(self._known.values())))


class Case(NamedTuple):
    """A conversation with questions and the places of the turns that answer them."""

    name: str
    turns: list[Turn]
    questions: list[tuple[str, list[int]]]


def chats(folder: Path) -> Iterator[Case]:
    """Yield the chats of a folder."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            chat = json.loads(line)
            turns = [Turn(0, float(place), one["role"], one["content"]) for place, one in enumerate(chat["messages"])]
            asked = [(one["question"], one["evidence"]) for one in chat["questions"] if one["evidence"]]
            yield Case(str(chat["id"]), turns, asked)


def dialogues() -> Iterator[Case]:
    """Yield the hand-written conversations."""
    for name in NAMES:
        turns = read_turns(name)
        yield Case(name, turns, [(one.text, one.evidence) for one in read_questions(name, turns)])


def shares(cases: Sequence[Case], embedder: KeptVectors) -> dict[str, tuple[float, float]]:
    """Return for each way of searching the share of all evidence, and the average share of a question's evidence."""
    found: dict[str, list[tuple[int, int]]] = {}
    for case in cases:
        for name, finder in _finders(case, embedder):
            for question, evidence in case.questions:
                hits = finder(question)
                found.setdefault(name, []).append((len(set(hits) & set(evidence)), len(set(evidence))))
    embedder.keep()
    return {
        name: (
            sum(hit for hit, _ in pairs) / sum(of for _, of in pairs),
            sum(hit / of for hit, of in pairs) / len(pairs),
        )
        for name, pairs in found.items()
    }


def _finders(case: Case, embedder: KeptVectors) -> Iterator[tuple[str, Callable[[str], list[int]]]]:
    yield "plain BM25", plain_finder(case.turns)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db", embedder=embedder) as store:
        places = stored(store, case.turns)
        while store.searcher.index_pending() or store.searcher.embed_pending():
            pass
        for name, one in (("words", Store(store.database)), ("words and meaning", store)):

            def find(question: str, one: Store = one) -> list[int]:
                return [places[hit.node] for hit in one.search(question, limit=FIRST).hits if hit.node]

            yield name, find


def compare(title: str, cases: Sequence[Case], embedder: KeptVectors, bar: float | None) -> int:
    """Print the shares of some conversations; return 1 if the bar is missed."""
    print(f"{title}: {len(cases)} conversations, {sum(len(case.questions) for case in cases)} questions")
    by_name = shares(cases, embedder)
    plain = by_name["plain BM25"][0]
    for name, (share, average) in by_name.items():
        print(f"    {name:<20} {share:.3f} of the evidence ({share / plain:.2f} × plain), {average:.3f} per question")
    if bar is None:
        return 0
    ratio = by_name["words and meaning"][0] / plain
    print(f"    {ratio:.2f} × plain ({verdict(ratio, bar, at_least=True)}, bar {bar})")
    return int(ratio < bar)


def measure_cost(count: int, model: OnnxModel) -> int:
    """Print the CPU of a question among so many messages; return 1 if the bar is missed."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db") as store:
        _fill(store, count, model)
        searcher = store.searcher
        searcher.upkeep.ensure()
        meaning = Meaning(store.database, searcher.corpus, model, store.tenant)
        scope = SearchScope(store.tenant)
        with store.database.read() as connection:
            start = time.process_time()
            meaning.scores(connection, "first", scope, (), lambda seqs: searcher.corpus.load(connection, seqs))
            cold = 1_000 * (time.process_time() - start)
            asked = iter(range(1_000_000))

            def ask() -> Any:  # another question each time: a question's vector is kept
                text = f"{QUESTION} {next(asked)}"
                return meaning.scores(connection, text, scope, (), lambda seqs: searcher.corpus.load(connection, seqs))

            cpu = 1_000 * best_cpu(ask, 7)
            size = connection.exec_driver_sql(
                "SELECT sum(length(seqs) + length(scales) + length(vectors)) FROM vector_block"
            ).scalar_one()
    allowed = ALLOWED.get(count)
    word = f"{verdict(cpu, allowed)}, bar {allowed:g} ms" if allowed else "no bar"
    print(f"question by meaning, {count:,} messages: {cpu:.0f} ms CPU ({word}); the first time {cold:.0f} ms", end="; ")
    print(f"{size / 1e6:.0f} MB of vectors, {size / count:.0f} bytes for each message")
    return int(bool(allowed and cpu > allowed))


def _fill(store: Store, count: int, model: OnnxModel) -> None:
    """Store short messages with random vectors."""
    for start in range(0, count, _PER_CONVERSATION):
        numbers = range(start, min(count, start + _PER_CONVERSATION))
        store.record([{"role": "assistant" if n % 2 else "user", "content": f"note {n}"} for n in numbers])
    table = VectorTable(store.database)
    name = Meaning(store.database, store.searcher.corpus, model, store.tenant).model
    table.use_model(name)
    size = model.embed([QUESTION], is_query=True).shape[1]
    rng = np.random.default_rng(7)
    while True:
        with store.database.read() as connection:
            seqs = table.listed(connection, BLOCK)
        if not seqs:
            return
        vectors = rng.integers(-127, 128, (len(seqs), size), dtype=np.int8)
        rows = {seq: VectorRow(seq, 0.001, vector.tobytes()) for seq, vector in zip(seqs, vectors, strict=True)}

        def add(connection: Connection, seqs: list[int] = seqs, rows: dict[int, VectorRow] = rows) -> int:
            return table.add(connection, name, seqs, rows)

        store.database.write(add)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say whether the bars are held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--messages", default="100000")
    options = parser.parse_args(arguments)
    model = OnnxModel(options.model)
    missed = 0
    embedder = KeptVectors(model, options.keep)
    if options.data is not None:
        missed += compare("long chats", list(chats(options.data)), embedder, BAR)
    missed += compare("hand-written conversations", list(dialogues()), embedder, None)
    text = "The staging server listens on port 8437, and nobody wrote it down. " * (PASSAGE_CHARS // 66)
    passages = [text[number:] for number in range(32)]
    model.embed(passages[:8], is_query=False)
    start = time.process_time()
    model.embed(passages, is_query=False)
    rate = len(passages) / (time.process_time() - start)
    print(f"{rate:.1f} passages of {len(text)} characters embedded per CPU second")
    for count in map(int, options.messages.split(",")):
        missed += measure_cost(count, model)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
