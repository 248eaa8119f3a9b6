"""The contract kit: the built-in engine passes, and every broken engine is told what it does wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from everlong import ContextCompressor
from everlong.testing import EngineContract, check_engine
from everlong.testing.engine_contract import CLAUSES
from everlong.testing.engine_contract.subject import CallOverran, EngineCaller, Subject
from tests.engine_contract.broken import BROKEN, Sound
from tests.examples import length

CONTRACT = (Path(__file__).parent.parent.parent / "docs" / "engine-contract.md").read_text(encoding="utf-8")


@pytest.mark.spec("1.6")
class TestTheCompressor(EngineContract):
    make_engine = ContextCompressor
    examples = length(12, 3)


@pytest.mark.spec("1.6")
class TestAnEngineMadeByAMethod(EngineContract):
    examples = 1

    def make_engine(self) -> ContextCompressor:
        return Sound()


@pytest.mark.spec("1.6")
@pytest.mark.parametrize(("clause", "words", "engine"), BROKEN)
def test_a_broken_engine_is_told_in_its_clause_what_it_did(clause: str, words: str, engine: type) -> None:
    findings = check_engine(engine, clause=clause, examples=length(4, 2))
    assert any(finding.startswith(f"{clause}: ") and words in finding for finding in findings), "\n".join(findings)


def test_every_clause_has_an_engine_that_breaks_it() -> None:
    assert {broken.clause for broken in BROKEN} == set(CLAUSES)


def test_every_clause_is_a_heading_of_the_documentation() -> None:
    assert [clause for clause in CLAUSES if f"\n## {clause}\n" not in CONTRACT] == []


def test_an_engine_that_only_looks_like_one_passes_without_the_optional_methods() -> None:
    class Duck:
        name = "duck"
        last_prompt_tokens = last_completion_tokens = last_total_tokens = compression_count = 0
        threshold_percent, protect_first_n, protect_last_n = 0.5, 3, 20

        def __init__(self, context_length: int) -> None:
            self.context_length, self.threshold_tokens = context_length, context_length // 2
            self._inner = ContextCompressor(context_length)

        def update_from_response(self, usage: dict[str, int]) -> None:
            self.last_prompt_tokens = usage.get("prompt_tokens") or 0
            self.last_completion_tokens = usage.get("completion_tokens") or 0
            self.last_total_tokens = usage.get("total_tokens") or 0

        def should_compress(self, prompt_tokens: int | None = None) -> bool:
            return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

        def compress(
            self, messages: list[dict[str, object]], current_tokens: int | None = None, focus_topic: str | None = None
        ) -> list[dict[str, object]]:
            result = self._inner.compress(messages, current_tokens, focus_topic)
            self.last_prompt_tokens = self._inner.last_prompt_tokens
            self.compression_count = self._inner.compression_count
            return result

    assert check_engine(Duck, examples=1) == []


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event for which a call waits for ever; set afterwards, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


def test_an_engine_that_never_gets_made_is_told_the_call_and_the_limit(never: threading.Event) -> None:
    def wait() -> None:
        never.wait()

    (finding,) = check_engine(wait, seconds=0.01)
    assert finding.startswith("Making one: making an engine with no argument did not return within 0.01 seconds; ")
    assert "seconds=…" in finding


def test_a_method_that_loops_is_named_with_its_arguments(never: threading.Event) -> None:
    class Loops(Sound):
        def should_compress(self, prompt_tokens: int | None = None) -> bool:
            del prompt_tokens
            return never.wait()

    subject = Subject(Loops(16_000), EngineCaller(0.01))
    with pytest.raises(CallOverran, match=r"^should_compress\(900\) did not return within 0\.01 seconds; look"):
        subject.call("should_compress", 900)


def test_pytest_shows_an_author_the_sentence_and_not_the_kit(tmp_path: Path) -> None:
    lines = ["from everlong.testing import EngineContract", "from tests.engine_contract.broken import NeverCompacts"]
    lines += ["class TestIt(EngineContract):", "    make_engine = NeverCompacts"]
    (tmp_path / "test_it.py").write_text("\n".join(lines))
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "deciding", "--rootdir", ".", "test_it.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "should_compress(16000) returned False in a window of 16000; it must be the bool True" in done.stdout
    assert "engine_contract/__init__.py" not in done.stdout


def test_the_kit_needs_no_agent_no_store_and_no_pytest() -> None:
    code = f"""
import sys
sys.path[:] = {sys.path!r}
from everlong.testing import check_engine
from everlong import ContextCompressor
assert check_engine(ContextCompressor, examples=1, clause="What comes back") == []
print(sorted(m for m in sys.modules if m in ("pytest", "sqlalchemy", "everlong.agent", "everlong.store")))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
