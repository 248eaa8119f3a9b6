"""The summarizer that rides the main model's warm prefix, and several summarizers as one."""

from __future__ import annotations

import pytest

from everlong import CompletionSummarizer, ContextCompressor, SummarizerError, SummaryRequest
from everlong.context import SummarizerChain, WarmPrefixSummarizer
from everlong.model import text_of
from tests.context.builders import assistant, long_session, user
from tests.context.scripted import Model, request_for


def test_the_warm_form_sends_the_very_messages_that_were_sent_and_one_more() -> None:
    model, messages = Model(), long_session(60)
    engine = ContextCompressor(8_000, summarizer=WarmPrefixSummarizer(model, window=100_000))
    engine.compress(messages)
    assert engine.last_report is not None
    cut = engine.last_report.boundaries.tail_start
    (prompt,) = model.prompts
    assert len(prompt) > cut  # the tail takes what the summary left of its room
    assert all(sent is original for sent, original in zip(prompt[:-1], messages, strict=False))
    assert prompt[-1]["role"] == "user"
    assert "## Constraints & Preferences" in text_of(prompt[-1])
    assert "Do not continue it" in text_of(prompt[-1])


def test_the_warm_form_asks_for_an_update_where_a_summary_stands_in_the_conversation_and_states_focus_and_budget() -> (
    None
):
    model, prefix = Model(), [user("hello"), assistant("hi")]
    WarmPrefixSummarizer(model).summarize(
        request_for(prefix, "## Goal\n- before", prefix=prefix, focus_topic="berths", memory_context="likes SQLite")
    )
    for wanted in ("Update that summary", "at most 600 tokens", '"berths"', "likes SQLite"):
        assert wanted in model.asked


@pytest.mark.parametrize(("prefix", "tokens", "complaint"), [([], 0, "prefix"), ([user("x")], 500_000, "in parts")])
def test_without_a_prefix_or_room_for_it_the_warm_form_refuses(
    prefix: list[dict[str, str]], tokens: int, complaint: str
) -> None:
    with pytest.raises(SummarizerError, match=complaint):
        WarmPrefixSummarizer(Model()).summarize(request_for([user("x")], prefix=prefix, prefix_tokens=tokens))


# -- chains --------------------------------------------------------------------------------------------------------


class Says:
    def __init__(self, name: str, answer: str | Exception) -> None:
        self.name = name
        self.asked = 0
        self._answer = answer

    def summarize(self, request: SummaryRequest) -> str:
        del request
        self.asked += 1
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


TURNS = [user("Build the project in src/app_1.py and src/app_2.py"), assistant("I ran make on src/app_1.py.")]
THIN = "## Goal\n- Build the project"
RICH = (
    "## Goal\n- Build the project in src/app_1.py and src/app_2.py\n"
    "## Progress\n### Done\n- I ran make on src/app_1.py."
)


@pytest.mark.spec("9.3")
def test_the_first_good_summary_is_taken_and_no_one_else_is_asked() -> None:
    members = [Says("dead", OSError("down")), Says("chatty", "Sure!"), Says("thin", THIN), Says("rich", RICH)]
    chain = SummarizerChain(members)
    assert chain.summarize(request_for(TURNS)) == THIN
    assert chain.name == "thin"
    assert [member.asked for member in members] == [1, 1, 1, 0]


@pytest.mark.spec("9.3")
@pytest.mark.parametrize("order", [1, -1])
def test_the_best_of_all_summaries_is_taken_whatever_their_order(order: int) -> None:
    members = [Says("thin", THIN), Says("rich", RICH), Says("inventing", RICH + "\n- and src/zz_top.py")][::order]
    chain = SummarizerChain(members, choose="best")
    assert chain.summarize(request_for(TURNS)) == RICH
    assert chain.name == "rich"


def test_a_member_that_failed_rests_while_another_is_there() -> None:
    now = [0.0]
    dead, alive = Says("dead", OSError("down")), Says("alive", RICH)
    chain = SummarizerChain([dead, alive], clock=lambda: now[0])
    for _ in range(3):
        chain.summarize(request_for(TURNS))
    assert (dead.asked, alive.asked) == (1, 3)
    now[0] = 601
    chain.summarize(request_for(TURNS))
    assert dead.asked == 2


def test_a_warm_prefix_that_no_longer_fits_is_read_in_parts_by_the_next_in_the_chain() -> None:
    warm, parts = Model(), Model()
    chain = SummarizerChain([WarmPrefixSummarizer(warm, window=2_000), CompletionSummarizer(parts, window=8_000)])
    ContextCompressor(8_000, summarizer=chain).compress(long_session(60))
    assert not warm.prompts
    assert parts.prompts


# -- a summary that was written ahead -------------------------------------------------------------------------------


def test_what_came_after_a_prepared_summary_and_is_not_kept_is_told_after_it() -> None:
    written = "## Goal\n- Build the project.\n\n## Progress\n### Done\n- The build was looked at.\n"
    engine = ContextCompressor(32_000, summarizer=Says("model", written))
    messages = long_session(20, 200)
    engine.prepare(messages)
    messages += [user("Use port 8123 for the mock."), assistant("I use mock_port_8123 now.")]
    kept = engine.compress([*messages, *long_session(60, 200)[3:]])
    summary = next(text for text in map(text_of, kept) if written.strip() in text)
    assert '- turn 2, "Use port 8123 for the mock."' in summary
    assert "mock_port_8123" in summary
