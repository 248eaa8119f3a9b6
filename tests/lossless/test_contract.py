"""The engine keeps the contract of context engines, whatever its summary model does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everlong.context.summarizers import SummaryRequest
from everlong.lossless import LosslessEngine
from everlong.testing import check_engine
from tests.examples import few, length


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
