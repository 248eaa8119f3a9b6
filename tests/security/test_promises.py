"""Every promise of docs/security.md names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_the_test_of_a_promise_exists() -> None:
    assert NAMED
    for file, test in NAMED:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (
            f"{file}::{test}"
        )


def test_every_promise_names_its_test() -> None:
    rows = [row for row in PAGE.partition("## Folders")[2].splitlines() if row.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "|---"))]
    assert promises
    assert [row for row in promises if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []
