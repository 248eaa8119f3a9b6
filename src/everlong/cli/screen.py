"""A guard between the commands and the terminal: control characters in data are spelled out, never obeyed.

Titles, messages and errors may contain escapes, bidirectional or invisible characters. While a command runs, stdout and
stderr spell these out if they are terminals. Our own colours go through `styled` and `console`. Pipes get the data as
it is.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent
    from rich.console import Console

_OURS = f"\ufdd0{secrets.token_hex(8)}\ufdd1"
"""A random stand-in for the escape character in our own colours, which no data can guess."""
STYLE = re.compile(rf"(?:\x1b|{_OURS})\[[0-9;]*m")
"""Matches the colour codes of `styled`, which take no room on a screen."""


class _GuardedStream:
    """A stream to a terminal that spells out control characters."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text with its control characters spelled out."""
        if not isinstance(text, str):
            raise TypeError(f"only str can be written to a terminal, not {type(text).__name__}")
        self.terminal.write(_spell_out(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def spelling_out() -> AbstractContextManager[None]:
    """Guard stdout and stderr in a ``with`` block, if they are terminals."""
    return _change_streams(_guard)


def unguarded() -> AbstractContextManager[None]:
    """Give a ``with`` block the terminal itself; it must draw only what is safe."""
    return _change_streams(_unwrap)


@contextmanager
def _change_streams(change: Callable[[TextIO], TextIO]) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(change, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def is_guarded(stream: object) -> bool:
    """Return whether a stream spells out control characters."""
    return isinstance(stream, _GuardedStream)


def styled(text: str, **style: Any) -> str:
    """Return a text in a colour, as `click.style` does; without one if ``NO_COLOR`` is set."""
    result = text if os.environ.get("NO_COLOR") else click.style(text, **style)
    if not is_guarded(sys.stdout):
        return result
    before, found, after = result.partition(text) if text else (result, "", "")
    return before.replace("\x1b", _OURS) + found + after.replace("\x1b", _OURS)


def console(*, stderr: bool = False, **options: Any) -> Console:
    """Return a rich console that spells out control characters on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - every command imports this module
    from rich.segment import Segment  # noqa: PLC0415 - as above

    from everlong.agent.text import visible  # noqa: PLC0415 - as above

    class GuardedConsole(Console):
        """A console that spells out control characters."""

        def render(self, renderable: Any, options: Any = None) -> Any:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible(text), style, control)

    stream = _unwrap(sys.stderr if stderr else sys.stdout)
    is_terminal = is_guarded(sys.stderr if stderr else sys.stdout)
    return (GuardedConsole if is_terminal or stream.isatty() else Console)(
        file=stream if is_terminal else None, stderr=stderr, **options
    )


def show_in_pager(texts: Iterable[str]) -> None:
    """Show texts one after the other, in the pager if stdout is a terminal."""
    click.echo_via_pager(map(_spell_out, texts) if is_guarded(sys.stdout) else texts)


def _spell_out(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    from everlong.agent.text import visible  # noqa: PLC0415 - every command imports this module

    return "\x1b".join(map(visible, text.split(_OURS)))


def _guard(stream: TextIO) -> TextIO:
    if is_guarded(stream) or not _is_terminal(stream):
        return stream
    return cast("TextIO", _GuardedStream(stream))


def _unwrap(stream: TextIO) -> TextIO:
    return stream.terminal if isinstance(stream, _GuardedStream) else stream


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


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

    from everlong.agent.text import visible  # noqa: PLC0415 - every command imports this module

    keys = KeyBindings()

    @keys.add("escape", eager=True)
    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    menu = ChoiceInput(
        message=title,
        options=[(number, _clip(visible(line))) for number, line in enumerate(lines)],
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


def _clip(line: str) -> str:
    """Return a line of a menu that fits the terminal beside its mark, cut behind a word."""
    most = shutil.get_terminal_size().columns - 4
    return line if len(line) <= most else line[: most - 2].rpartition(" ")[0].rstrip() + " …"
