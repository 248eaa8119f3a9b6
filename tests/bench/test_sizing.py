"""The sizing tables of the documentation are those that the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.store.sizing import DISK_SHARE, MEASURED, PARTITION_BYTES, SIZES, in_bytes, rows, size

PAGE = Path(__file__).parent.parent.parent / "docs" / "scale.md"


def test_the_documentation_has_the_table_as_it_is_printed() -> None:
    told = PAGE.read_text(encoding="utf-8")
    for row in rows():
        assert "| " + " | ".join(row) + " |" in told


@pytest.mark.parametrize("count", SIZES)
def test_the_arithmetic_is_the_one_that_is_told(count: int) -> None:
    found = size(count, MEASURED)
    assert found.words == count * MEASURED.text
    assert found.postgres == found.words * MEASURED.postgres
    assert found.disk * DISK_SHARE == pytest.approx(found.postgres)
    assert found.postgres / found.partitions <= PARTITION_BYTES
    assert found.partitions == 1 or found.postgres / (found.partitions // 2) > PARTITION_BYTES


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 B"), (999, "999 B"), (1_000, "1 KB"), (7.66e12, "7.66 TB"), (5e15, "5,000 TB")]
)
def test_bytes_have_three_digits(count: float, told: str) -> None:
    assert in_bytes(count) == told
