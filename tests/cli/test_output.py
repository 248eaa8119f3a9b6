"""Notices and signs of life that commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlong.cli.output import working
from tests.waiting import until

if TYPE_CHECKING:
    import pytest


def test_long_work_without_a_terminal_says_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []

    def has_told() -> bool:
        told.append(capsys.readouterr().err)
        return "everlong: counting …" in "".join(told)

    with working("counting"):
        until(has_told)
