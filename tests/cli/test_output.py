"""Notices and signs of life that commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlong.cli.output import counted, tracked, working
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


def test_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tracked([1, 2], "counting")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_one_thing_is_not_many() -> None:
    assert [counted(number, "message") for number in (0, 1, 2_000)] == ["0 messages", "1 message", "2,000 messages"]
