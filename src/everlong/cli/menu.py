"""A menu at the terminal: a person chooses one of several lines with the arrow keys."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from everlong.agent.text import visible
from everlong.cli.screen import unguarded

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
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
    from prompt_toolkit.application import Application  # noqa: PLC0415 - only the menu draws
    from prompt_toolkit.data_structures import Point  # noqa: PLC0415 - as above
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - as above
    from prompt_toolkit.layout import FormattedTextControl, Layout, Window  # noqa: PLC0415 - as above

    at = [place]
    keys = KeyBindings()

    def draw() -> StyleAndTextTuples:
        text: StyleAndTextTuples = [("bold", f"{title}\n")]
        for number, line in enumerate(lines):
            is_here = number == at[0]
            text.append(("reverse" if is_here else "", f" {'›' if is_here else ' '} {visible(line)}\n"))
        return [*text, ("ansibrightblack", _KEYS)]

    def move(by: int) -> None:
        at[0] = (at[0] + by) % len(lines)

    @keys.add("up")
    @keys.add("k")
    def _(event: KeyPressEvent) -> None:  # noqa: ARG001 - prompt_toolkit passes it
        move(-1)

    @keys.add("down")
    @keys.add("j")
    def _(event: KeyPressEvent) -> None:  # noqa: ARG001 - as above
        move(1)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=at[0])

    @keys.add("escape", eager=True)
    @keys.add("q")
    @keys.add("c-c")
    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    # The window scrolls to the cursor, which is hidden.
    here = FormattedTextControl(draw, show_cursor=False, get_cursor_position=lambda: Point(0, at[0] + 1))
    body = Window(here, wrap_lines=True, always_hide_cursor=True)
    application: Application[int | None] = Application(Layout(body), key_bindings=keys, erase_when_done=True)
    with unguarded():  # it draws with escapes
        return application.run()
