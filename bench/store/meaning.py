"""What the search by meaning finds beyond words, and what it costs.

    python -m bench.store.meaning MODEL [--data FOLDER]… [--keep FOLDER] [--messages 100000,1000000]

MODEL is the folder of an ONNX model, such as `python -m bench.store.minilm` makes. First the share of evidence among
the first ten hits, as in `bench.store.retrieval`: for SQLite's own BM25, for the search by words, and for both scores
together, in the hand-written conversations and, with ``--data``, in its chats and transcripts. Then the rate of the
model, the CPU of a question by meaning alone in stores with so many messages and random vectors, and their size.
``--keep`` keeps the vectors of texts in a folder for the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.measure import best_cpu, verdict
from bench.store.retrieval import FIRST, Finder, Result, plain_finder, recall, score, share, stored
from bench.store.retrieval_sets import OWN, Conversation, chats, own_conversation, transcripts
from everlong.providers.embeddings import OnnxModel
from everlong.store import Store
from everlong.store.search.index import SearchScope
from everlong.store.search.meaning import BLOCK, Meaning
from everlong.store.search.vectors import PASSAGE_CHARS, VectorRow, VectorTable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sqlalchemy import Connection

BAR = 1.4
"""The recall in chats beside that of plain BM25."""
WAYS = ("plain BM25", "words", "words and meaning")
ALLOWED = {100_000: 60.0}
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


def compare(conversations: Sequence[Conversation], embedder: KeptVectors) -> int:
    """Print the recall of each way of searching, by data set and part; return 1 if the bar for chats is missed."""
    results: dict[tuple[str, str], list[list[Result]]] = {}
    for conversation in conversations:
        for way, finder in enumerate(_finders(conversation, embedder)):
            for question in conversation.questions:
                for part in ("dev" if question.is_dev else "test", "all"):
                    row = results.setdefault((conversation.data, part), [[] for _ in WAYS])
                    row[way].append(score(finder, question))
    embedder.keep()
    print(f"{'recall (share of all evidence)':<32}" + "".join(f"{way:>20}" for way in WAYS))
    for (data, part), row in sorted(results.items()):
        told = "".join(f"{recall(own):>12.3f} ({share(own):.3f})" for own in row)
        print(f"{data + ', ' + part:<20}{len(row[0]):>4} questions{told}")
    if ("chats", "all") not in results:
        return 0
    plain, _, both = map(recall, results["chats", "all"])
    ratio = both / plain
    print(f"chats: {ratio:.2f} times plain BM25 ({verdict(ratio, BAR, at_least=True)}, bar {BAR})")
    return int(ratio < BAR)


def _finders(conversation: Conversation, embedder: KeptVectors) -> Iterator[Finder]:
    """Yield a finder for each of `WAYS`."""
    yield plain_finder(conversation)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db", embedder=embedder) as store:
        places = stored(store, conversation)
        while store.searcher.embed_pending():
            pass
        for one in (Store(store.database), store):

            def find(question: str, one: Store = one) -> list[int]:
                return [places[hit.node] for hit in one.search(question, limit=FIRST).hits if hit.node]

            yield find


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
            size = connection.exec_driver_sql("SELECT sum(length(numbers) + 8) FROM vector").scalar_one()
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
        rows = {seq: VectorRow(0.001, vector.tobytes()) for seq, vector in zip(seqs, vectors, strict=True)}

        def add(connection: Connection, seqs: list[int] = seqs, rows: dict[int, VectorRow] = rows) -> int:
            return table.add(connection, name, seqs, rows)

        store.database.write(add)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say whether the bars are held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, action="append", default=[], help="a folder of chats or of transcripts")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--messages", default="100000")
    options = parser.parse_args(arguments)
    model = OnnxModel(options.model)
    missed = 0
    embedder = KeptVectors(model, options.keep)
    conversations = [own_conversation(name) for name in OWN]
    for folder in options.data:
        conversations += [*chats(folder), *transcripts(folder)]
    missed += compare(conversations, embedder)
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
