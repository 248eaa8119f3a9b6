"""The menu of ``everlong plugins`` on a terminal: Provider Plugins → Context Engine, chosen with the arrow keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from everlong.agent.text import visible
from everlong.cli.plugins_common import Listed, opened, row, use_engine
from everlong.cli.screen import unguarded

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyPressEvent

__all__ = ["choose"]

_KEYS = "↑ ↓ move · Enter chooses · Esc leaves"


def choose() -> None:
    """Let a person go through the menu; what they choose is written to their config.yaml."""
    while True:
        plugins = opened()
        engines = [one for one in Listed.of(plugins) if one.found.kind == "engine" or one.found.manifest.provides]
        engines += [one for one in Listed.of(plugins) if one.found.kind == "general" and one not in engines]
        active = next((place for place, one in enumerate(engines) if one.is_active and one.found.kind == "engine"), 0)
        now = plugins.settings.context.engine
        if pick("Provider Plugins", [f"Context Engine   {now}"], 0) is None:
            return
        names = max(len(one.found.name) for one in engines)
        versions = max(len(one.found.manifest.version) for one in engines)
        lines = [_line(one, names, versions) for one in engines]
        place = pick("Provider Plugins → Context Engine", lines, active)
        if place is None:
            continue
        found = engines[place].found
        for line in use_engine(plugins, found, found.name):
            click.echo(line, err=True)
        return


def _line(one: Listed, names: int, versions: int) -> str:
    mark = "●" if one.is_active else "○"
    problem = f"  ! {one.problem}" if one.problem else ""
    kind = "  (general plugin)" if one.found.kind == "general" else ""
    return f"{mark} {row(one, names, versions)}{kind}{problem}"


def pick(title: str, lines: Sequence[str], place: int) -> int | None:
    """Let a person choose one of several lines; None where they leave."""
    at = [place]
    keys = KeyBindings()

    def drawn() -> StyleAndTextTuples:
        text: StyleAndTextTuples = [("bold", f"{title}\n")]
        for number, line in enumerate(lines):
            is_here = number == at[0]
            text.append(("reverse" if is_here else "", f" {'›' if is_here else ' '} {visible(line)}\n"))
        return [*text, ("ansibrightblack", _KEYS)]

    def move(by: int) -> None:
        at[0] = (at[0] + by) % len(lines)

    @keys.add("up")
    @keys.add("k")
    def _(event: KeyPressEvent) -> None:  # noqa: ARG001 - its place is what counts
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

    # The window scrolls to where the cursor is, although nobody sees it.
    here = FormattedTextControl(drawn, show_cursor=False, get_cursor_position=lambda: Point(0, at[0] + 1))
    body = Window(here, wrap_lines=True, always_hide_cursor=True)
    application: Application[int | None] = Application(Layout(body), key_bindings=keys, erase_when_done=True)
    with unguarded():  # it draws with escapes
        return application.run()
