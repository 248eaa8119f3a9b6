"""Keys of providers: from the usual environment variables, else from the system's keyring.

Never from the command line or a file. No error and no log contains a key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from everlong.errors import AuthenticationFailed, ConfigError
from everlong.extras import package_command

if TYPE_CHECKING:
    from everlong.providers.endpoints import Endpoint

__all__ = ["check_keyring", "find_key", "key_source", "remove_key", "store_key", "variable_of"]

_SERVICE = "everlong"
NO_KEY = "no-key"
"""Sent to servers that need no key, because the clients insist on one."""


def find_key(endpoint: Endpoint, env: Mapping[str, str] | None = None) -> str:
    """Return the key for an endpoint; raise `AuthenticationFailed` if one is needed and there is none."""
    key = _from_environment(endpoint, env) or (_from_keyring(endpoint.name) if endpoint.keyring else None)
    if key:
        return key
    if not endpoint.needs_key:
        return NO_KEY
    variable = variable_of(endpoint)
    raise AuthenticationFailed(
        f"there is no key for {endpoint.name}; set {variable}, or store one with: everlong auth set {endpoint.name}",
        provider=endpoint.name,
    )


def key_source(endpoint: Endpoint, env: Mapping[str, str] | None = None) -> str | None:
    """Return the source of an endpoint's key: ``env NAME`` or ``keyring``; None without one."""
    values = os.environ if env is None else env
    for variable in endpoint.key_variables:
        if values.get(variable, "").strip():
            return f"env {variable}"
    return "keyring" if endpoint.keyring and _from_keyring(endpoint.name) else None


def store_key(provider: str, key: str, variable: str = "the provider's environment variable") -> None:
    """Put a key into the system's keyring; if that fails, the `ConfigError` names the variable to set instead."""
    _use_keyring(lambda keyring: keyring.set_password(_SERVICE, provider, key), variable)


def check_keyring(endpoint: Endpoint) -> None:
    """Raise a `ConfigError` if the system's keyring cannot be used, before a person types a key."""
    _use_keyring(lambda keyring: keyring.get_password(_SERVICE, endpoint.name), variable_of(endpoint))


def variable_of(endpoint: Endpoint) -> str:
    """Return the environment variable for an endpoint's key."""
    return endpoint.key_variables[0] if endpoint.key_variables else "its environment variable"


def _use_keyring(work: Callable[[Any], object], variable: str) -> None:
    keyring = _keyring()
    if keyring is None:
        raise ConfigError(
            f"the package keyring is missing; install it with: {package_command('keyring')}, or set {variable}",
            key="auth",
        )
    try:
        work(keyring)
    except Exception as error:
        raise ConfigError(
            f"the system's keyring cannot be used ({type(error).__name__}); set {variable} instead", key="auth"
        ) from error


def remove_key(provider: str) -> bool:
    """Remove a key from the system's keyring; return whether there was one."""
    if _from_keyring(provider) is None:
        return False
    _keyring().delete_password(_SERVICE, provider)
    return True


def _from_environment(endpoint: Endpoint, env: Mapping[str, str] | None) -> str | None:
    values = os.environ if env is None else env
    return next((found for name in endpoint.key_variables if (found := values.get(name, "").strip())), None)


def _from_keyring(provider: str) -> str | None:
    keyring = _keyring()
    if keyring is None:
        return None
    try:
        found = keyring.get_password(_SERVICE, provider)
    except keyring.errors.KeyringError:  # locked, or no keyring on this system: the same as none
        return None
    return found or None


def _keyring() -> Any:
    try:
        import keyring  # noqa: PLC0415 - an optional package, and slow to load
        import keyring.errors  # noqa: PLC0415 - as above
    except ImportError:
        return None
    return keyring
