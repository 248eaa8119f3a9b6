"""What the user took back is never open in a summary, and the newest request is said as such."""

from __future__ import annotations

import pytest
from everlong.context.summary.judge import judge_answer
from everlong.context.verify import Yardstick

from everlong import CompletionSummarizer, ContextCompressor, ExtractiveSummarizer, Message, SummaryRequest
from everlong.context import WarmPrefixSummarizer
from everlong.context.document import SummaryDocument
from everlong.context.summarizers import complete_prose
from everlong.model import text_of
from tests.context.builders import assistant, long_session, output, step, summary_text, system, user
from tests.context.scripted import COUNT, Model

OPEN = ("Goal", "In Progress", "Pending User Asks", "Next Steps", "Constraints & Preferences")
CACHE = "Add a Redis cache for the sessions."
CACHE_ZH = "给会话加 Redis 缓存"


def summarize(
    turns: list[Message],
    *,
    opening: str = "Build a berth planner for the marina",
    latest: str = "",
    following: tuple[str, ...] = (),
    previous: str | None = None,
    budget: int = 900,
) -> dict[str, list[str]]:
    request = SummaryRequest(
        turns,
        previous,
        budget,
        COUNT,
        opening=user(opening),
        latest_user=user(latest) if latest else None,
        after=[user(text) for text in following],
    )
    return SummaryDocument.parse(ExtractiveSummarizer().summarize(request)).items


def closed(items: dict[str, list[str]]) -> list[str]:
    return [item for item in items["Key Decisions"] if item.startswith(("- Closed by the user", "- 用户已取消"))]


TAKEN_BACK = [
    (CACHE, "Actually, forget the Redis cache, use Postgres instead."),
    (CACHE, "Never mind."),
    (CACHE, "never mind the cache, do the docs"),
    (CACHE, "nvm, write the docs"),
    (CACHE, "Scrap that. Build the exporter."),
    (CACHE, "Scrap the Redis cache"),
    (CACHE, "Stop, do the failing tests first."),
    (CACHE, "Wait, stop. Fix the tests first."),
    (CACHE, "I changed my mind."),
    (CACHE, "I've changed my mind about the Redis cache, keep it in memory."),
    (CACHE, "On second thought, let's drop the Redis cache."),
    (CACHE, "We no longer need the Redis cache."),
    (CACHE, "Let's skip the Redis cache for now."),
    (CACHE, "Cancel that, please."),
    (CACHE, "Do the docs instead."),
    (CACHE, "Hmm, the tests are slow, so forget about the Redis cache."),
    (CACHE, "Store the sessions in Postgres instead of the Redis cache."),
    (CACHE, "Hold off on the Redis cache."),
    (CACHE, "don't bother with the Redis cache"),
    ("Use Redis for the sessions.", "Actually, use Postgres."),
    ("Use Redis for the sessions.", "No, use Postgres instead."),
    ("Use Redis for the sessions.", "Let's go with Postgres instead."),
    (CACHE_ZH, "算了，改成 Postgres"),
    (CACHE_ZH, "算了"),
    (CACHE_ZH, "不用 Redis 缓存了，用 Postgres"),
    (CACHE_ZH, "取消 Redis 缓存"),
    (CACHE_ZH, "停，先修复测试"),
    (CACHE_ZH, "我改主意了，先写文档"),
    (CACHE_ZH, "先别做 Redis 缓存"),
    (CACHE_ZH, "不要 Redis 缓存了"),
    (CACHE_ZH, "Redis 缓存不用了，写文档吧"),
    ("会话用 Redis 保存", "还是用 Postgres 吧"),
]


@pytest.mark.spec("5.3")
@pytest.mark.parametrize(("asked", "said"), TAKEN_BACK)
@pytest.mark.parametrize("where", ["turns", "latest", "tail"])
def test_a_request_that_was_taken_back_is_named_as_closed_and_nowhere_as_open(
    asked: str, said: str, where: str
) -> None:
    turns = [user(asked), assistant("I start with the Redis work. Next I write the Redis client.")]
    if where == "turns":
        items = summarize([*turns, user(said), assistant("Fine.")], latest="Go on.")
    elif where == "latest":
        items = summarize(turns, latest=said)
    else:
        items = summarize(turns, following=(said,), latest="Go on.")
    (line,) = closed(items)
    assert asked.rstrip(".") in line
    assert said[:40] in line
    for section in OPEN:
        for item in items[section]:
            assert asked.rstrip(".") not in item
            # The words that take it back may stand as the newest request, and as a rule.
            assert "Redis" not in item or said.rstrip(".") in item
    assert not any(item.endswith(f'"{asked}"') for item in items["Done"])


NOT_TAKEN_BACK = [
    (CACHE, "I actually like how the cache turned out."),
    (CACHE, "Does it actually expire?"),
    (CACHE, "Don't forget to add tests for the Redis cache."),
    (CACHE, "Never forget the cache key prefix."),
    (CACHE, "Use tabs instead of spaces."),
    (CACHE, "I changed my mind about lunch."),
    (CACHE, "Should we forget the Redis cache?"),
    (CACHE, "Actually, can you also write the docs"),
    (CACHE, "Stop the server before you run the tests."),
    (CACHE, "Drop the table users."),
    (CACHE, "Cancel the flight of passenger 17."),
    (CACHE, 'The log says "forget the Redis cache", why'),
    (CACHE, "> forget the Redis cache\nThis was in the mail."),
    (CACHE, "```\nforget the Redis cache\n```\nThis fails."),
    (CACHE, "I would rather have a larger cache."),
    (CACHE, "Do not use floats for prices."),
    (CACHE, "Skip the slow tests."),
    (CACHE, "No, it must be 300 seconds."),
    (CACHE_ZH, "别忘了写 Redis 缓存的测试"),
    (CACHE_ZH, "我算了一下，一共 17 个会话"),
    (CACHE_ZH, "把按钮改成蓝色"),
    (CACHE_ZH, "取消按钮要放在右边"),
    (CACHE_ZH, "不要动 legacy 目录"),
    (CACHE_ZH, "Redis 缓存要不要设过期时间？"),
]


@pytest.mark.parametrize(("asked", "said"), NOT_TAKEN_BACK)
def test_what_only_sounds_like_a_change_of_mind_closes_nothing(asked: str, said: str) -> None:
    items = summarize([user(asked), assistant("I start."), user(said), assistant("Fine.")], latest="Go on.")
    assert closed(items) == []
    assert any(asked.rstrip(".") in item for item in items["Done"])


@pytest.mark.parametrize("said", ["never mind", "Never mind, thanks!", "不用了，谢谢"])
def test_a_no_to_an_offer_takes_no_request_back(said: str) -> None:
    turns = [user(CACHE), assistant("It works. Shall I also write the docs?"), user(said), assistant("Fine.")]
    assert closed(summarize(turns, latest="Go on.")) == []


def test_a_goal_that_was_replaced_gives_way_to_what_replaced_it() -> None:
    items = summarize([assistant("Next: the model.")], latest="Forget the berth planner. Write a CLI for invoices.")
    assert items["Goal"] == ["- Write a CLI for invoices"]
    assert items["Next Steps"] == items["In Progress"] == []
    assert closed(items)[0].startswith("- Closed by the user: Build a berth planner for the marina → ")


def test_a_goal_that_was_taken_back_in_part_says_which() -> None:
    opening = "Build a berth planner with a Redis cache and write docs"
    items = summarize([assistant("Yes.")], opening=opening, latest="Forget the Redis cache.")
    assert items["Goal"] == [f"- {opening} (Closed by the user: Redis cache)"]


def test_a_goal_of_several_parts_keeps_those_that_were_not_taken_back() -> None:
    items = summarize([assistant("Yes.")], opening="Write the importer, then the exporter", latest="skip the exporter")
    assert items["Goal"] == ["- Write the importer, then the exporter (Closed by the user: the exporter)"]


def test_taking_back_what_took_something_back_opens_it_again() -> None:
    turns = [user(CACHE), assistant("Yes."), user("Forget the Redis cache, use Postgres."), assistant("Fine.")]
    items = summarize(turns, latest="No wait, never mind, the cache is fine.")
    (line,) = closed(items)
    assert line.startswith("- Closed by the user: Forget the Redis cache, use Postgres. → ")
    assert any(CACHE.rstrip(".") in item for item in items["Done"])


def test_what_is_only_put_off_is_said_to_be() -> None:
    items = summarize([user(CACHE), assistant("Yes.")], latest="Stop, fix the tests first.")
    assert closed(items)[0].startswith("- Closed by the user for now: ")
    chinese = summarize([user(CACHE_ZH), assistant("好。")], latest="停，先修复测试")
    assert closed(chinese)[0].startswith("- 用户已取消（暂缓）: ")


PREVIOUS = f"""## Goal
- Build a berth planner

## Constraints & Preferences
- The Redis cache must expire after 300 seconds

## Progress
### In Progress
- Adding the Redis cache

## Pending User Asks
- Newest request: {CACHE}

## Next Steps
- Wire the Redis cache into sessions
- Document the API"""


@pytest.mark.spec("5.5")
@pytest.mark.parametrize("said", ["Forget the Redis cache, use Postgres.", "Never mind, use Postgres."])
def test_what_an_earlier_summary_has_as_open_is_closed_when_it_is_taken_back(said: str) -> None:
    items = summarize([user(said), assistant("Fine.")], previous=PREVIOUS, latest="Go on.")
    assert closed(items) == [f'- Closed by the user: {CACHE} → "{said}"']
    assert items["Goal"] == ["- Build a berth planner"]
    for section in ("Goal", "In Progress", "Pending User Asks", "Next Steps", "Done"):
        assert not any("Redis" in item for item in items[section])


@pytest.mark.spec("5.5")
def test_a_closed_request_stays_named_as_closed_in_the_next_summary() -> None:
    first = SummaryDocument(summarize([user(CACHE), assistant("Yes.")], latest="Forget the Redis cache."))
    items = summarize([*step(1, "ok")], previous=first.render(), latest="Write the docs.")
    assert closed(items) == [f'- Closed by the user: {CACHE} → "Forget the Redis cache."']


@pytest.mark.spec("5.5")
def test_through_the_engine_a_chain_of_compactions_never_reopens_what_was_taken_back() -> None:
    engine = ContextCompressor(8_000)
    session = [system(), user("Build the planner."), assistant("I start."), user(CACHE), *long_session(40)[3:]]
    session = engine.compress([*session, user("Actually, forget the Redis cache, use Postgres.")])
    for number in range(3):
        session = engine.compress([*session, *long_session(40)[3:], user(f"Now check part {number}.")])
        items = SummaryDocument.parse(summary_text(session)).items
        assert not any("Redis" in item for section in OPEN for item in items[section])
        assert len(closed(items)) == 1


# -- the newest request ------------------------------------------------------------------------------------------


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("budget", [60, 120, 300, 2_000])
def test_the_newest_request_is_said_as_such_in_a_few_words(budget: int) -> None:
    latest = "Check the tables of berth 17. " + "They are in src/tables.py and were changed yesterday. " * 20
    items = summarize([user("Check berth 3."), *long_session(20)], latest=latest, budget=budget)
    (line,) = items["Pending User Asks"]
    assert line.startswith("- Newest request: Check the tables of")
    assert COUNT(line) <= 50


@pytest.mark.spec("5.2", "5.3")
@pytest.mark.parametrize("in_tail", [True, False])
def test_an_engine_names_the_request_that_stands_after_its_summary(*, in_tail: bool) -> None:
    session = [*long_session(60), user("Now the docs of berth 17.")]
    engine = ContextCompressor(8_000)
    result = engine.compress(session if in_tail else [*session, *long_session(60)[3:]])
    items = SummaryDocument.parse(summary_text(result)).items
    assert items["Pending User Asks"] == ["- Newest request: Now the docs of berth 17."]
    assert engine.last_report is not None
    assert engine.last_report.latest_user_repeated is not in_tail
    assert engine.last_report.quality is not None
    assert engine.last_report.quality.newest_request_restated


@pytest.mark.spec("5.5")
def test_the_next_summary_names_the_next_request_and_the_older_one_no_longer() -> None:
    items = summarize([*step(1, "ok")], previous=PREVIOUS, latest="Write the docs.")
    assert items["Pending User Asks"] == ["- Newest request: Write the docs."]
    assert f'- "{CACHE.rstrip(".")}"' in items["Done"]


@pytest.mark.spec("5.5")
def test_a_request_that_is_still_the_newest_is_not_done() -> None:
    items = summarize([*step(1, "ok")], previous=PREVIOUS, latest=CACHE)
    assert items["Pending User Asks"] == [f"- Newest request: {CACHE}"]
    assert not any(CACHE in item for item in items["Done"])


def session() -> list[Message]:
    return [*long_session(60), user("Now the docs of berth 17."), *step(99, output(20))]


@pytest.mark.parametrize("form", ["transcript", "warm"])
def test_a_model_is_told_the_newest_request_and_asked_to_name_it(form: str) -> None:
    model = Model()
    made = CompletionSummarizer(model, window=200_000) if form == "transcript" else WarmPrefixSummarizer(model)
    ContextCompressor(8_000, summarizer=made).compress(session())
    told = text_of(model.prompts[0][-1])
    material = told[told.index("<newest_request") : told.index("</newest_request")]
    assert material.splitlines()[1:] == [f"[{told[10:18]} user]", "Now the docs of berth 17."]
    assert '"- Newest request: ..."' in told
    assert '"- Closed by the user: ..."' in told


@pytest.mark.parametrize(
    ("pending", "expected"),
    [
        ("", "- Newest request: Now the docs of berth 17."),
        ("- Newest request: write docs of berth 17", "- Newest request: write docs of berth 17"),
        ("- **Latest user request:** the docs of berth 17", "- **Latest user request:** the docs of berth 17"),
        ("- Newest request: Build the project and fix what is broken", "- Newest request: Now the docs of berth 17."),
    ],
)
def test_a_models_summary_has_the_newest_request_whatever_the_model_wrote(pending: str, expected: str) -> None:
    answer = f"## Goal\n- Build the project\n\n## Progress\n### Done\n- Ran make\n\n## Pending User Asks\n{pending}\n"
    engine = ContextCompressor(32_000, summarizer=CompletionSummarizer(Model(answer), window=200_000))
    result = engine.compress([*long_session(80), *session()[-3:]])
    items = SummaryDocument.parse(summary_text(result)).items
    assert items["Pending User Asks"][0] == expected
    assert engine.last_report is not None
    assert engine.last_report.quality is not None
    assert engine.last_report.quality.newest_request_restated
    is_stale = "fix what is broken" in pending
    assert ("it calls an older request the newest one" in engine.last_report.quality.problems) is is_stale


def test_a_models_summary_has_what_the_user_took_back() -> None:
    turns = [user(CACHE), assistant("Yes."), user("Forget the Redis cache."), assistant("Fine."), *long_session(5)]
    newest = user("Go on.")
    extract = ExtractiveSummarizer().summarize(SummaryRequest(turns, None, 600, COUNT, latest_user=newest))
    yardstick = Yardstick(turns, latest=newest)
    draft = judge_answer(
        "## Goal\n- Build the project\n## Key Decisions\n- Sessions stay in memory.", yardstick, 600, COUNT
    )
    items = SummaryDocument.parse(complete_prose(draft.document, extract, yardstick, 600, COUNT)).items
    assert items["Key Decisions"][0] == "- Sessions stay in memory."
    assert len(closed(items)) == 1
    assert items["Pending User Asks"] == ['- Newest request: Go on. ("Build the project and fix what is broken")']


def test_the_wish_of_an_earlier_part_is_dropped_also_if_the_talk_was_in_another_language_then() -> None:
    before = "## Goal\n- Build a berth planner.\n- 目前: 把收据翻译成中文"
    items = summarize([user("Sort the berths by length."), *step(1, "ok")], previous=before, latest="Go on.")
    assert [item for item in items["Goal"] if "目前" in item or "收据" in item] == []


@pytest.mark.parametrize("wish", ["Don't write anything yet.", "Please do not change the parser yet."])
def test_a_wish_to_wait_with_writing_ends_when_files_are_written(wish: str) -> None:
    turns = [user(f"Look around in the harbour code first. {wish}"), assistant("I see four modules.")]
    before = summarize(turns, latest="Go on.")
    after = summarize(
        [
            *turns,
            user("Good, go ahead."),
            *step(1, "ok", tool="write_file", path="src/berths.py", content="BERTHS = 46"),
        ],
        latest="Go on.",
    )
    assert [item for item in before["Constraints & Preferences"] if "yet" in item]
    assert [item for item in after["Constraints & Preferences"] if "yet" in item] == []


def test_a_wish_to_wait_with_something_else_stays() -> None:
    turns = [user("Look around first. Don't deploy anything yet."), assistant("I see four modules.")]
    items = summarize(
        [
            *turns,
            user("Good, go ahead."),
            *step(1, "ok", tool="write_file", path="src/berths.py", content="BERTHS = 46"),
        ],
        latest="Go on.",
    )
    assert [item for item in items["Constraints & Preferences"] if "deploy" in item]
