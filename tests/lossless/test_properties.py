"""Whatever is said, no message is ever lost: each is in the tail, or under exactly one summary of the frontier."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from everlong.context.invariants import check_all
from everlong.context.summarizers import SummaryRequest
from everlong.lossless import LosslessEngine
from everlong.model import Message, is_system
from everlong.store import Store
from everlong.store.database import Database
from everlong.testing import check_engine
from everlong.testing.strategies import conversations
from tests.examples import few, length, on_a_database
from tests.lossless.talks import faults_of, newest_request_tokens, turns_of
from tests.waiting import PATIENCE
from tests.wild import wild_conversations

SHARED = on_a_database(40)
WINDOWS = st.sampled_from((2_000, 4_000, 8_000, 32_000))
KEPT = st.sampled_from((1, 4, 20))


def joined(parts: list[list[Message]]) -> list[Message]:
    """One conversation of several, with the system prompt of the first."""
    return [message for number, part in enumerate(parts) for message in part if not number or not is_system(message)]


def engine_for(window: int, kept: int) -> LosslessEngine:
    return LosslessEngine(window, settings={"protect_last_n": kept})


@pytest.mark.spec("10")
@SHARED
@given(st.lists(conversations(6), min_size=1, max_size=3), WINDOWS, KEPT)
def test_after_every_compaction_each_message_is_in_the_tail_or_under_one_summary(
    database: Database, parts: list[list[Message]], window: int, kept: int
) -> None:
    store, engine = Store(database, uuid.uuid4().hex), engine_for(window, kept)
    at = None
    for piece in turns_of(joined(parts)):
        at = store.record(piece, conversation="one") if at is None else store.append(at, piece)
        if not engine.should_compress_preflight(store.context(at)):
            continue
        before = engine.estimate_tokens(store.context(at))
        store.compact(at, engine)
        assert faults_of(store, at) == []
        assert engine.last_report is not None
        assert engine.last_report.fallback_reason is None
        tokens = engine.estimate_tokens(store.context(at))
        least = newest_request_tokens(engine, store.context(at)) + engine.sizes.total
        assert tokens <= max(engine.threshold_tokens, least), (tokens, engine.threshold_tokens, least)
        assert tokens <= before


@SHARED
@given(st.lists(wild_conversations(), min_size=1, max_size=3), WINDOWS)
def test_broken_conversations_are_compacted_and_every_stored_message_can_be_read(
    file_store: Store, parts: list[list[Message]], window: int
) -> None:
    store, engine = Store(file_store.database, uuid.uuid4().hex), engine_for(window, 4)
    at = None
    for piece in turns_of(joined(parts)):
        at = store.record(piece, conversation="one") if at is None else store.append(at, piece)
        if engine.should_compress_preflight(store.context(at)):
            store.compact(at, engine)
            assert check_all(store.context(at)) == []
    if at is None:
        return
    for entry in store.entries(at):
        if entry.id is not None:
            assert store.graph(at).read(entry.id.hex(), 1, 100) is not None


class Scripted:
    """A summary model that answers by a function."""

    name = "scripted"

    def __init__(self, answer: Callable[[SummaryRequest], object]) -> None:
        self.answer = answer

    def summarize(self, request: SummaryRequest) -> str:
        return self.answer(request)  # type: ignore[return-value]  # a model may answer anything


def fail(_: SummaryRequest) -> str:
    raise ConnectionError("the model is dead")


ANSWERS: dict[str, Callable[[SummaryRequest], object]] = {
    "all of its budget": lambda request: "## Goal\n" + "- word word word\n" * max(1, request.budget_tokens // 5),
    "nothing": lambda _: "",
    "no text at all": lambda _: None,
    "garbage": lambda _: "\x00\ud800 <<>> ``` {",
    "more than was said": lambda request: "blah " * (2 * request.budget_tokens + 100),
    "a refusal": lambda _: "I'm sorry, but I can't help with that.",
    "our own headings": lambda _: "# Summary s-0123456789ab (3 messages)\n# Where the work stands\nall is done",
}


@pytest.mark.spec("1.1", "10")
def test_the_engine_keeps_the_contract() -> None:
    assert check_engine(LosslessEngine, examples=length(12, 1)) == []


@pytest.mark.parametrize("answer", few([*ANSWERS.values(), fail], 4))
def test_the_engine_keeps_the_contract_whatever_its_model_answers(answer: Callable[[SummaryRequest], object]) -> None:
    def make(context_length: int = 16_000) -> LosslessEngine:
        return LosslessEngine(context_length, summarizer=Scripted(answer))

    for clause in length(1, 0) * (None,) or ("What comes back",):
        assert check_engine(make, examples=1, clause=clause) == []


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills are POSIX things")
def test_processes_killed_at_random_moments_leave_the_graph_sound() -> None:
    count = length(20, 3)
    command = [sys.executable, "-m", "bench.lossless.faults", "--rounds", str(count), "--quick"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{count} rounds" in ran.stdout
