"""How upstreams are reached: through which proxy, and whose certificates are trusted.

Both are read once, from the environment as other programs read it and from ``gateway.ca_bundle``. Sends nothing.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from yarl import URL

from everlong.errors import ConfigError
from everlong.gateway.auth import is_loopback

__all__ = ["Network"]

_log = logging.getLogger("everlong.gateway")

_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name certificates to OpenSSL, Python, curl and Node."""


class _Direct(NamedTuple):
    """One entry of ``NO_PROXY``: a host with all below it or a network, maybe on one port only."""

    host: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: int | None

    def holds_for(self, host: str, port: int | None) -> bool:
        """Return whether a host is reached directly because of this entry."""
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            try:
                return ipaddress.ip_address(host) in self.network
            except ValueError:
                return False
        return self.host in {"*", host} or host.endswith(f".{self.host}")


class Network:
    """The way to upstreams.

    Args:
        ca_bundle: a file, or a folder of ``.pem`` and ``.crt`` files, that is trusted beside the system's certificates.
        env: environment variables, instead of the process's own.

    Raises:
        ConfigError: a proxy is of a kind that is not supported, or the bundle cannot be read.
    """

    def __init__(self, ca_bundle: str | None = None, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self._proxies = {
            scheme: found
            for scheme in ("http", "https")
            if (found := _proxy(f"{scheme.upper()}_PROXY", _either(env, f"{scheme}_proxy"))) is not None
        }
        self._direct = [_direct(entry) for entry in _either(env, "no_proxy").replace(",", " ").split()]
        self.ssl = _context(ca_bundle, env)
        """What connections are verified with; True for the HTTP client's usual way."""

    def proxy_for(self, url: URL) -> URL | None:
        """Return the proxy for an address; None where it is reached directly, as this machine always is."""
        proxy, host = self._proxies.get(url.scheme), (url.host or "").lower()
        if proxy is None or is_loopback(host) or any(entry.holds_for(host, url.port) for entry in self._direct):
            return None
        return proxy

    def shown_proxy(self, url: str) -> str:
        """Return the proxy for an address without anything secret; empty where there is none."""
        proxy = self.proxy_for(URL(url))
        return "" if proxy is None else _shown(proxy)


def _either(env: Mapping[str, str], name: str) -> str:
    """Return a variable in small letters, else in capitals, as curl does."""
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _proxy(name: str, value: str) -> URL | None:
    if not value:
        return None
    given = value if "://" in value else f"http://{value}"
    try:
        found = URL(given)
        is_proxy = found.scheme in {"http", "https"} and bool(found.host)
    except ValueError:
        found, is_proxy = URL(), False
    if not is_proxy:
        shown = f"a {found.scheme}:// address" if found.scheme and found.host else "no address"
        raise ConfigError(f"{name} is {shown}, but a proxy must be http://HOST:PORT or https://HOST:PORT", key=name)
    return found


def _shown(proxy: URL) -> str:
    return str(proxy.with_user(None).origin())


def _direct(entry: str) -> _Direct:
    host, port = entry.lower(), None
    try:
        return _Direct("", ipaddress.ip_network(host.strip("[]"), strict=False), None)
    except ValueError:
        pass
    parts = urlsplit(f"//{host}")
    try:
        port = parts.port
    except ValueError:  # no number behind the colon
        port = None
    name = (parts.hostname or host).removeprefix("*.").lstrip(".")
    try:
        return _Direct("", ipaddress.ip_network(name), port)
    except ValueError:
        return _Direct(name, None, port)


def _context(ca_bundle: str | None, env: Mapping[str, str]) -> ssl.SSLContext | bool:
    named = {name: env[name] for name in _BUNDLES if env.get(name)}
    if ca_bundle is None and not named and not env.get("SSL_CERT_DIR"):
        return True
    context = ssl.create_default_context()  # which reads SSL_CERT_FILE and SSL_CERT_DIR in the place of the system's
    if ca_bundle is not None:
        try:
            _trust(context, ca_bundle)
        except OSError as error:
            raise ConfigError(
                f"gateway.ca_bundle is {ca_bundle}, which cannot be read as certificates: {_why(error)}; name a file "
                "in the PEM format or a folder of such files",
                key="gateway.ca_bundle",
            ) from error
    for path, name in {path: name for name, path in named.items()}.items():  # they often name the same file
        try:
            _trust(context, path)
        except OSError as error:  # maybe meant for another program: whoever needs it is told where a connection fails
            _log.warning("%s is %s, which cannot be read as certificates: %s", name, path, _why(error))
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    given = Path(path).expanduser()
    for found in _files_in(given) if given.is_dir() else [given]:
        context.load_verify_locations(cafile=found)


def _files_in(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix in {".pem", ".crt"})
    if not found:
        raise OSError(errno.ENOENT, "it has no .pem or .crt file")
    return found


def _why(error: OSError) -> str:
    return (error.strerror or str(error)) if not isinstance(error, ssl.SSLError) else "no certificate in it"
