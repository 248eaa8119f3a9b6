"""``everlong auth``: the keys of model providers, and the tokens of bots, in the system's keyring.

A key is typed at a hidden prompt or read from standard input. It is never an argument, because everybody on the machine
can see those. The commands print names and places, never keys.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from everlong import config
from everlong.channels import PLATFORMS, token_endpoint
from everlong.cli.output import json_option, print_values, say
from everlong.providers.endpoints import (
    ENDPOINTS,
    check_keyring,
    endpoint_for,
    key_source,
    remove_key,
    store_key,
    variable_of,
)

if TYPE_CHECKING:
    from everlong.providers.endpoints import Endpoint


@click.group("auth")
def auth_group() -> None:
    """Store the keys of model providers, and the tokens of bots, in the system's keyring."""


@auth_group.command("set")
@click.argument("provider")
def set_(provider: str) -> None:
    """Store the key of PROVIDER, typed at a prompt or read from standard input.

    For telegram and discord it is the token of your bot.
    """
    endpoint = _find_endpoint(provider)
    check_keyring(endpoint)
    is_asked = sys.stdin.isatty()
    key = str(
        click.prompt(f"Key for {provider}", hide_input=True, err=True) if is_asked else sys.stdin.readline()
    ).strip()
    if not key:
        raise click.UsageError("the key is empty; nothing was stored")
    store_key(endpoint.name, key, variable_of(endpoint))
    say(f"stored a key for {provider} in the system's keyring")
    source = key_source(endpoint)
    if source not in {None, "keyring"}:
        say(f"note: {source} is set, and is used before the keyring")


@auth_group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the known providers, and where their keys come from."""
    own = config.load_settings().settings.providers
    endpoints = [endpoint_for(name, own) for name in sorted({*ENDPOINTS, *own})]
    rows = [(endpoint, key_source(endpoint)) for endpoint in endpoints]
    if as_json:
        listed = {
            endpoint.name: {"key": source, "needs_key": endpoint.needs_key, "variables": list(endpoint.key_variables)}
            for endpoint, source in rows
        }
        print_values(listed)
        return
    for endpoint, source in rows:
        missing = f"none (set {endpoint.key_variables[0]})" if endpoint.needs_key else "not needed"
        click.echo(f"{endpoint.name:<12}{source or missing}")


@auth_group.command("remove")
@click.argument("provider")
def remove(provider: str) -> None:
    """Remove the key of PROVIDER from the keyring."""
    if not remove_key(_find_endpoint(provider).name):
        raise click.ClickException(f"there is no key for {provider} in the keyring")
    say(f"removed the key for {provider} from the system's keyring")


def _find_endpoint(provider: str) -> Endpoint:
    if provider in PLATFORMS:
        return token_endpoint(provider)
    return endpoint_for(provider, config.load_settings().settings.providers)
