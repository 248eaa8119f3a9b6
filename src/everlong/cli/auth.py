"""``everlong auth``: keys of providers in the system's keyring.

A key is asked for at a prompt that does not show it, or read from standard input; it is never an argument, because
arguments can be seen by everybody on the machine. Printed are names and places, never keys.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from everlong import config
from everlong.providers.keys import key_source, remove_key, store_key
from everlong.providers.names import ENDPOINTS, endpoint_for

if TYPE_CHECKING:
    from everlong.providers.names import Endpoint

__all__ = ["auth_group"]


@click.group("auth")
def auth_group() -> None:
    """Store the keys of model providers in the system's keyring."""


@auth_group.command("set")
@click.argument("provider")
def set_(provider: str) -> None:
    """Store the key of PROVIDER; it is asked for, or read from standard input."""
    endpoint = _endpoint(provider)
    key = _asked(provider).strip()
    if not key:
        raise click.UsageError("the key is empty; nothing was stored")
    store_key(provider, key)
    click.echo(f"everlong: stored a key for {provider} in the system's keyring", err=True)
    source = key_source(endpoint)
    if source not in {None, "keyring"}:
        click.echo(f"everlong: note: {source} is set, and is used before the keyring", err=True)


def _asked(provider: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(f"Key for {provider}", hide_input=True, err=True))
    return sys.stdin.readline()


@auth_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """Print every known provider, and where its key comes from."""
    own = config.load_settings().settings.providers
    endpoints = [endpoint_for(name, own) for name in sorted({*ENDPOINTS, *own})]
    rows = [(endpoint, key_source(endpoint)) for endpoint in endpoints]
    if as_json:
        listed = {
            endpoint.name: {"key": source, "needs_key": endpoint.needs_key, "variables": list(endpoint.key_variables)}
            for endpoint, source in rows
        }
        click.echo(json.dumps(listed, indent=2))
        return
    for endpoint, source in rows:
        click.echo(f"{endpoint.name:<12}{source or _missing(endpoint)}")


def _missing(endpoint: Endpoint) -> str:
    return f"none (set {endpoint.key_variables[0]})" if endpoint.needs_key else "not needed"


@auth_group.command("remove")
@click.argument("provider")
def remove(provider: str) -> None:
    """Take the key of PROVIDER out of the keyring."""
    _endpoint(provider)
    if not remove_key(provider):
        raise click.ClickException(f"there is no key for {provider} in the keyring")
    click.echo(f"everlong: removed the key for {provider} from the system's keyring", err=True)


def _endpoint(provider: str) -> Endpoint:
    return endpoint_for(provider, config.load_settings().settings.providers)
