"""A long run of one sign, which anybody may put into a message, takes no square of time: it would stall everybody."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor
from everlong.context.chronicle import _FILE, _QUOTED_TURN, Chronicle
from everlong.context.digest import without_marks
from everlong.context.document import _EMPTY_ITEM, SummaryDocument
from everlong.context.oversized import is_stub
from everlong.context.record import _NUMBER, checklist
from everlong.context.rule_wording import is_rule, sentences
from everlong.context.summarizers import clean_answer
from tests.context.builders import call, long_session, summary_text

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
