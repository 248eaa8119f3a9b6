"""Colours for dark and light terminals, by the names that the chat prints with.

The terminal's own sixteen colours are used, so that a person's palette holds. On a light background yellow and cyan
can hardly be read: there other colours stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["DARK", "ChatTheme", "choose_theme"]


class ChatTheme(NamedTuple):
    """The colours of a chat."""

    code: str
    """The colours of code, by the name that `rich` has for them."""
    styles: Mapping[str, str]
    """Styles that stand in for others of the same name."""


DARK = ChatTheme("ansi_dark", {"markdown.code": "bold cyan"})
LIGHT = ChatTheme(
    "ansi_light",
    {
        "yellow": "magenta",
        "bold yellow": "bold magenta",
        "cyan": "blue",
        "markdown.code": "bold blue",
        "markdown.list": "blue",
        "markdown.item.number": "blue",
        "markdown.link": "blue",
        "markdown.table.border": "blue",
        "markdown.table.header": "not bold blue",
        "markdown.kbd": "bold",
    },
)
_LIGHT_GROUNDS = frozenset({"7", "15"})
"""White and bright white among the sixteen colours."""


def choose_theme(env: Mapping[str, str]) -> ChatTheme:
    """Return the theme for the background that ``COLORFGBG`` names, which many terminals set."""
    ground = env.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground in _LIGHT_GROUNDS else DARK
