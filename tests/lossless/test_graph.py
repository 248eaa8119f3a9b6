"""The life of a graph: dead models, restarts, forks, undo, forgetting, upkeep, and two processes at once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from everlong import ContextCompressor
from everlong.agent import resolve_engine
from everlong.config import Settings
from everlong.context.summarizers import SummaryRequest
from everlong.lossless import LosslessEngine
from everlong.lossless.author import Source, SummaryAuthor
from everlong.model import Message
from everlong.store import Store
from everlong.store.schema import summary, summary_child
from everlong.store.tree import Branch
from everlong.tokens import REPLY_PRIMING
from tests.lossless.talks import SYSTEM, Model, faults_of, frontier_of, grow, talk
from tests.plugins.making import engine_in
from tests.waiting import PATIENCE

WINDOW = 4_000
SETTINGS = {"protect_last_n": 4, "threshold": 0.5}


def make(model: Any = None, window: int = WINDOW, **options: Any) -> LosslessEngine:
    return LosslessEngine(window, settings=SETTINGS, summarizer=model, **options)


def rows(store: Store) -> list[tuple[Any, ...]]:
    """Everything that identifies the summaries of a store: range, level, state, children."""
    with store.database.read() as connection:
        found = connection.execute(select(summary).where(summary.c.tenant == store.tenant)).all()
        edges = connection.execute(select(summary_child).order_by(summary_child.c.parent, summary_child.c.ord)).all()
    children = {row.id: tuple(edge.child for edge in edges if edge.parent == row.id) for row in found}
    return sorted((row.from_depth, row.to_depth, row.level, row.id, row.state, children[row.id]) for row in found)


def work_until_done(engine: LosslessEngine, store: Store, at: Branch) -> None:
    engine.attach(store.graph(lambda: at))
    while engine.work_ahead():
        pass


# -- who writes --------------------------------------------------------------------------------------------------------


class Answers:
    """A model that gives one answer after the other."""

    name = "scripted"

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.budgets: list[int] = []

    def summarize(self, request: SummaryRequest) -> str:
        self.budgets.append(request.budget_tokens)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]  # a model may answer anything


def author_of(*answers: object) -> tuple[SummaryAuthor, Answers]:
    author, model = SummaryAuthor(lambda text: len(text.split())), Answers(*answers)
    author.summarizer = model
    return author, model


SAID = Source([{"role": "user", "content": "one two three four five six seven eight nine ten"}], tokens=100)


def test_after_two_unusable_summaries_the_sources_own_lines_are_taken() -> None:
    author, model = author_of("", "word " * 200)
    written = author.write(SAID, 20)
    assert written.state == "degraded"
    assert 0 < written.tokens <= 25
    assert model.budgets == [20, 12]


@pytest.mark.spec("5.7", "10")
def test_a_dead_model_leaves_degraded_summaries_which_are_mended_when_it_is_back(store: Store) -> None:
    now = [0.0]
    model = Model()
    engine = make(model, clock=lambda: now[0])
    model.is_dead = True
    at = grow(store, None, engine, [SYSTEM, *talk(30)])
    states = store.graph(at).count()
    assert states.get("degraded"), states
    assert "good" not in states
    shown = [node.id for node in frontier_of(store, at)]
    model.is_dead = False
    now[0] += 3_600
    context = store.context(at)
    work_until_done(engine, store, at)
    assert store.context(at) == context  # it changes in compactions only
    assert set(store.graph(at).count()) == {"good", "replaced"}
    assert faults_of(store, at) == []
    at = grow(store, at, engine, talk(20, seed=2))
    after = frontier_of(store, at)
    assert {node.state for node in after} == {"good"}
    assert not {node.id for node in after} & set(shown)
    assert set(store.graph(at).count()) == {"good", "replaced"}


# -- the same again ----------------------------------------------------------------------------------------------------


def test_after_a_restart_the_conversation_stands_on_the_same_summaries(store: Store) -> None:
    at = grow(store, None, make(), [SYSTEM, *talk(30)])
    shown = [node.id for node in frontier_of(store, at)]
    assert shown
    at = grow(store, at, make(), talk(4, seed=2))
    store.compact(at, make(), force=True)
    assert faults_of(store, at) == []
    graph, known = store.graph(at), frontier_of(store, at)
    for node in known:  # grows while it is walked: what stands under the frontier comes after it
        known += [child for child in graph.newest(node.made.children) if child is not None]
    assert set(shown) <= {node.id for node in known}


def test_undo_brings_the_summaries_of_the_compaction_before_back(store: Store) -> None:
    engine = make()
    at = grow(store, None, engine, talk(30))
    first = store.context(at)
    at = store.append(at, talk(15, seed=2))
    store.compact(at, engine)
    assert store.undo(at)
    assert store.context(at)[: len(first)] == first
    assert faults_of(store, at) == []
    store.compact(at, engine)
    assert faults_of(store, at) == []


def test_a_fork_shares_the_summaries_of_its_past_and_none_of_what_came_later(store: Store) -> None:
    said = talk(20)
    at = grow(store, None, make(), said)
    earlier = next(entry for entry in store.entries(at) if "Done with step 9" in str(entry.message))
    place = store.branch(at.id, earlier.depth)
    fork = store.append(place, [{"role": "user", "content": "Let us do it otherwise."}])
    assert fork.id != at.id
    before = {row[3] for row in rows(store)}
    store.compact(fork, make())
    assert faults_of(store, fork) == []
    fork = grow(store, fork, make(), talk(15, seed=7))
    at = grow(store, at, make(), talk(10, seed=8))
    assert faults_of(store, fork) == []
    assert faults_of(store, at) == []
    assert before & {node.id for node in store.graph(fork).all()}  # shared
    later = {node.id for node in store.graph(fork).all()}
    for node in store.graph(at).all():
        if node.id in later:
            ids = [ident for ident, _ in store.graph(at).messages(node.made.after, node.made.last)]
            assert ids == [ident for ident, _ in store.graph(fork).messages(node.made.after, node.made.last)]
            assert all(ident in {e.id.hex() for e in store.entries(fork) if e.id} for ident in ids)
    assert str(said[-1]["content"]) not in str([node.made.text for node in store.graph(fork).all()])


# -- forgetting and upkeep ---------------------------------------------------------------------------------------------

WORDS = "the code word is Zanzibarquartz"


@pytest.mark.spec("12.8")
def test_forgetting_a_covered_message_takes_its_words_out_of_every_summary(store: Store) -> None:
    said = talk(30)
    said[4] = {"role": "user", "content": f"Remember: {WORDS}. Always use src/zanzibar.py."}
    engine = make()
    at = grow(store, None, engine, said)
    engine.attach(store.graph(at))
    assert "Zanzibarquartz" in engine.handle_tool_call("lcm_grep", {"query": "Zanzibarquartz"})
    entry = next(entry for entry in store.entries(at) if WORDS in str(entry.message))
    assert entry.id is not None
    store.forget([entry.id])
    assert store.verify().problems == []
    assert "Zanzibarquartz" not in str(store.context(at))
    assert "Zanzibarquartz" not in str([node.made.text for node in store.graph(at).all()])
    for mode in ("auto", "substring", "regex"):
        answer = engine.handle_tool_call("lcm_grep", {"query": "Zanzibarquartz", "mode": mode})
        assert "code word" not in answer
    assert "Zanzibarquartz" not in engine.handle_tool_call("lcm_expand", {"ids": [entry.id.hex()]})
    at = grow(store, at, make(), talk(15, seed=3))
    store.compact(at, make(), force=True)
    assert faults_of(store, at) == []
    assert frontier_of(store, at)
    assert "Zanzibarquartz" not in str(store.context(at))


def test_a_summary_that_never_named_the_forgotten_message_comes_back_in_the_same_words(store: Store) -> None:
    class Terse(Model):
        def summarize(self, request: SummaryRequest) -> str:
            return f"## Goal\n- {str(request.turns[-1].get('content'))[:30]}"

    at = store.record(talk(20), conversation="a talk")
    store.compact(at, make(Terse()))
    before = [node.made.text for node in frontier_of(store, at)]
    entry = store.entries(at)[1]
    assert entry.id is not None
    store.forget([entry.id])
    assert store.verify().problems == []
    store.compact(at, make(Terse()))
    assert faults_of(store, at) == []
    assert [node.made.text for node in frontier_of(store, at)] == before


# -- at the same moment ------------------------------------------------------------------------------------------------


def _work(path: str, number: int, depth: int, ahead: bool) -> None:
    with Store.open(path, wait=60) as store:
        at = store.branch(number, depth)
        engine = make()
        if ahead:
            engine.attach(store.graph(at))
            engine.last_prompt_tokens = 100_000
            for _ in range(20):
                if not engine.work_ahead():
                    break
        store.compact(at, engine, lease_seconds=None)


def test_processes_that_compact_at_once_leave_the_rows_of_one(tmp_path: Path) -> None:
    said = talk(30)
    with Store.open(tmp_path / "one.db") as store:
        at = store.record(said, conversation="a talk")
        store.compact(at, make())
        alone = [row[:3] for row in rows(store)]
    with Store.open(tmp_path / "two.db") as store:
        at = store.record(said, conversation="a talk")
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_work, args=(str(tmp_path / "two.db"), at.id, at.depth, ahead))
        for ahead in (True, False)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
        assert worker.exitcode == 0
    with Store.open(tmp_path / "two.db") as store:
        assert faults_of(store, at) == []
        together = [row[:3] for row in rows(store)]
        assert len({(*row[:3], row[5]) for row in rows(store)}) == len(together), "one range, summarized twice"
        assert [row for row in alone if row not in together] == []


RULE = "Never touch the folder vendor/, and always answer in British English."


def lossless(window: int = 4_000, **options: Any) -> LosslessEngine:
    return LosslessEngine(window, settings=SETTINGS, **options)


def compressor(window: int = 4_000) -> ContextCompressor:
    return ContextCompressor(window, settings=SETTINGS)


@pytest.mark.parametrize("asks_last", [True, False])
def test_from_the_compressor_to_lcm_the_earlier_summary_is_carried_over(file_store: Store, asks_last: bool) -> None:
    store = file_store
    said = [SYSTEM, {"role": "user", "content": "Build the harbour crane simulator in src/crane.py."}, *talk(20)[1:]]
    if not asks_last:  # a long run on one request, which the compressor repeats after its summary
        said = [message for place, message in enumerate(said) if place < 2 or message["role"] != "user"]
    at = store.record(said, conversation="a talk")
    store.compact(at, compressor())
    engine = lossless()
    at = grow(store, at, engine, talk(15, seed=2))
    assert store.context(at)
    store.compact(at, engine, force=True)
    assert engine.last_report is not None
    assert engine.last_report.fallback_reason is None
    assert faults_of(store, at) == []
    graph = store.graph(at)
    models = {node.made.model for node in graph.all()}
    assert "carried over" in models
    carried = next(node for node in graph.all() if node.made.model == "carried over")
    first = next(message for _, message in graph.messages(carried.made.after, carried.made.last))
    assert first["content"] == said[1]["content"]


@pytest.mark.parametrize("target", [600, 1_000, 2_500])
def test_an_overflow_brings_the_context_down_to_the_target(file_store: Store, target: int) -> None:
    store = file_store
    engine = lossless()
    at = grow(store, None, engine, talk(20))
    at = store.append(at, talk(3, seed=4))
    store.compact(at, engine, target_tokens=target, force=True)
    assert engine.estimate_tokens(store.context(at)) <= target + REPLY_PRIMING  # a target is one for the messages
    assert faults_of(store, at) == []
    at = grow(store, at, engine, talk(15, seed=5))
    assert faults_of(store, at) == []


@pytest.mark.spec("9.6")
def test_rules_of_the_user_stay_word_for_word(file_store: Store) -> None:
    store = file_store
    at = None
    engine = lossless()
    opening: list[Message] = [SYSTEM, {"role": "user", "content": RULE}, {"role": "assistant", "content": "I will."}]
    at = grow(store, at, engine, opening)
    for step in range(4):
        at = grow(store, at, engine, talk(12, seed=step))
        assert "Never touch the folder vendor/" in str(store.context(at))
        assert "always answer in British English" in str(store.context(at))


def resolved(settings: dict[str, Any]) -> tuple[Any, list[str]]:
    said: list[str] = []
    return resolve_engine(Settings.model_validate(settings), 50_000, warn=said.append), said


@pytest.mark.spec("2.2")
def test_a_plugin_of_that_name_wins_with_a_warning_and_builtin_lcm_stays_ours(tmp_path: Path) -> None:
    folder = engine_in(tmp_path / "engines" / "lcm", "lcm")
    paths = {"plugins": {"paths": [str(folder.parent)]}}
    engine, said = resolved({"context": {"engine": "lcm"}, **paths})
    assert not isinstance(engine, LosslessEngine)
    assert any("builtin:lcm" in warning for warning in said), said
    engine, said = resolved({"context": {"engine": "builtin:lcm"}, **paths})
    assert isinstance(engine, LosslessEngine)
    assert said == []
