"""Engines of every setting for property tests, with summarizers that work, fail, babble and never stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings, strategies as st

from everlong.config import CompressionSettings
from everlong.context import ContextCompressor, Summarizer, SummaryRequest
from everlong.context.invariants import LatestUserTurn, repair_all
from everlong.context.literals import split_merged_summary
from everlong.model import Message
from tests.examples import examples

_Test = TypeVar("_Test", bound=Callable[..., None])


def many_examples(test: _Test) -> _Test:
    """Run a property on as many examples as the environment asks for."""
    return settings(max_examples=examples(), deadline=None, suppress_health_check=list(HealthCheck))(test)


def some_examples(test: _Test) -> _Test:
    """Run a slow property on half as many examples."""
    return settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))(test)


class FailingSummarizer:
    """Raises, as a summarizer without a network does."""

    name = "failing"

    def summarize(self, request: SummaryRequest) -> str:
        raise ConnectionError(f"no network for {len(request.turns)} turns")


class BabblingSummarizer:
    """Answers with something that is no summary."""

    name = "babbling"

    def summarize(self, request: SummaryRequest) -> str:  # noqa: ARG002 - part of the protocol
        return "I am sorry, but I cannot help with that.\ud800"


class EndlessSummarizer:
    """Answers with far more than it was asked for."""

    name = "endless"

    def summarize(self, request: SummaryRequest) -> str:  # noqa: ARG002 - part of the protocol
        return "## Goal\n" + "- do it well, whatever it takes\n" * 3_000 + "## Progress\n### Done\n- a thing\n"


_SUMMARIZERS: tuple[Callable[[], Summarizer] | None, ...] = (
    None,
    FailingSummarizer,
    BabblingSummarizer,
    EndlessSummarizer,
)


@dataclass(frozen=True)
class Setup:
    """Everything an engine is made of, so that equal engines can be made again."""

    window: int
    settings: dict[str, Any]
    summarizer: Callable[[], Summarizer] | None
    focus: str | None

    def engine(self) -> ContextCompressor:
        """A fresh engine."""
        chosen = CompressionSettings(**self.settings)
        return ContextCompressor(self.window, settings=chosen, summarizer=self.summarizer and self.summarizer())

    def compress(self, messages: list[Message], **wishes: Any) -> list[Message]:
        """What a fresh engine makes of a conversation."""
        return self.engine().compress(messages, focus_topic=self.focus, **wishes)


def setups() -> st.SearchStrategy[Setup]:
    """Engines for windows from 2k to 200k under any settings that matter for planning."""
    thresholds = st.sampled_from(({}, {"threshold": 0.0}, {"threshold": 0.05}, {"threshold": 0.5}, {"threshold": 1.0}))
    counts = st.fixed_dictionaries(
        {
            "protect_first_n": st.integers(0, 8),
            "protect_last_n": st.integers(1, 40),
            "target_ratio": st.sampled_from((0.1, 0.2, 0.5, 0.8)),
        }
    )
    return st.builds(
        lambda window, threshold, others, summarizer, focus: Setup(window, threshold | others, summarizer, focus),
        st.sampled_from((2_000, 4_000, 8_000, 32_000, 128_000, 200_000)),
        thresholds,
        counts,
        st.sampled_from(_SUMMARIZERS),
        st.sampled_from((None, "login page", "登录")),
    )


def repaired(messages: list[Message]) -> list[Message]:
    """An input as the compressor sees it: mended by every rule, the request in force after any old summary."""
    mended = repair_all(split_merged_summary(messages))
    return repair_all(LatestUserTurn(mended).repair(mended))
