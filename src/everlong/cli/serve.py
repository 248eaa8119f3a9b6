"""``everlong serve``: the gateway, until it is told to stop."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from everlong import config
from everlong.cli.chosen_store import store_option, store_settings
from everlong.cli.trust import tell_notices
from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.store.database import Database

__all__ = ["check_installed", "gateway_settings", "opened_database", "serve_command"]


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="Where to listen; other than loopback needs a key.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port; 0 for any free one.  [default: 8642]")
@click.option("--upstream", metavar="URL", help="Where requests go.  [default: each API's own address]")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is logged on stderr.  [default: info]",
)
@click.option("--log-file", type=click.Path(dir_okay=False), help="Log to this file instead of stderr.")
@click.option(
    "--until-eof", is_flag=True, help="Stop when standard input ends, as for a program that started this one."
)
@store_option(hidden=False)
def serve_command(until_eof: bool, **given: Any) -> None:
    """Serve the gateway: point any client at it, and its conversations never end.

    It speaks the OpenAI and the Anthropic API. Clients keep their own keys, which are passed on. It stops at Ctrl-C,
    SIGTERM or a hang-up when the requests under way are done; a second signal stops it at once.
    """
    check_installed()
    overrides = {f"gateway.{name}": value for name, value in given.items() if value is not None}
    settings = gateway_settings(overrides)

    import asyncio  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.gateway.routing import Routes  # noqa: PLC0415 - as above
    from everlong.gateway.server import GatewayServer, serve, tune  # noqa: PLC0415 - as above
    from everlong.gateway.telemetry import open_log, open_tracing  # noqa: PLC0415 - as above

    own = settings.gateway
    routes = Routes(settings)
    tracing = open_tracing() if own.tracing else None
    log = open_log(own.log_file, own.log_level)
    try:
        with opened_database() as database:
            reload = partial(gateway_settings, overrides)
            server = GatewayServer(settings, routes, database, log=log, tracing=tracing, reload=reload)
            tune()
            code = asyncio.run(serve(server, own.drain_seconds, _say, until_eof=until_eof))
    finally:
        log.close()
        if tracing is not None:
            tracing.close()
    if code:
        raise click.exceptions.Exit(code)


def check_installed() -> None:
    """Say how the gateway is installed, where it is not."""
    if find_spec("aiohttp") is None or find_spec("brotli") is None:
        raise ConfigError(
            "the gateway needs the package aiohttp; install it with: pip install 'everlong[gateway]'", key="gateway"
        )


def gateway_settings(overrides: dict[str, Any]) -> Settings:
    """The settings; no folder's file says where requests go, because with them go the client's keys."""
    loaded = config.load_settings(overrides)
    tell_notices(loaded)
    return loaded.settings


def opened_database() -> Any:
    """The store's database, to be used in a ``with`` statement."""
    from everlong.store import open_store  # noqa: PLC0415 - as above

    database: Database = open_store(store_settings(), waits_for_disk=False).database
    return closing(database)


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal is gone, and requests under way are not
        click.echo(f"everlong: {text}", err=True)
