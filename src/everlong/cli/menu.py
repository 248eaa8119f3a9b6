"""A menu at the terminal: a person chooses one of several lines with the arrow keys."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from everlong.agent.text import visible
from everlong.cli.screen import unguarded

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

__all__ = ["pick_line"]

_KEYS = "↑ ↓ move · Enter chooses · Esc leaves"


def pick_line(title: str, lines: Sequence[str], place: int = 0, *, plain: bool = False) -> int | None:
    """Let a person choose one of several lines; return None if they leave.

    Args:
        title: What the choice is about.
        lines: The choices.
        place: The line that is chosen unless they move.
        plain: True to ask for a number instead of drawing.
    """
    return _pick_number(title, lines, place) if plain else _pick_by_arrows(title, lines, place)


def _pick_number(title: str, lines: Sequence[str], place: int) -> int | None:
    click.echo(title, err=True)
    for number, line in enumerate(lines, 1):
        click.echo(f"{number}  {line}", err=True)
    while True:
        click.echo(f"a number from 1 to {len(lines)} [{place + 1}], q leaves: ", nl=False, err=True)
        answer = sys.stdin.readline()
        said = answer.strip() or str(place + 1)
        if not answer or said.lower() in {"q", "quit"}:
            return None
        if said.isdigit() and 1 <= int(said) <= len(lines):
            return int(said) - 1


def _pick_by_arrows(title: str, lines: Sequence[str], place: int) -> int | None:
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - only the menu draws
    from prompt_toolkit.shortcuts.choice_input import ChoiceInput  # noqa: PLC0415 - as above

    keys = KeyBindings()

    @keys.add("escape", eager=True)
    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    menu = ChoiceInput(
        message=title,
        options=[(number, visible(line)) for number, line in enumerate(lines)],
        default=place,
        symbol="›",
        show_numbers=False,
        bottom_toolbar=_KEYS,
        key_bindings=keys,
    )
    with unguarded():  # it draws with escapes
        try:
            return menu.prompt()
        except KeyboardInterrupt:
            return None
