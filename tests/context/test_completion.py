"""The summarizer over a completion function: what it asks, and how it reads more than a window holds."""

from __future__ import annotations

import pytest

from everlong import CompletionSummarizer, ConfigError, ContextCompressor, Message, SummarizerError, SummaryRequest
from everlong.context import SummarizerChain, WarmPrefixSummarizer
from everlong.context.document import SECTIONS
from everlong.context.literals import CLEARED_RESULT
from everlong.context.summary_prompts import INSTRUCTIONS
from everlong.model import text_of
from tests.context.builders import assistant, long_session, output, step, user
from tests.context.scripted import COUNT, GOOD, Model, request_for
from tests.examples import length

TIMES = length(10, 3)
PAIRS = length(120, 30)


def many_turns(steps: int) -> list[Message]:
    return [message for n in range(steps) for message in step(n, f"marker-{n:04} {output(100)}")]


@pytest.mark.spec("5.3")
def test_the_template_has_every_heading_in_order() -> None:
    places = [INSTRUCTIONS.index(f"# {section}\n") for section in SECTIONS]
    assert places == sorted(places)
    assert INSTRUCTIONS.index("## Progress\n") < INSTRUCTIONS.index("### Done\n")


@pytest.mark.spec("5.3")
def test_a_focus_gets_between_60_and_70_percent_of_the_budget() -> None:
    model = Model()
    CompletionSummarizer(model).summarize(request_for([user("hi")], budget=1_000, focus_topic="the importer"))
    assert "60-70 % of the room (650 tokens) to, what relates to this topic, which is a subject" in model.asked
    assert '"the importer"' in model.asked
    assert "Use at most 1000 tokens." in model.asked
    assert model.max_tokens == [1_000]


def test_tool_outputs_reach_the_model_digested_not_blanked() -> None:
    model = Model()
    log = f"start of log\n{output(5_000)}\nFAILED (errors=1)"
    CompletionSummarizer(model).summarize(request_for(step(1, log, command="make check")))
    for wanted in ("start of log", "FAILED (errors=1)", "make check", "result of bash"):
        assert wanted in model.asked
    assert CLEARED_RESULT not in model.asked
    assert COUNT(model.asked) < 1_500


def test_secrets_do_not_leave_the_process() -> None:
    model, key = Model(), "sk-proj-abcDEF1234567890abcdEFGH"
    turns = [user(f"Use {key}"), *step(1, f"OPENAI_API_KEY={key}\n" + output(900), command=f"curl -H 'X-Key: {key}'")]
    request = request_for(
        turns, f"## Goal\n- {key}", focus_topic=key, memory_context=key, opening=turns[0], latest_user=turns[0]
    )
    CompletionSummarizer(model).summarize(request)
    assert key not in str(model.prompts)
    assert "[redacted:api_key]" in model.asked


@pytest.mark.spec("5.6")
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_middle_larger_than_the_window_is_read_in_parts_and_folded_and_nothing_is_left_out(concurrency: int) -> None:
    model = Model(lambda number, asked: f"## Goal\n- {'folded' if 'Fold them' in asked else 'part'} {number}")
    summarizer = CompletionSummarizer(model, window=8_000, concurrency=concurrency)
    text = summarizer.summarize(request_for(many_turns(300), previous="## Goal\n- what was before"))
    assert "folded" in text
    assert all(sum(COUNT(text_of(m)) for m in prompt) + most <= 8_000 for prompt, most in _asked(model))
    everything = "\n".join(text_of(prompt[1]) for prompt in model.prompts)
    assert all(f"marker-{n:04}" in everything for n in range(300))
    assert "what was before" in everything
    folds = [text_of(prompt[1]) for prompt in model.prompts if "Fold them" in text_of(prompt[1])]
    parts = len(model.prompts) - len(folds)
    assert parts > 5
    assert sum(fold.count("- part ") for fold in folds) == parts


def _asked(model: Model) -> list[tuple[list[Message], int]]:
    return list(zip(model.prompts, model.max_tokens, strict=True))


@pytest.mark.spec("5.6")
def test_however_many_tokens_go_through_a_window_of_eight_thousand_in_linear_work() -> None:
    def turns(pairs: int) -> list[Message]:
        said = " ".join(f"the importer reads row {n} of the table" for n in range(140))
        return [m for n in range(pairs) for m in (user(f"marker-{n:05} {said}"), assistant(f"noted {n}"))]

    calls = []
    for pairs in (PAIRS, PAIRS * TIMES):
        verbose = Model(lambda number, _: "## Progress\n### Done\n" + f"- row {number} was read\n" * 400)
        summarizer = CompletionSummarizer(verbose, window=8_000)
        request = request_for(turns(pairs), budget=1_200)
        assert summarizer.summarize(request)
        calls.append(len(verbose.prompts))
        assert max(sum(COUNT(text_of(m)) for m in prompt) + most for prompt, most in _asked(verbose)) <= 8_000
        read = {word for prompt in verbose.prompts for word in text_of(prompt[1]).split()}
        assert {f"marker-{n:05}" for n in range(pairs)} <= read
    assert sum(COUNT(text_of(m)) for m in request.turns) > 800 * PAIRS * TIMES
    assert calls[1] <= 1.1 * TIMES * calls[0]


@pytest.mark.spec("5.6")
@pytest.mark.parametrize("concurrency", [1, 4])
def test_after_a_part_that_failed_twice_the_next_attempt_goes_on_where_the_first_one_ended(concurrency: int) -> None:
    broken = True

    def answer(number: int, asked: str) -> str:
        del number
        if broken and "marker-0150" in asked:
            raise ConnectionError("quota")
        return GOOD

    model = Model(answer)
    summarizer, request = (
        CompletionSummarizer(model, window=8_000, concurrency=concurrency),
        request_for(many_turns(200)),
    )
    with pytest.raises(SummarizerError, match=r"part \d+ of \d+ failed twice.*kept.*quota"):
        summarizer.summarize(request)
    first = [text_of(prompt[1]) for prompt in model.prompts]
    assert len(first) == len(set(first)) + 1
    broken = False
    assert summarizer.summarize(request)
    again = [text_of(prompt[1]) for prompt in model.prompts[len(first) :]]
    assert set(again) & set(first) == {asked for asked in first if "marker-0150" in asked}


def test_a_part_whose_answer_is_no_summary_is_a_failure_that_falls_back() -> None:
    engine = ContextCompressor(8_000, summarizer=CompletionSummarizer(Model("I'm sorry."), window=8_000))
    engine.compress(long_session(60))
    assert engine.last_report is not None
    assert "headings" in (engine.last_report.fallback_reason or "")


@pytest.mark.parametrize(("wrong", "message"), [({"window": 100}, "at least 1024"), ({"concurrency": 0}, "at least 1")])
def test_a_window_too_small_to_read_in_and_no_concurrency_at_all_are_refused(
    wrong: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CompletionSummarizer(Model(), **wrong)  # type: ignore[arg-type]


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
