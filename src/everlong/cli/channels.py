"""``everlong channels``: runs the agent in Telegram and Discord, and looks after who talks to it."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from everlong import config
from everlong.cli.chosen_store import open_chosen_store, store_option
from everlong.cli.main import HintingGroup
from everlong.cli.output import json_option, print_values, say
from everlong.cli.trust import tell_notices
from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.store import Store

_NAMES = click.Choice(["telegram", "discord"])


@click.group("channels", cls=HintingGroup)
def channels_group() -> None:
    """Talk to the agent in Telegram and Discord."""


@channels_group.command("run")
@click.option("--until-eof", is_flag=True, help="Stop when standard input ends, for programs that start this one.")
@store_option
def run_command(until_eof: bool) -> None:
    """Run every channel that is enabled, until Ctrl-C or SIGTERM.

    Messages under way when it stops are answered after the next start.
    """
    from everlong.channels import find_token, make_platform  # noqa: PLC0415 - keeps `--help` quick
    from everlong.channels.service import ChannelService  # noqa: PLC0415 - as above

    loaded = config.load_settings()
    tell_notices(loaded)
    settings = loaded.settings
    _log_to_stderr()
    with open_chosen_store(new=True) as store:
        names = _enabled_names(settings)
        platforms = {name: make_platform(name, find_token(name), settings.channels) for name in names}
        _tell_empty_lists(store, settings, list(platforms))
        service = ChannelService(store, settings, platforms)

        def is_up() -> None:
            say(f"{' and '.join(platforms)}: ready")

        asyncio.run(_run_until_stopped(lambda: service.run(is_up), until_eof=until_eof))


@channels_group.command("list")
@json_option
@store_option
def list_command(as_json: bool) -> None:
    """List the channels, who may talk to them, and the chats with their conversations."""
    from everlong.channels import has_token  # noqa: PLC0415 - as above
    from everlong.channels.access import Access  # noqa: PLC0415 - keeps `--help` quick
    from everlong.channels.places import ChatPlaces  # noqa: PLC0415 - as above

    settings = config.load_settings().settings
    listed: dict[str, Any] = {}
    with open_chosen_store(new=True) as store:
        for name in ("telegram", "discord"):
            section = _section(settings, name)
            listed[name] = {
                "enabled": section.enabled,
                "token": has_token(name),
                "users": section.users,
                "chats": section.chats,
                "guilds": getattr(section, "guilds", []),
                "paired": [one._asdict() for one in Access(store, name, section).guests()],
                "places": [
                    {
                        "chat": one.place.chat,
                        "topic": one.place.topic,
                        "conversation": one.conversation,
                        "active": one.active or None,
                    }
                    for one in ChatPlaces(store).all(name)
                ],
            }
    if as_json:
        print_values(listed)
        return
    for name, one in listed.items():
        state = "enabled" if one["enabled"] else "not enabled"
        click.echo(f"{name}: {state}, {'with' if one['token'] else 'without'} a token")
        for kind in ("users", "chats", "guilds"):
            if one[kind]:
                click.echo(f"  {kind}: {', '.join(one[kind])}")
        for guest in one["paired"]:
            click.echo(f"  paired: {guest['id']} {guest['name']}")
        for place in one["places"]:
            when = f"{datetime.fromtimestamp(place['active']).astimezone():%Y-%m-%d %H:%M}" if place["active"] else "–"
            topic = f" topic {place['topic']}" if place["topic"] else ""
            click.echo(f"  chat {place['chat']}{topic}: {place['conversation'] or 'no conversation'}, {when}")


@channels_group.command("pair")
@click.argument("platform", type=_NAMES)
@click.option("--remove", metavar="ID", help="Remove a person who was let in.")
@store_option
def pair_command(platform: str, remove: str | None) -> None:
    """Show a code; whoever sends it to the bot in a private chat within ten minutes is let in."""
    from everlong.channels import TOKEN_VARIABLES, has_token  # noqa: PLC0415 - as above
    from everlong.channels.access import Access  # noqa: PLC0415 - keeps `--help` quick

    section = _section(config.load_settings().settings, platform)
    with open_chosen_store(new=True) as store:
        access = Access(store, platform, section)
        if remove is not None:
            if not access.remove(remove):
                raise click.ClickException(f"{remove} was not let in; everlong channels list shows who was")
            say(f"{remove} may no longer talk to the bot")
            return
        if not has_token(platform):
            raise click.ClickException(
                f"there is no token for {platform}, so no bot could read a code; set {TOKEN_VARIABLES[platform]}"
            )
        code = access.make_code()
    click.echo(code)
    say(f"send this code to your bot in {platform}, in a private chat; it counts for ten minutes and for one person")


# -- helpers -----------------------------------------------------------------------------------------------------------


def _section(settings: Settings, name: str) -> Any:
    from everlong.channels import channel_settings  # noqa: PLC0415 - keeps `--help` quick

    return channel_settings(name, settings.channels)


def _enabled_names(settings: Settings) -> list[str]:
    names = [name for name in ("telegram", "discord") if _section(settings, name).enabled]
    if not names:
        raise ConfigError(
            "no channel is enabled; switch one on with: everlong config set channels.telegram.enabled true",
            key="channels",
        )
    return names


def _tell_empty_lists(store: Store, settings: Settings, names: list[str]) -> None:
    from everlong.channels.access import Access  # noqa: PLC0415 - keeps `--help` quick

    for name in names:
        section = _section(settings, name)
        listed = [*section.users, *section.chats, *getattr(section, "guilds", [])]
        if not listed and not Access(store, name, section).guests():
            say(f"nobody may talk to the bot in {name} yet; let yourself in with: everlong channels pair {name}")


def _log_to_stderr() -> None:
    """Log what channels say; other libraries stay quiet, because their lines may hold a token."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("everlong.channels")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


async def _run_until_stopped(run: Callable[[], Any], *, until_eof: bool) -> None:
    """Run a service until a signal, or the end of standard input, stops it."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run())
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C raises in `asyncio.run`
            loop.add_signal_handler(number, task.cancel)
    if until_eof:

        def watch() -> None:
            sys.stdin.buffer.read()
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)

        threading.Thread(target=watch, name="everlong-stdin", daemon=True).start()
    with suppress(asyncio.CancelledError):
        await task
