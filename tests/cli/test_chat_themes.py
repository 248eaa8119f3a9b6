"""Colours that can be read on dark and on light terminals."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from everlong.cli.chat.show import Show
from everlong.cli.chat.state import ChatState
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


def shown(theme: str, **env: str) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", _environ=env)
    show = Show(console, ChatState())
    show.use_theme(choose_theme(theme, {}))  # type: ignore[arg-type]
    show.note("the answer broke off")
    show.line("held back", "yellow")
    show.line("@@ -1 +1 @@", "cyan")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_no_yellow_and_no_cyan_on_a_light_terminal() -> None:
    assert YELLOW in shown("dark")
    assert CYAN in shown("dark")
    light = shown("light")
    assert YELLOW not in light
    assert CYAN not in light
    assert "the answer broke off" in light


def test_no_colour_where_the_user_wants_none() -> None:
    assert "\x1b[3" not in shown("dark", NO_COLOR="1")


def test_a_notice_breaks_between_words() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=30)
    told = "the conversation is told in its own words after this"
    Show(console, ChatState()).note(told)
    assert isinstance(console.file, io.StringIO)
    words = {"!", *told.split()}
    lines = console.file.getvalue().replace("\x1b[33m", "").replace("\x1b[0m", "").splitlines()
    assert len(lines) > 1
    assert all(set(line.split()) <= words for line in lines)
