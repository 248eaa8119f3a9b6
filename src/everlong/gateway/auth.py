"""Authentication: keys, tenants, limits on requests and on wrong keys, refusals, and the proof of who listens."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import os
import re
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from everlong.config.paths import data_home
from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config.settings import GatewaySettings, KeySettings

__all__ = [
    "LOCAL",
    "NOBODY",
    "QUESTION",
    "SERVICE",
    "Caller",
    "Guard",
    "Guesses",
    "KeyLimits",
    "Refused",
    "RunningGateway",
    "check_bind",
    "find_gateway",
    "is_gateway",
    "is_loopback",
    "prove",
    "secret",
]


class Refused(Exception):  # noqa: N818 - what becomes of a request
    """The refusal of a request, with the answer for its client."""

    def __init__(self, status: int, message: str, retry_after: float | None = None, *, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.close = close
        """True if the connection ends with the answer."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how it is made anew in another process."""
        return partial(Refused, close=self.close), (self.status, self.message, self.retry_after)


MOST_BODY_BYTES = 32_000_000
"""Bytes of the largest request, as Anthropic has it; seven million tokens of text fit."""


@dataclass(slots=True)
class _Used:
    """The usage of one tenant."""

    allowance: float
    """Requests that may come at once."""
    refilled: float
    under_way: int = 0


class KeyLimits:
    """The limits of keys: it counts the usage of callers and refuses requests beyond it."""

    def __init__(self, most_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_bytes = most_bytes
        self._clock = clock
        self._used: dict[str, _Used] = {}

    def enter(self, tenant: str, limits: KeySettings) -> None:
        """Let a request in; `Refused` if it is one too many. Each request that was let in has to leave."""
        used = self._used.setdefault(tenant, _Used(float(limits.requests_per_minute or 0), self._clock()))
        if limits.concurrent_requests is not None and used.under_way >= limits.concurrent_requests:
            raise Refused(429, f"this key may have {limits.concurrent_requests:,} requests at a time; wait for one", 1)
        if limits.requests_per_minute is not None:
            self._take(used, limits.requests_per_minute)
        used.under_way += 1

    def leave(self, tenant: str) -> None:
        """Note that a request is over."""
        self._used[tenant].under_way -= 1

    def _take(self, used: _Used, per_minute: int) -> None:
        now = self._clock()
        rate = per_minute / 60
        used.allowance = min(float(per_minute), used.allowance + (now - used.refilled) * rate)
        used.refilled = now
        if used.allowance < 1:
            raise Refused(429, f"this key may send {per_minute:,} requests a minute", (1 - used.allowance) / rate)
        used.allowance -= 1


LOCAL = "local"
"""The tenant of all requests if there are no keys."""
OWN_HEADER = "x-everlong-key"
_KEY_HEADERS = ("Authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers with keys for upstreams; one of the gateway's own may come in the first two."""
_SPELLED = {name.lower(): name for name in (OWN_HEADER, *_KEY_HEADERS)}
_MOST_KEYS = 2
"""Keys by which a request may be let in: one in each header of the APIs."""
_BETWEEN_WORDS = re.compile(r"""[\s,;=:"'&?/<>()]+""")
_MOST_WORDS = 1_000
"""Words of a header that are read; the longest that the server takes has not many more."""
_LEAST_CHARS = 16
_GUESSES = 20.0
"""Wrong keys that may come from an address at once."""
_GUESSES_PER_SECOND = 0.5
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    tenant: str
    limits: KeySettings | None = None
    spoken: frozenset[str] = frozenset()
    """The headers that held a key of the gateway; they are not sent upstream."""
    key: str = field(default="", repr=False)
    """The key by which it was let in; it is never logged, nor sent on in an address."""

    def has_key_in(self, text: str) -> bool:
        """Return whether the key stands in a text, also with some characters escaped."""
        return bool(self.key) and (self.key in text or self.key in unquote_plus(text))


NOBODY = Caller("")
"""The sender of a request that was not let in, or not yet."""
_ANYBODY = Caller(LOCAL)


class Guard:
    """The guard that lets clients in.

    Raises:
        ConfigError: a key is not given, given twice, too short, or that of another name.
    """

    def __init__(self, settings: GatewaySettings, env: Mapping[str, str] | None = None) -> None:
        values = os.environ if env is None else env
        named = (name.strip().lower() for name in (settings.hosts or "").split(","))
        self._hosts = {*filter(None, named), settings.host.lower()}
        self.is_open = not settings.keys
        """True if no key is needed; it stays so until the gateway is started anew."""
        self._keys = _keys_of(settings, values)

    def change(self, settings: GatewaySettings, env: Mapping[str, str] | None = None) -> None:
        """Let in only the keys that the settings name now.

        If keys were needed they stay needed: without any, nobody is let in until the gateway is started anew.

        Raises:
            ConfigError: as at the start; then nothing is changed.
        """
        self._keys = _keys_of(settings, os.environ if env is None else env)

    def check_host(self, host: str | None) -> None:
        """Refuse a request to a host name that is not this machine's, if no key is needed.

        A web page may have the name of its own host point here, and would be let in as if it came from here.
        """
        if not self.is_open or host is None:
            return
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name) and name not in self._hosts:
            raise Refused(
                403,
                f"the gateway is not known as {host[:100]!r}; call it 127.0.0.1 or localhost, or name the host in "
                "gateway.hosts",
                close=True,
            )

    def admit(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the sender of a request by its headers; None if it has no valid key."""
        if self.is_open:
            return None if _is_of_foreign_page(headers) else _ANYBODY
        given = _deciding(headers)
        if len(given) > _MOST_KEYS:
            return None
        fitting = [(text, *found) for text in given if (found := self._known(text)) is not None]
        if not fitting or (OWN_HEADER in headers and len(fitting) < len(given)):
            return None
        text, name, limits = fitting[0]
        return Caller(name, limits, self._spoken(headers, text), text)

    @staticmethod
    def tried(headers: Mapping[str, str]) -> int:
        """Return the number of keys that a request tries."""
        return len(_deciding(headers))

    def _known(self, text: str) -> tuple[str, KeySettings] | None:
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
        fitting = [(name, key) for known, name, key in self._keys if hmac.compare_digest(digest, known)]
        return fitting[0] if fitting else None

    def _spoken(self, headers: Mapping[str, str], key: str) -> frozenset[str]:
        """Return the headers that hold a key of the gateway: this one anywhere, or any other as a word of its own."""
        digests = {known for known, _, _ in self._keys}
        caller = Caller("", key=key)
        spoken = {
            name
            for name, value in headers.items()
            if caller.has_key_in(value)
            or any(
                hashlib.sha256(word.encode("utf-8", "surrogateescape")).digest() in digests
                for word in {value.strip(), *_BETWEEN_WORDS.split(value)[:_MOST_WORDS]}
            )
        }
        return frozenset(_SPELLED.get(name.lower(), name) for name in spoken)


class Guesses:
    """The brake on guessed keys: an address that has sent many wrong ones gets no answer to new ones for a while.

    Tenants that were let in from that address before still are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def check(self, address: str, caller: Caller | None, tried: int = 1) -> None:
        """Note how the keys of a request were judged; `Refused` if too many wrong ones have come from its address."""
        source = self._sources.get(address)
        if source is None:
            if caller is None and len(self._sources) >= _MOST_ADDRESSES:
                self._sources.popitem(last=False)
            source = self._sources[address] = _Source(_GUESSES, self._clock())
        self._sources.move_to_end(address)
        if caller is not None and caller.tenant in source.tenants:
            return
        now = self._clock()
        source.left = min(_GUESSES, source.left + (now - source.refilled) * _GUESSES_PER_SECOND)
        source.refilled = now
        if source.left < 1:
            wait = (1 - source.left) / _GUESSES_PER_SECOND
            raise Refused(429, "too many wrong keys came from this address; wait a while", wait, close=True)
        if caller is None:
            source.left -= max(1, tried)
        else:
            source.tenants.add(caller.tenant)


@dataclass(slots=True)
class _Source:
    left: float
    """Wrong keys that it may still send."""
    refilled: float
    tenants: set[str] = field(default_factory=set)
    """The tenants that were let in from there."""


def _deciding(headers: Mapping[str, str]) -> list[str]:
    """Return the keys that decide about a request: those in our own header, else those in the headers of the APIs."""
    every = getattr(headers, "getall", None)

    def values(name: str) -> list[str]:
        return list(every(name, [])) if every is not None else [headers[name]] if name in headers else []

    if OWN_HEADER in headers:
        return [value.strip() for value in values(OWN_HEADER)]
    bearers = [value[7:] for value in values("Authorization") if value[:7].lower() == "bearer "]
    return [value.strip() for value in (*bearers, *values("x-api-key"))]


def _keys_of(settings: GatewaySettings, env: Mapping[str, str]) -> list[tuple[bytes, str, KeySettings]]:
    """Return the keys by their digests, each with its name."""
    if LOCAL in settings.keys:
        raise ConfigError(
            f"gateway.keys.{LOCAL} is the name of the conversations that the command line shows, and cannot be that of "
            "a key; give the key another name",
            key=f"gateway.keys.{LOCAL}",
        )
    keys = [(_digest_of(name, key, env), name, key) for name, key in settings.keys.items()]
    seen: dict[bytes, str] = {}
    for digest, name, _ in keys:
        if digest in seen:
            raise ConfigError(
                f"gateway.keys.{name} has the same key as gateway.keys.{seen[digest]}; give each a key of its own",
                key=f"gateway.keys.{name}",
            )
        seen[digest] = name
    return keys


def _digest_of(name: str, key: KeySettings, env: Mapping[str, str]) -> bytes:
    place = f"gateway.keys.{name}"
    if (key.key_variable is None) == (key.sha256 is None):
        raise ConfigError(f"{place} must have either key_variable or sha256; set one of them", key=place)
    if key.sha256 is not None:
        return bytes.fromhex(key.sha256)
    text = env.get(key.key_variable or "", "").strip()
    if not text:
        raise ConfigError(
            f"{place}.key_variable is {key.key_variable}, but no such environment variable is set; set it to the key",
            key=f"{place}.key_variable",
        )
    if len(text) < _LEAST_CHARS:
        raise ConfigError(
            f"the key in {key.key_variable} ({place}) has {len(text)} characters, but must have {_LEAST_CHARS} at "
            "least; choose a random one",
            key=f"{place}.key_variable",
        )
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(settings: GatewaySettings, host: str) -> None:
    """Refuse to listen for other machines if anybody would be let in."""
    if not is_loopback(host) and not settings.keys:
        raise ConfigError(
            f"the gateway cannot listen on {host} without a key, because other machines could use it; name one with: "
            "everlong config set gateway.keys.NAME.key_variable VARIABLE, and put a random key into that environment "
            "variable; or listen on 127.0.0.1",
            key="gateway.keys",
        )


def _is_of_foreign_page(headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from a web page of another host: a browser sends it without its user knowing.

    For most requests browsers name the page; for a picture or a link they only say that it is another site's.
    """
    origin = headers.get("Origin")
    if origin is None:
        return headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site"
    try:
        return not is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return True


# -- the proof that a process on a port is a gateway of this user, by a secret in a file of theirs ---------------------

QUESTION = "x-everlong-question"
"""The header with which ``/healthz`` is asked for a proof."""
_ASKED = re.compile(r"[0-9a-f]{32,128}")
_FILE = "gateway-secret"
_BYTES = 32


def secret(*, create: bool) -> bytes | None:
    """Return the user's secret; None if there is none, or if others could have read or written it."""
    path = data_home() / _FILE
    found = _read(path)
    if found is not None or not create:
        return found
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
    return _read(path)


def prove(own: bytes, question: str, address: tuple[str, int]) -> str | None:
    """Return the answer to a question that came in at an address; None if it is no question."""
    if not _ASKED.fullmatch(question):
        return None
    return hmac.new(own, f"everlong gateway {question} {address[0]} {address[1]}".encode(), hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if os.name == "posix":
            about = os.fstat(file.fileno())
            is_own = about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o077
            if not is_own or not stat.S_ISREG(about.st_mode):
                return None
        found = file.read(_BYTES + 1)
    return found if len(found) == _BYTES else None


SERVICE = "everlong-gateway"
"""The name of a gateway in the answer of ``/healthz``."""
_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """The answer of a gateway that listens."""

    needs_key: bool
    official: frozenset[str]
    """The APIs whose requests it sends to the API's own address."""
    is_own: bool = False
    """True if it has proved that it is the user's own."""


def find_gateway(address: str) -> RunningGateway | None:
    """Return the gateway that listens at an address; None if there is none."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return None
        made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = made(parts.hostname, parts.port, timeout=_PROBE_SECONDS)
        with closing(connection):
            question, own = secrets.token_hex(32), secret(create=False)
            connection.connect()
            there = connection.sock.getpeername()
            peer = (str(there[0]), int(there[1]))
            connection.request("GET", "/healthz", headers={QUESTION: question})
            told = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    if not isinstance(told, dict) or told.get("service") != SERVICE:
        return None
    official = told.get("official")
    names = official if isinstance(official, list) else []
    proof = None if own is None else prove(own, question, peer)
    is_own = proof is not None and hmac.compare_digest(
        proof.encode(), str(told.get("proof")).encode("utf-8", "replace")
    )
    return RunningGateway(bool(told.get("needs_key")), frozenset(map(str, names)), is_own)


def is_gateway(address: str) -> bool:
    """Return whether a gateway of the user's own listens at an address without TLS, and needs no key.

    Somebody else's may read all that is sent there, the user's keys first.
    """
    if urlsplit(address).scheme != "http":
        return False
    found = find_gateway(address)
    return found is not None and found.is_own and not found.needs_key
