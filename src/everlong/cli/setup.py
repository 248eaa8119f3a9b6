"""``everlong setup CLIENT``: points a client at the gateway in the client's own configuration file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from everlong.cli.clients.client import GatewayAddress
from everlong.cli.clients.formats import value_at
from everlong.cli.clients.known import CLIENTS
from everlong.cli.output import say
from everlong.gateway.auth import find_gateway
from everlong.providers.catalogue import Catalogue

if TYPE_CHECKING:
    from everlong.cli.clients.client import Client, ConfigurationFile, Setting
    from everlong.config import Settings


@click.command("setup")
@click.argument("client", type=click.Choice(tuple(CLIENTS)), required=False)
@click.option("--write", is_flag=True, help="Change the client's file, and keep a backup beside it.")
@click.option("--undo", is_flag=True, help="Restore the client's file as it was.")
@click.option("--url", metavar="URL", help="The gateway's address.  [default: that of gateway.host and gateway.port]")
def setup_command(client: str | None, write: bool, undo: bool, url: str | None) -> None:
    """Point CLIENT at the gateway: show the settings it needs, or write them. Without CLIENT: choose Everlong's model.

    Every other value in its file stays as it is. Writing twice changes nothing.
    """
    if client is None:
        _choose_model()
    else:
        _set_up_client(client, write=write, undo=undo, url=url)


def _set_up_client(client: str, *, write: bool, undo: bool, url: str | None) -> None:
    """Show or change the settings of a client."""
    from everlong.cli.serve import gateway_settings  # noqa: PLC0415 - as above

    chosen = CLIENTS[client]
    if write and undo:
        raise click.UsageError("use --write or --undo, not both")
    settings = gateway_settings({})
    gateway = client_gateway(settings, _address(settings, url))
    file = chosen.file(os.environ, Path.home())
    if undo:
        # Every setting that may have been written, whatever gateway it was for.
        say(file.undo(chosen.settings(GatewayAddress(gateway.address, is_anthropic=True), file.original())))
        return
    if write and url is None and find_gateway(gateway.address) is None:
        raise click.ClickException(
            f"no gateway listens at {gateway.address}, so {chosen.title} could not work; nothing was changed. "
            "Start `everlong serve` in another terminal and try again, or name the gateway's address with --url"
        )
    values = file.values()
    wanted = chosen.settings(gateway, values)
    if _show_or_write(file, wanted, f"everlong setup {client}", write=write):
        _say_replaced(wanted, values, gateway)
    _say_next_steps(chosen, gateway)


def _show_or_write(file: ConfigurationFile, settings: list[Setting], command: str, *, write: bool) -> bool:
    """Show or write the settings of a file; return False if it has them already."""
    text = file.preview(settings)
    if not text:
        say(f"{file.path} has these settings already; nothing was changed")
    elif write:
        file.write(settings)
        kept = f"; the file as it was is {file.backup.name} beside it" if file.backup.stat().st_size else ""
        say(f"changed {file.path}{kept}; `{command} --undo` puts it back")
    else:
        say(f"{file.path} needs these settings:")
        click.echo(text)
        say(f"nothing was written; `{command} --write` does it")
    return bool(text)


def _choose_model() -> None:
    """Run the dialogue of the first run."""
    from everlong.cli.first_run import choose_model  # noqa: PLC0415 - keeps `--help` quick

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("there is no terminal to choose on; say: everlong config set agent.model PROVIDER:MODEL")
    if not choose_model():
        raise click.exceptions.Exit(1)


def client_gateway(settings: Settings, address: str) -> GatewayAddress:
    """Return what a client must know of the gateway at an address; ask it if it is running."""
    from everlong.gateway.routing import Routes  # noqa: PLC0415 - as above

    running = find_gateway(address)
    if running is not None:
        is_anthropic = "anthropic" in running.official
    else:
        is_anthropic = address == own_address(settings) and "anthropic" in Routes(settings).official
    return GatewayAddress(address, is_anthropic, Catalogue(settings.models, settings.providers).window)


def own_address(settings: Settings) -> str:
    """Return the address of a gateway with these settings, as seen from this machine."""
    own = settings.gateway
    host = "127.0.0.1" if own.host in {"0.0.0.0", "::"} else own.host  # noqa: S104 - where it listens, not we
    return f"http://{f'[{host}]' if ':' in host else host}:{own.port}"


def _address(settings: Settings, url: str | None) -> str:
    if url is None:
        if not settings.gateway.port:
            raise click.UsageError("gateway.port is 0, any free port; name the gateway's address with --url")
        return own_address(settings)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise click.UsageError(
            f"--url is {url!r}, but must be an http:// or https:// address, such as http://host:8642"
        )
    return url.rstrip("/").removesuffix("/v1")


def _say_replaced(settings: list[Setting], values: object, gateway: GatewayAddress) -> None:
    """Name the user's own addresses that are replaced: the gateway must send requests there."""
    old = dict.fromkeys(
        url
        for setting in settings
        if setting.api is not None
        and isinstance(url := value_at(values, setting.path), str)
        and url not in {setting.value, gateway.address, gateway.v1}
    )
    for url in old:
        say(f"requests have gone to {url} so far: start the gateway with --upstream {url}")


def _say_next_steps(client: Client, gateway: GatewayAddress) -> None:
    """Print what is left to do."""
    for note in client.notes(gateway, os.environ, Path.home()):
        say(note)
    running = find_gateway(gateway.address)
    if running is None:
        say(f"no gateway listens at {gateway.address} yet: start it with `everlong serve`")
    elif running.needs_key:
        say("this gateway needs a key: give the client one of its keys instead of the API's")
