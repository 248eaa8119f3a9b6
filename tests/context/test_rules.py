"""Standing rules: who makes them, how they go on through compactions, and what ends them."""

from __future__ import annotations

import pytest
from bench.retention.rule_sessions import run_session
from bench.retention.rules import detect

from everlong import CompletionSummarizer, ContextCompressor, Message
from everlong.context.literals import RULES_HEADING, is_summary, summary_indices
from everlong.context.rules import Rule, StandingRules, edit_message, found_rules, read_block, standing_rules
from everlong.model import part_text, parts_of, text_of
from everlong.tokens import MessageCounter, counter_for
from tests.context.builders import assistant, output, step, system, user
from tests.context.scripted import Model

WINDOW = 8_000


def work(steps: int = 12) -> list[Message]:
    """Enough calls and results that a compaction covers what was said before."""
    done: list[Message] = []
    for number in range(steps):
        done += [user(f"Look at part {number}."), *step(number, output(300)), assistant("Seen.")]
    return done


def compacted(*said: str, engine: ContextCompressor | None = None) -> list[Message]:
    talk = [message for text in said for message in (user(text), assistant("Understood."))]
    return (engine or ContextCompressor(WINDOW)).compress(
        [system(), user("Build the berth planner."), assistant("I begin."), *talk, *work()], force=True
    )


def summary_of(messages: list[Message]) -> Message:
    return next(message for message in messages if is_summary(message))


def block_of(messages: list[Message]) -> str:
    return part_text(parts_of(summary_of(messages))[-1])


def in_force(*said: str) -> list[str]:
    return [rule.text for rule in standing_rules([user(text) for text in said]).lines]


# -- through compactions -----------------------------------------------------------------------------------------------


@pytest.mark.spec("9.6")
@pytest.mark.spec("5.4")
def test_rules_stand_word_for_word_in_a_block_of_their_own_after_the_summary() -> None:
    found = compacted("Never touch legacy/.", "Use pnpm, not npm. What is in part two?")
    parts = parts_of(summary_of(found))
    assert len(parts) == 2
    assert RULES_HEADING not in part_text(parts[0])
    assert part_text(parts[1]).startswith("Standing rules of the user, in force:\n")
    assert '- "Never touch legacy/." (turn 2)' in part_text(parts[1])
    assert '- "Use pnpm, not npm." (turn 3)' in part_text(parts[1])


@pytest.mark.spec("5.4")
def test_a_summary_without_rules_is_a_plain_string() -> None:
    assert isinstance(summary_of(compacted("What is in part two?"))["content"], str)


@pytest.mark.spec("9.6")
def test_rules_go_on_in_another_process_and_when_a_host_makes_one_string_of_the_blocks() -> None:
    messages = compacted("Always answer in German.")
    for separator in ("\n", "\n\n", ""):
        flat = [
            {**message, "content": separator.join(map(part_text, parts_of(message)))}
            if is_summary(message)
            else message
            for message in messages
        ]
        again = ContextCompressor(WINDOW).compress([*flat, *work()], force=True)
        assert '- "Always answer in German." (turn 2)' in block_of(again)
        assert text_of(summary_of(again)).count("Always answer in German.") >= 1


@pytest.mark.spec("9.6")
def test_a_host_that_merges_messages_does_not_part_rules_from_their_summary() -> None:
    messages = compacted("Always answer in German.")
    place = summary_indices(messages)[0]
    merged = {"role": "user", "content": [*parts_of(messages[place]), {"type": "text", "text": "Go on."}]}
    rest = [message for message in messages[place + 1 :] if message.get("role") != "user"][1:]
    again = ContextCompressor(WINDOW).compress(
        [*messages[:place], merged, assistant("Yes."), *rest, *work()], force=True
    )
    assert '- "Always answer in German." (turn 2)' in block_of(again)


@pytest.mark.spec("9.6")
@pytest.mark.parametrize("answer", ["## Goal\nPlan berths.", "", "I cannot help with that."])
def test_whatever_a_model_writes_the_rules_stand(answer: str) -> None:
    engine = ContextCompressor(WINDOW, summarizer=CompletionSummarizer(Model(answer), window=200_000))
    assert '- "Never touch legacy/." (turn 2)' in block_of(compacted("Never touch legacy/.", engine=engine))


@pytest.mark.spec("9.6")
def test_rules_take_their_room_from_the_summary() -> None:
    engine = ContextCompressor(WINDOW)
    compacted("Never touch legacy/.", "Always answer in German.", engine=engine)
    report = engine.last_report
    assert report is not None
    assert report.summarizer_input is not None
    assert report.rules == 2
    assert 0 < report.rules_tokens < report.summary_tokens <= report.summarizer_input.budget_tokens


@pytest.mark.spec("9.6")
def test_past_their_share_the_oldest_become_ids_and_wishes_go_first() -> None:
    count = MessageCounter(counter_for(None)).count_text
    lines = (
        Rule("Never touch legacy/ in this repository.", turn=1),
        Rule(f"I prefer {'short and simple ' * 12}answers.", "preference", turn=2),
        Rule("Always run the tests before you commit.", turn=3),
    )
    whole = StandingRules(lines, turns=3)
    fitted = whole.fit(count(whole.render()) - 1, count)
    assert [rule.turn for rule in fitted.lines] == [1, 3]
    assert fitted.older == (lines[1].id,)
    assert read_block(fitted.render()) == fitted
    assert not whole.fit(0, count).lines


@pytest.mark.spec("9.6")
def test_the_block_reads_back_as_it_was_written() -> None:
    rules = StandingRules(
        (
            Rule('Use the formal "Sie" whenever you draft a letter.', turn=4),
            Rule("Always run make fmt.", turn=5, source="project"),
        ),
        lifted=("Never touch legacy/.",),
        older=("rule-0123abcd",),
        turns=9,
    )
    assert read_block(f"## Goal\n- Plan berths.\n\n{rules.render()}\nWhat follows is no rule.") == rules


# -- who makes a rule --------------------------------------------------------------------------------------------------


@pytest.mark.spec("9.6")
def test_only_a_persons_words_make_a_rule() -> None:
    messages = [
        assistant("Always use tabs."),
        *step(1, "Never touch src/.\nAlways answer in French."),
        user("```\n# Never touch this\nAlways close the file.\n```\nWhat does it do?"),
        user("> Always use the latest version\nIs that still true?"),
        user("Translate this: Never eat yellow snow. Always wear a hat."),
        user('The readme says "Never commit on Friday", why?'),
    ]
    assert not standing_rules(messages).lines


@pytest.mark.spec("9.6")
def test_project_instructions_are_rules_until_head_or_tail_says_them() -> None:
    reminder = (
        "<system-reminder>\nContents of /work/CLAUDE.md (project instructions, checked into the codebase):\n\n"
        "- Always run make fmt before committing.\n- The planner has two parts.\n</system-reminder>\nBuild it."
    )
    (rule,) = standing_rules([user(reminder)]).lines
    assert (rule.text, rule.source) == ("Always run make fmt before committing.", "project")
    assert not standing_rules([user(reminder)]).beside([user(reminder)], []).lines
    assert not standing_rules([{"role": "tool", "tool_call_id": "a", "content": reminder}]).lines


@pytest.mark.spec("9.6")
@pytest.mark.parametrize("name", ["tuning", "blind"])
def test_rules_are_told_from_look_alikes(name: str) -> None:
    found = detect(name)
    assert found.recall >= 0.9, found.wrong
    assert found.precision >= 0.9, found.wrong


def test_a_wish_in_a_long_question_is_cut_out_word_for_word() -> None:
    said = (
        "I'm trying to keep the app small, so I prefer simple, minimal dependencies, how can I make sure that the page "
        "stays quick while I add the map, considering that the deadline is April 15?"
    )
    (rule,) = found_rules(said)
    assert rule == ("I'm trying to keep the app small, so I prefer simple, minimal dependencies", "preference")


@pytest.mark.parametrize("said", ["I hate that.", "I love it!", "I value her opinion.", "I prefer this."])
def test_what_only_points_at_something_is_no_wish(said: str) -> None:
    assert not found_rules(said)


@pytest.mark.spec("9.6")
def test_a_pasted_pull_request_lays_nothing_down() -> None:
    pasted = (
        "Please review this.\n\n## Summary\nAlways use the new client. Never call the old one.\n\n"
        "## Test plan\n- [ ] Do not merge without a review\n\nFixes #12\n"
    )
    assert not found_rules(pasted)
    assert [rule.text for rule in found_rules(f"{pasted}\n## My rules\nNever push to main.")] == ["Never push to main."]


@pytest.mark.spec("9.6")
def test_headings_in_project_instructions_are_their_own() -> None:
    text = "## Testing\nAlways run make test.\n\n## Environment\nNever use the system's Python.\n"
    assert [rule.text for rule in found_rules(text, of_project=True)] == [
        "Always run make test.",
        "Never use the system's Python.",
    ]


def test_of_wishes_that_say_the_same_the_one_that_says_more_stands() -> None:
    longer = "I prefer short answers with a sketch of every step."
    assert in_force("I prefer short answers.", longer, "Remember that I prefer short answers.") == [longer]
    assert in_force("I prefer tea over coffee.", "I prefer oak over pine.") == [
        "I prefer tea over coffee.",
        "I prefer oak over pine.",
    ]


# -- very long messages ------------------------------------------------------------------------------------------------


def test_a_rule_after_a_long_paste_is_heard_and_one_inside_its_code_is_not() -> None:
    paste = "The importer reads one record after the other.\n" * 2_000
    assert in_force(f"{paste}\n\nAlways answer in German.") == ["Always answer in German."]
    code = "```\n" + "x = 1\n" * 20_000 + "\n\nAlways close the file.\n```\n"
    assert in_force(f"{code}\n\nNever touch legacy/.") == ["Never touch legacy/."]


@pytest.mark.parametrize("line", ["ok", "so, ok", "please make", "I prefer it, and", "if when", "和如果时"])
def test_thousands_of_short_lines_are_read_in_one_go(line: str) -> None:
    # An expression that tries every way to part such words does not end within the life of a computer.
    assert len(in_force(f"{line}\n" * 5_000)) <= 2


def test_the_rules_of_a_paste_do_not_pile_up_without_end() -> None:
    names = [f"{first}{second}{third}" for first in "bdfgk" for second in "aeiou" for third in "lmnrstvwxz"]
    told = [f"Never touch {name}one/. Never touch {name}two/." for name in names]
    rules = standing_rules([user(text) for text in told])
    assert len(rules.lines) == 400
    assert rules.lines[-1].text == f"Never touch {names[-1]}two/."
    assert len(rules.older) == 2 * len(names) - 400


@pytest.mark.spec("5.2")
def test_a_newest_message_larger_than_the_window_leaves_the_summary_its_room() -> None:
    talk = [
        message for number in range(30) for message in (user(f"Berth {number} is free."), assistant("Noted. " * 40))
    ]
    engine = ContextCompressor(WINDOW)
    start = [system(), user("Build the berth planner."), assistant("I begin.")]
    found = engine.compress([*start, *talk, user("record after record " * 20_000)], force=True)
    report = engine.last_report
    assert report is not None
    assert report.summarizer_input is not None
    assert report.summarizer_input.budget_tokens >= WINDOW * 0.05
    assert "Berth 7 is free" in text_of(summary_of(found))


# -- what ends a rule --------------------------------------------------------------------------------------------------


@pytest.mark.spec("9.6")
@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Never touch legacy/.", "You can touch legacy/ again."),
        ("Never touch legacy/.", "Forget the rule about legacy/."),
        ("Always run ruff before you commit.", "You don't have to run ruff anymore."),
        ("No emojis in your answers.", "Emojis are fine again."),
        ("不要修改 legacy/ 下的任何文件。", "现在可以修改 legacy/ 了。"),
        ("每次提交之前都要运行 ruff。", "不用再运行 ruff 了。"),
    ],
)
def test_a_rule_that_is_taken_back_is_over(rule: str, later: str) -> None:
    assert in_force(rule, "Always cite sources.", later) == ["Always cite sources."]


@pytest.mark.spec("9.6")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Answer in German.", "From now on, reply in English."),
        ("Use npm.", "Use pnpm, not npm."),
        ("Keep commit messages under 72 characters.", "Keep commit messages under 90 characters."),
        ("Never use tabs for indentation.", "Always use tabs for indentation."),
        ("Always answer in German.", "Always answer in German."),
    ],
)
def test_the_newer_of_two_rules_that_contradict_each_other_holds(old: str, new: str) -> None:
    assert in_force(old, new) == [new]


@pytest.mark.parametrize(
    "rules",
    [
        ("Never touch legacy/.", "Never touch vendor/."),
        ("Use pnpm.", "Use ruff."),
        ("I prefer short answers.", "From now on, answer in English."),
        ("Write commit messages in English.", "Answer in German."),
    ],
)
def test_rules_that_do_not_contradict_each_other_add_up(rules: tuple[str, str]) -> None:
    assert in_force(*rules) == list(rules)


@pytest.mark.spec("9.6")
def test_a_rule_of_the_head_that_was_taken_back_is_named_as_such() -> None:
    messages = [system(), user("Build the planner. Never touch legacy/."), assistant("Yes."), *work()]
    first = ContextCompressor(WINDOW).compress(messages, force=True)
    assert RULES_HEADING not in text_of(summary_of(first))  # the head says it
    talk = [user("You can touch legacy/ again."), assistant("Good.")]
    second = ContextCompressor(WINDOW).compress([*first, *talk, *work()], force=True)
    third = ContextCompressor(WINDOW).compress([*second, *work()], force=True)
    assert '- no longer in force: "Never touch legacy/."' in block_of(third)
    assert not standing_rules(third, summary_indices(third)).lines


@pytest.mark.spec("8")
def test_an_edit_is_part_of_the_conversation() -> None:
    edit = [edit_message(added=["Colour is spelt with u."], removed=["Always cite sources."]), assistant("Noted.")]
    messages = [user("Always cite sources."), assistant("Yes."), *edit]
    assert [rule.text for rule in standing_rules(messages).lines] == ["Colour is spelt with u."]
    found = ContextCompressor(WINDOW).compress(
        [system(), user("Hello."), assistant("Hi."), *messages, *work()], force=True
    )
    assert '- "Colour is spelt with u."' in block_of(found)
    assert "Always cite sources." not in text_of(summary_of(found))


# -- long sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("9.6")
@pytest.mark.parametrize("fault", ["", "good", "truncated", "inventing"])
def test_in_long_sessions_no_rule_is_lost_and_none_comes_back(fault: str) -> None:
    assert not run_session(seed=3, fault=fault, compactions=5)
