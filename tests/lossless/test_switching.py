"""Another engine, another model, a smaller window, a focus: the conversation goes on and loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong import ContextCompressor
from everlong.agent import resolve_engine
from everlong.config import Settings
from everlong.lossless import LosslessEngine
from everlong.model import Message
from everlong.store import Store
from everlong.tokens import REPLY_PRIMING
from tests.lossless.talks import SYSTEM, faults_of, grow, talk
from tests.plugins.making import engine_in

SETTINGS = {"protect_last_n": 4, "threshold": 0.5}
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
