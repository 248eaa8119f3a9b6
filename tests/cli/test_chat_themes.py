"""Colours that can be read on dark and on light terminals."""

from __future__ import annotations

import pytest

from everlong.cli.chat.themes import DARK, LIGHT, choose_theme

YELLOW, CYAN = "\x1b[33m", "\x1b[36m"


@pytest.mark.parametrize(
    ("wanted", "ground", "is_light"),
    [
        ("auto", None, False),
        ("auto", "15;0", False),
        ("auto", "0;15", True),
        ("auto", "0;default;7", True),
        ("dark", "0;15", False),
        ("light", None, True),
    ],
)
def test_a_theme_is_chosen_by_the_setting_or_the_background(wanted: str, ground: str | None, is_light: bool) -> None:
    env = {} if ground is None else {"COLORFGBG": ground}
    assert choose_theme(wanted, env) == (LIGHT if is_light else DARK)  # type: ignore[arg-type]
