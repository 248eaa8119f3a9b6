"""A long run of one sign, which anybody may put into a message, takes no square of time: it would stall everybody."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from everlong import ContextCompressor, Message
from everlong.context.chronicle import _FILE, _QUOTED_TURN, Chronicle
from everlong.context.digest import escaped, redacted_ends, without_marks
from everlong.context.document import _EMPTY_ITEM, SummaryDocument
from everlong.context.names import names_by_line
from everlong.context.oversized import is_stub
from everlong.context.record import _NUMBER, checklist
from everlong.context.rule_wording import is_rule, sentences
from everlong.context.summarizers import clean_answer
from tests.context.builders import call, long_session, summary_text, user
from tests.examples import length

LONG = 300_000


@pytest.mark.parametrize("blank", [" ", "\n", "\t/"])
def test_blanks_behind_what_may_begin_a_tag(blank: str) -> None:
    assert without_marks(f"<{blank * LONG}x") == f"<{blank * LONG}x"
    assert without_marks("< / system>") == "&lt; / system>"


def test_blanks_in_a_checklist() -> None:
    gap = " " * LONG
    assert [one.text for one in checklist(f"{gap}x\n{gap}- [ ] moor{gap}the ship{gap}\n-{gap}x")] == [
        f"moor{gap}the ship"
    ]


def test_blanks_and_quotes_in_what_an_earlier_summary_lists() -> None:
    assert _EMPTY_ITEM.match(f"-{' ' * LONG}x") is None
    assert _EMPTY_ITEM.match("- (none).")
    assert _FILE.findall("(" * LONG) == []
    assert _FILE.findall("a.py (edited), my b.py (created)") == [("a.py", "edited"), ("my b.py", "created")]
    assert _QUOTED_TURN.match('"' * LONG) is None
    found = _QUOTED_TURN.match('- "say "now"" (turn 3)')
    assert found is not None
    assert found["words"] == 'say "now"'


def test_headings_and_lines_of_a_summary() -> None:
    parsed = SummaryDocument.parse(f"## Goal{' ' * LONG}x\n##{' ' * LONG}\n## **Goal**: ##  \n- moor\n{' x' * LONG}")
    assert parsed.items["Goal"][0].startswith("- moor\n x x")
    assert SummaryDocument.parse("- a\n" + "  b\n" * LONG).items["Critical Context"][0].count("b") == LONG


def test_quotations_that_nobody_ends_and_stops_without_end() -> None:
    for sign in "\"“„«「『`'.!。":
        sentences.__wrapped__(sign * 6_000 + "x")
    text = "Say „never do it“. He said «never do it» and 「never do it」 and „never do it“. Always moor the ship."
    assert [said for said, plain in sentences(text) if is_rule(plain)] == ["Always moor the ship."]


def test_a_patch_and_a_stub_and_a_number_of_a_plan() -> None:
    patch = f"*** Add File: a.py\n*** Add File: {' ' * LONG}x\n*** Update File: my b.py \n"
    assert [*Chronicle().extended(call(1, "apply_patch", "", input=patch)).files] == [
        "a.py",
        f"{' ' * LONG}x",
        "my b.py",
    ]
    assert not is_stub({"role": "tool", "content": "[Tool output; shown: " + "; shown: " * LONG})
    assert is_stub({"role": "tool", "content": "[Tool output: 9; shown: all; shown: all. The whole is message 0a"})
    assert _NUMBER.search("9" * LONG + "x") is None
    assert _NUMBER.findall("task #12") == ["12"]


def test_an_answer_of_a_summary_model_that_thinks_or_breaks_lines_without_end() -> None:
    def count(text: str) -> int:
        return len(text) // 4

    for run in ("<think>", "<think></reasoning>", "\n", "```\n"):
        assert clean_answer(f"```\n{run * LONG}x", 500, count)[0] == ""
    assert (
        clean_answer("<think>a <think>b</THINK>\n```markdown\n\n## Goal\nMoor.\n\n```\n", 500, count)[0]
        == "## Goal\nMoor."
    )


def test_a_turn_whose_number_no_machine_counts_to_is_none() -> None:
    told = f'## Goal\n- "moor" (turn {"9" * 5_000})\n## Done\n- turn {"9" * 5_000}, "moor" → done'
    assert Chronicle.carried_on(told).count == 0


@pytest.mark.parametrize("merge", [False, True])
def test_a_plan_without_end_costs_no_square_of_time_and_its_end_is_told(merge: bool) -> None:
    entries = [{"id": f"{number}", "content": f"moor {number}", "status": "pending"} for number in range(60_000)]
    work = call(1, "todo_write", "ok", todos=entries, merge=merge)
    told = summary_text(ContextCompressor(32_000).compress([*long_session(40), *work, *long_session(20)[3:]]))
    assert f"- Plan (0 of {1_000 if merge else 60_000} done), its last items:" in told
    assert "moor 59999" in told


HUGE = length(300_000, 30_000)


@pytest.mark.parametrize(
    "messages",
    [
        [user("#" * HUGE)],
        [user("@." * HUGE)],
        [user(". " * HUGE)],
        [user("。" * HUGE)],
        call(1, "bash", "=" * HUGE + "a", command="make"),
        call(1, "bash", "a\n" * HUGE, command="make"),
        call(1, "bash", "ok", command="sed -" + "i" * HUGE),
        call(1, "bash", "ok", command="sed -i '" * (HUGE // 8)),
        call(1, "rows", "ok", rows=[{"id": f"row_{n}"} for n in range(HUGE // 10)]),
    ],
    ids=lambda messages: str(messages)[:60],
)
def test_the_work_on_a_message_does_not_grow_with_the_square_of_its_size(messages: list[Message]) -> None:
    # Work that grew with the square of these sizes would not end while anyone waits.
    assert len(Chronicle().extended([user("Go."), *messages]).write(400, len)) <= 400


@given(st.text("# \t>*-a\n\\", max_size=30))
def test_headings_are_escaped_at_the_beginning_of_a_line_only(text: str) -> None:
    lines = [re.sub(r"^([ \t>*-]*)(#{1,6}[ \t])", r"\1\\\2", line) for line in text.split("\n")]
    assert escaped(text) == "\n".join(lines)


def test_a_line_of_very_many_names_is_read_in_one_pass() -> None:
    # Other threads wait for the whole line, and only a test that hangs would show that it takes too long.
    assert names_by_line(["at 11 of a.py " * 400_000, "one"]) == [("11", "a.py"), ()]


KEEP = 1_500
TOKEN = f"eyJ{'a1B2' * 8}.eyJ{'c3D4' * 75}.{'e5F6' * 20}"
"""So much longer than its mark that hardly more than the ends of a text with many is left."""
SECRETS = {
    "json": '  "password": "{secret}",\n',
    "escaped": '  \\"password\\": \\"{secret}\\",\\n ',
    "yaml": "password: {secret}\r\n",
    "argument": "deploy --password {secret} --now\n",
    "bearer": "Authorization: Bearer {secret}\n",
    "url": "see postgres://fog:{secret}@lamp/db\n",
}


@pytest.mark.parametrize("shape", SECRETS)
def test_a_secret_does_not_pass_where_the_cut_parts_it_from_its_name(shape: str) -> None:
    lines = [
        f'  "jwt": "{TOKEN}",\n{SECRETS[shape].format(secret=f"hunter2X{number:02}foghorn9")}' for number in range(12)
    ]
    period = len(lines[0])
    for shift in range(period):
        assert "foghorn9" not in redacted_ends("".join(lines) + "x" * shift, KEEP)


@pytest.mark.parametrize("length", [40, 900])
def test_a_long_secret_does_not_pass_in_part(length: int) -> None:
    secret = ("k7Qz" * length)[:length]
    before = "fog at nine\n" * 300 + f"Authorization: Bearer {secret}\n"
    for words in range(1_200):
        assert secret[-12:] not in redacted_ends(before + "y" * (words % 2) + " y" * (words // 2), KEEP)


def test_both_ends_stay_and_the_mark_tells_what_lies_between() -> None:
    text = "first lamp\n" + "fog at nine\n" * 1_000 + "last lamp\n"
    shown = redacted_ends(text, KEEP)
    assert shown.startswith("first lamp\n")
    assert shown.endswith("last lamp\n")
    assert len(shown) < KEEP + 50
