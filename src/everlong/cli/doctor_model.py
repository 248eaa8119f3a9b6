"""Checks of ``everlong doctor``: keys, the chosen model, who writes summaries, the clock, servers on this machine.

Nothing is sent anywhere unless calls are allowed. Keys are never shown: only where they come from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from everlong.cli.doctor_common import Finding, Situation, fail, ok, warn
from everlong.cli.doctor_setup import package_folder

if TYPE_CHECKING:
    from everlong.providers.connection import Connection
    from everlong.providers.names import Endpoint

__all__ = ["check_call", "check_clock", "check_gateway", "check_keys", "check_local", "check_model", "check_summaries"]

_PATIENCE = 30.0
_CLOCK_SECONDS = 60.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_NAME_ONE = "everlong config set agent.model PROVIDER:MODEL"


def check_keys(situation: Situation) -> Iterator[Finding]:
    """Which providers have a key, and where it comes from."""
    from everlong.providers.keys import key_source  # noqa: PLC0415 - keeps `everlong --help` quick

    found = {one.name: key_source(one) for one in _endpoints(situation) if one.key_variables or one.keyring}
    there = [f"{name} ({source})" for name, source in found.items() if source]
    if there:
        yield ok("keys", ", ".join(there))
    else:
        advice = "set a variable such as ANTHROPIC_API_KEY, or store a key: everlong auth set PROVIDER"
        yield warn("keys", "no provider has a key; only servers of your own can be used", advice)


def _endpoints(situation: Situation) -> list[Endpoint]:
    from everlong.errors import ConfigError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.providers.names import ENDPOINTS, endpoint_for  # noqa: PLC0415 - as above

    own = situation.settings.providers
    found: list[Endpoint] = []
    for name in sorted({*ENDPOINTS, *own}):
        with suppress(ConfigError):  # one without an address; told where it is the chosen one
            found.append(endpoint_for(name, own))
    return found


def check_model(situation: Situation) -> Iterator[Finding]:
    """Whether the chosen model can be called, and how large its window is."""
    from everlong.errors import ConfigError, ProviderError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.providers.connection import connect  # noqa: PLC0415 - as above
    from everlong.providers.retry import RetryPolicy  # noqa: PLC0415 - as above

    name = situation.settings.agent.model
    if name is None:
        yield warn("model", "none is chosen, so every command has to name one (--model)", _NAME_ONE)
        return
    try:
        connection = connect(name, situation.settings, policy=RetryPolicy(attempts=1), timeout=_PATIENCE)
    except (ConfigError, ProviderError) as error:
        yield fail("model", f"{name} cannot be called: {error}", "correct agent.model, the key or the installation")
        return
    situation.connection = connection
    address = _address(connection)
    if situation.call:
        answer = _touched(address)
        if answer.problem:
            yield fail("model", f"{name} cannot be reached at {address}: {answer.problem}", "check address and network")
            return
    yield _window(connection, situation.call)


def _window(connection: Connection, may_ask: bool) -> Finding:
    ask = connection.served_context_length if may_ask else None
    info = connection.catalogue.info(connection.model_name, connection.endpoint, ask)
    said = {
        "settings": "as your settings say",
        "catalogue": "by the catalogue",
        "server": "as its server says",
        "learned": "as a refusal said",
        "default": "a guess, because nothing is known of it",
    }
    priced = "prices are known" if info.prices is not None else "no prices are known"
    text = f"{connection.model_name} at {_address(connection)}: a window of {info.context_length:,} tokens"
    text = f"{text} ({said[info.context_source]}); {priced}"
    if info.context_source == "default":
        advice = f"set models.{connection.model_name}.context_length" + ("" if may_ask else ", or let --call ask")
        return warn("model", text, advice)
    return ok("model", text)


def _address(connection: Connection) -> str:
    return str(getattr(connection.inner, "address", connection.endpoint.base_url or ""))


def check_call(situation: Situation) -> Iterator[Finding]:
    """One real call with an answer of one token, where calls are allowed."""
    from everlong.errors import ProviderError  # noqa: PLC0415 - keeps `everlong --help` quick

    connection = situation.connection
    if connection is None or not situation.call:
        return
    started = time.perf_counter()
    try:
        reply = connection.complete([{"role": "user", "content": "Say ok."}], max_tokens=1)
    except ProviderError as error:
        yield fail("call", f"{connection.model_name} did not answer: {error}", _remedy(error))
        return
    seconds = time.perf_counter() - started
    cost = connection.cost(reply.usage)
    paid = "" if cost is None else f", ${cost:.6f}"
    yield ok("call", f"{reply.model} answered in {seconds:.1f} s ({reply.usage.total_tokens} tokens{paid})")


def _remedy(error: Exception) -> str:
    from everlong import errors  # noqa: PLC0415 - keeps `everlong --help` quick

    if isinstance(error, errors.AuthenticationFailed):
        return "check the key; `everlong auth list` tells where it comes from"
    if isinstance(error, errors.QuotaExhausted):
        return "add credit to the account, or choose another model"
    if isinstance(error, errors.NetworkFailure | errors.Overloaded | errors.RateLimited):
        return "try again in a while; check the network and the provider's status"
    return "check the model's name and what the account may use"


def check_gateway(situation: Situation) -> Iterator[Finding]:
    """Who writes the summaries of conversations that pass through the gateway."""
    from importlib.util import find_spec  # noqa: PLC0415 - keeps `everlong --help` quick

    if find_spec("aiohttp") is None or find_spec("brotli") is None:
        return
    from everlong.gateway.summaries import told_writer  # noqa: PLC0415 - as above

    yield ok("gateway summaries", f"by {told_writer(situation.settings)}")


def check_summaries(situation: Situation) -> Iterator[Finding]:
    """Whether the model that is to write summaries can be found."""
    from everlong.errors import ConfigError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.providers.keys import key_source  # noqa: PLC0415 - as above
    from everlong.providers.names import endpoint_for  # noqa: PLC0415 - as above

    chosen = situation.settings.auxiliary.compression
    if chosen.models:
        how = "the best of" if chosen.choose == "best" else "the first good one of"
        yield ok("summaries", f"by {how} {', '.join(chosen.names)}, else by the main model")
    elif chosen.base_url is not None:
        yield ok("summaries", f"by {chosen.model or 'the only model'} at {chosen.base_url}, else by the main model")
    elif chosen.provider in {"auto", "main"}:
        who = "a cheaper model where one has a key, else by " if chosen.provider == "auto" else ""
        yield ok("summaries", f"by {who}the main model, else from the conversation's own words")
    else:
        try:
            endpoint = endpoint_for(chosen.provider, situation.settings.providers)
        except ConfigError as error:
            yield fail("summaries", f"auxiliary.compression.provider: {error}", "correct it, or set it to auto")
            return
        if endpoint.needs_key and key_source(endpoint) is None:
            yield fail("summaries", f"{chosen.provider} has no key", f"everlong auth set {chosen.provider}")
        else:
            who = f"{chosen.model or 'the usual model'} of {chosen.provider}"
            yield ok("summaries", f"by {who}, else by the main model")


# -- asking servers ---------------------------------------------------------------------------------------------------


class Touched(NamedTuple):
    """What came of knocking at an address."""

    problem: str = ""
    date: str | None = None
    body: bytes = b""


def _touched(address: str, method: str = "HEAD", seconds: float = 10.0) -> Touched:
    """Ask an address for anything, without a key: that it answers at all is what counts."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"}:
        return Touched(f"{address!r} is no http address")
    # What listens on this machine is not to be looked for behind a proxy.
    opener = build_opener(ProxyHandler({})) if parts.hostname in _LOOPBACK else build_opener()
    request = Request(address, method=method, headers={"user-agent": "everlong-doctor"})  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=seconds) as answer:
            return Touched(date=answer.headers.get("date"), body=answer.read(1_000_000))
    except HTTPError as error:
        with error:
            return Touched(date=error.headers.get("date"))
    except (OSError, ValueError) as error:
        return Touched(str(getattr(error, "reason", error)) or type(error).__name__)


def check_clock(situation: Situation) -> Iterator[Finding]:
    """Whether this machine's clock is right: by the model's server where calls are allowed, else by common sense."""
    now = time.time()
    if situation.call and situation.connection is not None:
        before = time.time()
        date = _touched(_address(situation.connection)).date
        with suppress(TypeError, ValueError):
            # The header has whole seconds, and was written at some moment between the two.
            off = (before + time.time()) / 2 - (parsedate_to_datetime(date or "").timestamp() + 0.5)
            if abs(off) > _CLOCK_SECONDS:
                way = "ahead of" if off > 0 else "behind"
                text = f"this clock is {abs(off):,.0f} seconds {way} the one of the model's server"
                yield warn("clock", text, "set the clock, or have it set from the network (NTP)")
            else:
                yield ok("clock", f"within {max(1, round(abs(off)))} s of the model's server")
            return
    installed = (package_folder() / "__init__.py").stat().st_mtime
    if now < installed - 86_400:
        yield warn("clock", f"it is {time.ctime(now)} here, before Everlong was installed", "set the clock")
    else:
        yield ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now)))


def check_local(situation: Situation) -> Iterator[Finding]:
    """Which servers of models listen on this machine."""
    local = [one for one in _endpoints(situation) if one.base_url and urlsplit(one.base_url).hostname in _LOOPBACK]
    if not situation.call:
        yield ok("local servers", "not looked for; --call does it")
        return
    found = [f"{one.name} at {one.base_url} ({names})" for one in local if (names := _served(one)) is not None]
    names = ", ".join(one.name for one in local)
    yield ok("local servers", "; ".join(found) or f"none answers at the addresses of {names}")


def _served(endpoint: Endpoint) -> str | None:
    """The models that a server lists; None where nobody answers."""
    versioned = "" if endpoint.api == "openai" else "/v1"
    answer = _touched(f"{str(endpoint.base_url).rstrip('/')}{versioned}/models", "GET", seconds=2.0)
    if answer.problem:
        return None
    try:
        listed: Any = json.loads(answer.body)
        names = [str(model["id"]) for model in listed["data"]]
    except (ValueError, KeyError, TypeError):
        return "does not list its models"
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "no models"
