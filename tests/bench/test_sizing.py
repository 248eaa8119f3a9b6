"""The sizing tables of the documentation are those that the program prints."""

from __future__ import annotations

from pathlib import Path

from bench.store.sizing import rows

PAGE = Path(__file__).parent.parent.parent / "docs" / "scale.md"


def test_the_documentation_has_the_table_as_it_is_printed() -> None:
    told = PAGE.read_text(encoding="utf-8")
    for row in rows():
        assert "| " + " | ".join(row) + " |" in told
