"""Slash commands of plugins: beside the chat's own, which they cannot replace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from everlong.cli.chat.commands import ChatError, Command, Desk, Registry

if TYPE_CHECKING:
    from everlong.plugins.registered import CommandOffer

__all__ = ["take_commands"]


def take_commands(registry: Registry, offers: Iterable[CommandOffer], warn: Callable[[str], None]) -> None:
    """Put the commands of plugins beside the chat's own, in place of those that plugins had before."""
    registry.replace_plugged([])
    taken = []
    for offer in offers:
        if offer.name in registry.commands:
            warn(f"plugin {offer.plugin!r} brings a command /{offer.name}, which the chat has already; it is left out")
        else:
            about = f"{offer.description or 'a command'} (plugin {offer.plugin})"
            taken.append(Command(offer.name, offer.takes, about, _runner(offer)))
    registry.replace_plugged(taken)


def _runner(offer: CommandOffer) -> Callable[[Desk, str], None]:
    def run(desk: Desk, words: str) -> None:
        from everlong.memory.contain import described  # noqa: PLC0415 - the prompt is there before this is loaded
        from everlong.plugins.hooks import awaited  # noqa: PLC0415 - as above

        try:
            answer = offer.handler(words)
            if inspect.isawaitable(answer):
                answer = awaited(answer)
        except (Exception, SystemExit) as error:
            raise ChatError(f"/{offer.name} of the plugin {offer.plugin!r} failed: {described(error)}") from error
        if answer is not None:
            desk.show.text(str(answer))

    return run
