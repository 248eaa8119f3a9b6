"""Colours that can be read on dark and on light terminals."""

from __future__ import annotations

import pytest

from everlong.cli.chat.show import DARK, LIGHT, choose_theme


@pytest.mark.parametrize(
    ("ground", "is_light"), [(None, False), ("15;0", False), ("0;15", True), ("0;default;7", True)]
)
def test_a_theme_is_chosen_by_the_background(ground: str | None, is_light: bool) -> None:
    env = {} if ground is None else {"COLORFGBG": ground}
    assert choose_theme(env) == (LIGHT if is_light else DARK)
