"""A long run of one sign, which anybody may put into a message, takes no square of time: it would stall everybody."""

from __future__ import annotations

import pytest

from everlong.context.chronicle import _FILE, _QUOTED_TURN
from everlong.context.digest import without_marks
from everlong.context.document import _EMPTY_ITEM
from everlong.context.plans import checklist

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
