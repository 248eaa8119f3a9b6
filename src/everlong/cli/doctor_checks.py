"""The checks of ``everlong doctor``, by subject; `CHECKS` lists them in the order in which they run.

A check yields findings. It imports what it checks when it runs: a broken package is a finding, not a traceback.
"""

from __future__ import annotations

import json
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from everlong import __version__, config
from everlong.cli.output import counted, format_bytes
from everlong.config.paths import data_home
from everlong.errors import ConfigError, EverlongError, NotesError, ProviderError, StoreError
from everlong.extras import install_command
from everlong.providers.endpoints import ENDPOINTS, endpoint_for
from everlong.providers.keys import key_source

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.connection import Connection
    from everlong.providers.endpoints import Endpoint
    from everlong.store.postgres import PostgreSQL

__all__ = ["CHECKS", "EXTRAS", "DoctorSituation", "Finding", "State", "fail"]

State = Literal["ok", "warn", "fail"]
Check: TypeAlias = "Callable[[DoctorSituation], Iterable[Finding]]"

EXTRAS = {
    "anthropic": ("anthropic", "genai-prices", "keyring"),
    "openai": ("openai", "genai-prices", "keyring"),
    "gateway": ("aiohttp", "brotli", "genai-prices", "tomlkit"),
    "inspector": ("aiohttp", "jinja2", "markdown-it-py", "nh3"),
    "mcp": ("mcp",),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
    "local": ("openai", "xllamacpp"),
    "postgres": ("psycopg",),
    "png": ("cairosvg",),
    "testing": ("hypothesis",),
    "langchain": ("langchain",),
    "openai-agents": ("openai-agents",),
    "pydantic-ai": ("pydantic-ai-slim",),
    "google-adk": ("google-adk",),
    "langgraph": ("langgraph",),
    "llama-index": ("llama-index-core",),
    "semantic": ("numpy", "onnxruntime", "tokenizers"),
    "objects": ("obstore",),
    "telegram": ("python-telegram-bot", "aiohttp", "markdown-it-py"),
    "discord": ("discord.py", "aiohttp", "markdown-it-py"),
}
"""The packages of each extra."""
_LEAST_PYTHON = (3, 11)
_LEAST_COLUMNS = 60
_QUICK_BYTES = 500_000_000
"""Larger files are not read completely: that takes too long."""
_QUICK_MESSAGES = 5_000
"""Stores with more messages are not verified hash by hash."""
_LOW_BYTES, _LEAST_BYTES = 500_000_000, 20_000_000
_RESTORE = "restore a backup, or name another file: everlong config set store.path PATH"
_ELSEWHERE = "everlong config set store.path PATH names another place"
_CALL_SECONDS = 30.0
_MOST_CLOCK_SECONDS = 60.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_CHOOSE_MODEL = "everlong config set agent.model PROVIDER:MODEL"


class Finding(NamedTuple):
    """The result of one check, in a sentence, with advice."""

    name: str
    state: State
    text: str
    advice: str = ""


def ok(name: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(name, "ok", text)


def warn(name: str, text: str, advice: str) -> Finding:
    """Return a finding that something works, but perhaps not as intended."""
    return Finding(name, "warn", text, advice)


def fail(name: str, text: str, advice: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(name, "fail", text, advice)


@dataclass
class DoctorSituation:
    """The settings and the model that the checks look at."""

    call: bool = False
    """True if checks may talk to servers, on this machine or outside."""
    connection: Connection | None = None
    """The chosen model, once a check has found that it can be called."""

    @cached_property
    def settings(self) -> Settings:
        """The settings in effect, or the defaults if they cannot be read: `check_config` reports that."""
        try:
            return config.load_settings().settings
        except (ConfigError, OSError):
            return config.Settings()


# -- installation and settings -----------------------------------------------------------------------------------------


def check_python(_: DoctorSituation) -> Iterator[Finding]:
    """Check the version of Python."""
    found = f"Everlong {__version__}, Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < _LEAST_PYTHON:
        yield fail("python", f"{found} is too old", "install Python 3.11 or newer, and Everlong with it")
    else:
        yield ok("python", found)


def check_packages(_: DoctorSituation) -> Iterator[Finding]:
    """Check which extras are installed."""
    missing = {extra: [name for name in names if not _installed_version(name)] for extra, names in EXTRAS.items()}
    there = [extra for extra, names in missing.items() if not names]
    absent = [extra for extra, names in missing.items() if names]
    text = f"extras: {', '.join(there) or 'none'}; not installed: {', '.join(absent) or 'none'}"
    if not {"anthropic", "openai"} & set(there):
        lacking = sorted({*missing["anthropic"], *missing["openai"]})
        advice = f"{install_command('anthropic')}, or the same with openai"
        yield warn("packages", f"no extra for models is complete (missing: {', '.join(lacking)})", advice)
    else:
        yield ok("packages", text)


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_config(_: DoctorSituation) -> Iterator[Finding]:
    """Check the configuration files, and report every problem in them."""
    try:
        loaded = config.load_settings()
    except ConfigError as error:
        listed = [line.removeprefix("  - ") for line in str(error).splitlines() if line.startswith("  - ")]
        for sentence in listed or [str(error)]:
            yield fail("config", sentence, "correct it; the checks below look at the default settings")
        return
    except OSError as error:  # the working directory is gone, for one
        yield fail("config", f"no configuration can be read: {error.strerror or error}", "go to a folder that is there")
        return
    files = [
        path
        for path in (config.user_config_path(), config.project_config_path())
        if path is not None and path.is_file()
    ]
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    names = " and ".join(map(str, files)) or f"no file ({config.user_config_path()} is not there)"
    yield ok("config", f"{names}; settings that are not the default: {changed}")


def check_folder(_: DoctorSituation) -> Iterator[Finding]:
    """Check whether this folder's settings and instructions are trusted."""
    from everlong.config.trust import folder_wishes, folders_at, is_folder_trusted  # noqa: PLC0415 - may be broken

    folder = folders_at()[0]
    try:
        notices = config.load_settings().notices
    except ConfigError:  # a finding of its own
        notices = ()
    for notice in notices:
        yield warn("folder", notice, "look at the file; everlong trust list shows what you have trusted")
    if is_folder_trusted():
        yield ok("folder", f"{folder} is trusted: its instructions count, and the settings that a folder may make")
    elif folder_wishes(folder).instructions:
        advice = "everlong trust add shows what it wants and trusts it"
        yield warn("folder", f"{folder} is not trusted: its instructions do not count", advice)
    elif not notices:
        yield ok("folder", f"{folder} brings nothing along that would need trust")


def check_sandbox(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the sandbox of the agent's commands."""
    from everlong.agent.tools.sandbox import Confinement, find_sandbox  # noqa: PLC0415 - may be broken

    mode = situation.settings.agent.sandbox
    confinement = Confinement(mode)
    if mode == "off":
        advice = "everlong config set agent.sandbox auto"
        yield warn("sandbox", "agent.sandbox is off: commands can do whatever you can", advice)
    elif confinement.sandbox is not None:
        yield ok("sandbox", f"agent.sandbox is {mode}; commands run {confinement.describe()}")
    elif confinement.is_missing:
        yield fail("sandbox", f"agent.sandbox is on, and {find_sandbox()[1]}: no command can run", "install bubblewrap")
    else:
        advice = "install bubblewrap, or run where it is allowed; until then look closely at what you approve"
        yield warn("sandbox", f"commands run {confinement.describe()}", advice)


def check_terminal(_: DoctorSituation) -> Iterator[Finding]:
    """Check the width and the encoding of the terminal."""
    encoding = (sys.stdout.encoding or "ascii").lower()
    if not sys.stdout.isatty():
        where = "standard output is no terminal"
    else:
        from rich.console import Console  # noqa: PLC0415 - may be broken

        columns = shutil.get_terminal_size().columns
        where = f"{columns} columns, colours: {Console().color_system or 'none'}"
        if columns < _LEAST_COLUMNS:
            yield warn("terminal", f"{where}: tables will be cut", f"make it at least {_LEAST_COLUMNS} columns wide")
            return
    try:
        "💾 → ↳ █ 中".encode(encoding)
    except (UnicodeError, LookupError):
        advice = "set PYTHONUTF8=1, or a locale with UTF-8 such as LANG=C.UTF-8"
        yield warn("terminal", f"{where}; its encoding {encoding} cannot show every character", advice)
        return
    yield ok("terminal", f"{where}; {encoding}")


# -- models and servers ------------------------------------------------------------------------------------------------


def check_keys(situation: DoctorSituation) -> Iterator[Finding]:
    """Check which providers have a key, and where it comes from."""
    found = {one.name: key_source(one) for one in _endpoints(situation) if one.key_variables or one.keyring}
    there = [f"{name} ({source})" for name, source in found.items() if source]
    if there:
        yield ok("keys", ", ".join(there))
    else:
        advice = "set a variable such as ANTHROPIC_API_KEY, or store a key: everlong auth set PROVIDER"
        yield warn("keys", "no provider has a key; only servers of your own can be used", advice)


def _endpoints(situation: DoctorSituation) -> list[Endpoint]:
    own = situation.settings.providers
    found: list[Endpoint] = []
    for name in sorted({*ENDPOINTS, *own}):
        with suppress(ConfigError):  # one without an address; told where it is the chosen one
            found.append(endpoint_for(name, own))
    return found


def check_model(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the chosen model can be called, and report its window."""
    from everlong.providers.connection import connect  # noqa: PLC0415 - may be broken
    from everlong.providers.retry import RetryPolicy  # noqa: PLC0415 - as above

    name = situation.settings.agent.model
    if name is None:
        yield warn("model", "none is chosen, so every command has to name one (--model)", _CHOOSE_MODEL)
        return
    try:
        connection = connect(name, situation.settings, policy=RetryPolicy(attempts=1), timeout=_CALL_SECONDS)
    except (ConfigError, ProviderError) as error:
        yield fail("model", f"{name} cannot be called: {error}", "correct agent.model, the key or the installation")
        return
    situation.connection = connection
    address = _address(connection)
    if situation.call:
        answer = _ask_server(address)
        if answer.problem:
            yield fail("model", f"{name} cannot be reached at {address}: {answer.problem}", "check address and network")
            return
    yield _describe_window(connection, situation.call)


def _describe_window(connection: Connection, may_ask: bool) -> Finding:
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


def check_call(situation: DoctorSituation) -> Iterator[Finding]:
    """Make one real call with an answer of one token, if calls are allowed."""
    connection = situation.connection
    if connection is None or not situation.call:
        return
    started = time.perf_counter()
    try:
        reply = connection.complete([{"role": "user", "content": "Say ok."}], max_tokens=1)
    except ProviderError as error:
        yield fail("call", f"{connection.model_name} did not answer: {error}", _advise(error))
        return
    seconds = time.perf_counter() - started
    cost = connection.cost(reply.usage)
    paid = "" if cost is None else f", ${cost:.6f}"
    yield ok("call", f"{reply.model} answered in {seconds:.1f} s ({reply.usage.total_tokens} tokens{paid})")


def _advise(error: Exception) -> str:
    from everlong import errors  # noqa: PLC0415 - may be broken

    if isinstance(error, errors.AuthenticationFailed):
        return "check the key; `everlong auth list` tells where it comes from"
    if isinstance(error, errors.QuotaExhausted):
        return "add credit to the account, or choose another model"
    if isinstance(error, errors.NetworkFailure | errors.Overloaded | errors.RateLimited):
        return "try again in a while; check the network and the provider's status"
    return "check the model's name and what the account may use"


def check_clock(situation: DoctorSituation) -> Iterator[Finding]:
    """Check this machine's clock, against the model's server if calls are allowed."""
    now = time.time()
    if situation.call and situation.connection is not None:
        before = time.time()
        date = _ask_server(_address(situation.connection)).date
        with suppress(TypeError, ValueError):
            # The header has whole seconds, and was written at some moment between the two.
            off = (before + time.time()) / 2 - (parsedate_to_datetime(date or "").timestamp() + 0.5)
            if abs(off) > _MOST_CLOCK_SECONDS:
                way = "ahead of" if off > 0 else "behind"
                text = f"this clock is {abs(off):,.0f} seconds {way} the one of the model's server"
                yield warn("clock", text, "set the clock, or have it set from the network (NTP)")
            else:
                yield ok("clock", f"within {max(1, round(abs(off)))} s of the model's server")
            return
    installed = (_package_folder() / "__init__.py").stat().st_mtime
    if now < installed - 86_400:
        yield warn("clock", f"it is {time.ctime(now)} here, before Everlong was installed", "set the clock")
    else:
        yield ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now)))


def _package_folder() -> Path:
    """Return the folder where this package is installed."""
    return Path(__file__).parent.parent


def check_summaries(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the model that writes summaries."""
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


def check_gateway(situation: DoctorSituation) -> Iterator[Finding]:
    """Report who writes the summaries of the gateway's conversations."""
    if find_spec("aiohttp") is None or find_spec("brotli") is None:
        return
    from everlong.gateway.summaries import describe_writer  # noqa: PLC0415 - may be broken

    yield ok("gateway summaries", f"by {describe_writer(situation.settings)}")


def check_local(situation: DoctorSituation) -> Iterator[Finding]:
    """Report the model servers that listen on this machine."""
    local = [one for one in _endpoints(situation) if one.base_url and urlsplit(one.base_url).hostname in _LOOPBACK]
    if not situation.call:
        yield ok("local servers", "not looked for; --call does that")
        return
    found = [f"{one.name} at {one.base_url} ({names})" for one in local if (names := _list_models(one)) is not None]
    names = ", ".join(one.name for one in local)
    yield ok("local servers", "; ".join(found) or f"none answers at the addresses of {names}")


def _list_models(endpoint: Endpoint) -> str | None:
    """Return the models that a server lists; None if nobody answers."""
    versioned = "" if endpoint.api == "openai" else "/v1"
    answer = _ask_server(f"{str(endpoint.base_url).rstrip('/')}{versioned}/models", "GET", seconds=2.0)
    if answer.problem:
        return None
    try:
        listed: Any = json.loads(answer.body)
        names = [str(model["id"]) for model in listed["data"]]
    except (ValueError, KeyError, TypeError):
        return "does not list its models"
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "no models"


class _ServerAnswer(NamedTuple):
    """The answer of a server, or the problem in reaching it."""

    problem: str = ""
    date: str | None = None
    body: bytes = b""


def _ask_server(address: str, method: str = "HEAD", seconds: float = 10.0) -> _ServerAnswer:
    """Send a request without a key: any answer shows that the server is there."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"}:
        return _ServerAnswer(f"{address!r} is no http address")
    # A server on this machine is not behind a proxy.
    opener = build_opener(ProxyHandler({})) if parts.hostname in _LOOPBACK else build_opener()
    request = Request(address, method=method, headers={"user-agent": "everlong-doctor"})  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=seconds) as answer:
            return _ServerAnswer(date=answer.headers.get("date"), body=answer.read(1_000_000))
    except HTTPError as error:
        with error:
            return _ServerAnswer(date=error.headers.get("date"))
    except (OSError, ValueError) as error:
        return _ServerAnswer(str(getattr(error, "reason", error)) or type(error).__name__)


# -- data --------------------------------------------------------------------------------------------------------------


def check_store(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the store can be opened, is Everlong's, and has a known version."""
    from everlong.store.opening import default_path  # noqa: PLC0415 - may be broken
    from everlong.store.postgres import PostgreSQL  # noqa: PLC0415 - as above
    from everlong.store.sqlite import SQLite  # noqa: PLC0415 - as above
    from everlong.store.upgrade import backend_for  # noqa: PLC0415 - as above

    chosen = situation.settings.store
    try:
        backend = backend_for(chosen.url or chosen.path or default_path(), 5.0)
    except StoreError as error:
        yield fail("store", str(error), "correct store.url or store.path")
        return
    if isinstance(backend, SQLite):
        yield from _check_file(backend.path, situation)
    elif isinstance(backend, PostgreSQL) and situation.call:
        yield from _check_server(backend)
    else:
        yield ok("store", f"{backend.where} was not contacted; --call does that")


def _check_file(path: Path, situation: DoctorSituation) -> Iterator[Finding]:
    problem = _folder_problem(path.parent)
    if path.is_dir():
        yield fail("store", f"{path} is a folder, and a store is a file", _ELSEWHERE)
    elif problem is not None:
        yield fail("store", f"the store {path} cannot be written: {problem}", _ELSEWHERE)
    elif not path.exists() or not path.stat().st_size:
        yield ok("store", f"there is none yet; the first conversation makes {path}")
    else:
        try:
            with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5.0)) as raw:
                yield from _check_database(path, raw, situation)
        except sqlite3.Error as error:
            yield fail("store", f"{path} is damaged, no database, or not to be read ({error})", _RESTORE)


def _check_database(path: Path, raw: sqlite3.Connection, situation: DoctorSituation) -> Iterator[Finding]:
    from everlong.store.upgrade import VERSION_TABLE  # noqa: PLC0415 - may be broken

    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if VERSION_TABLE not in tables:
        yield fail("store", f"{path} holds tables that are not Everlong's", _ELSEWHERE)
        return
    (version,) = raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608 - a constant
    schema = _check_schema(str(version))
    if path.stat().st_size <= _QUICK_BYTES:
        (found,) = raw.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            yield fail("store", f"{path} is damaged: {found}", _RESTORE)
            return
    if schema.state != "ok":
        yield ok("store", f"{path} can be read")
    else:
        (messages,) = raw.execute("SELECT count(*) FROM node").fetchone()
        yield _verify(path, messages, situation)
    yield schema


def _verify(path: Path, messages: int, situation: DoctorSituation) -> Finding:
    from everlong.store import open_store  # noqa: PLC0415 - may be broken

    if messages > _QUICK_MESSAGES:
        return ok("store", f"{path}, {counted(messages, 'message')}; `everlong sessions verify` checks every hash")
    with open_store(situation.settings.store) as store:
        problems = store.verify().problems
    if problems:
        return fail("store", f"{path} contradicts itself: {problems[0]}", _RESTORE)
    return ok("store", f"{path}, {counted(messages, 'message')}, every hash is right")


def _check_schema(version: str) -> Finding:
    from everlong.store.upgrade import HEAD, REVISIONS, refuse  # noqa: PLC0415 - may be broken

    if version == HEAD:
        return ok("migrations", f"the schema is {HEAD}, the newest")
    if version in REVISIONS:
        text = f"the schema is {version}, this version's is {HEAD}; it is brought up to date when the store is opened"
        return warn("migrations", text, "copy the file first if an older Everlong has to open it again")
    text, _, advice = refuse(version).partition("; ")
    return fail("migrations", f"the store {text}", advice)


def _check_server(backend: PostgreSQL) -> Iterator[Finding]:
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - may be broken

    from everlong.store.upgrade import version_of  # noqa: PLC0415 - as above

    advice = "check store.url, the server and the network"
    backend.url = backend.url.update_query_dict({"connect_timeout": "5"})
    try:
        engine = backend.engine()
        try:
            with engine.connect() as connection:
                version = version_of(connection)
                is_empty = version is None and backend.is_empty(connection)
        finally:
            engine.dispose()
    except StoreError as error:
        yield fail("store", str(error), advice)
        return
    except DBAPIError as error:
        yield fail("store", str(backend.translated(error)), advice)
        return
    if version is not None:
        yield ok("store", f"{backend.where} answers")
        yield _check_schema(version)
    elif is_empty:
        yield ok("store", f"{backend.where} answers and is empty; the first conversation makes its tables")
    else:
        yield fail("store", f"{backend.where} holds tables that are not Everlong's", "name another database")


def check_embeddings(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the model for the search by meaning works; an endpoint only with ``--call``."""
    name = situation.settings.search.embeddings
    if name == "off":
        return
    from everlong.providers.embeddings import embedder_for  # noqa: PLC0415 - may be broken
    from everlong.providers.onnx_model import OnnxModel  # noqa: PLC0415 - as above

    advice = "everlong config set search.embeddings PATH, PROVIDER:MODEL or off"
    try:
        embedder = embedder_for(situation.settings)
        if embedder is None or not (situation.call or isinstance(embedder, OnnxModel)):
            yield ok("search.embeddings", f"{name}, not asked; --call does that")
            return
        began = time.monotonic()
        size = embedder.embed(["Which port did we agree on?"], is_query=True).shape[1]
    except EverlongError as error:
        yield fail("search.embeddings", str(error), advice)
    except Exception as error:  # noqa: BLE001 - a broken model is a finding, whatever it raises
        yield fail("search.embeddings", f"{name} does not work: {type(error).__name__}: {error}", advice)
    else:
        milliseconds = 1_000 * (time.monotonic() - began)
        yield ok("search.embeddings", f"{embedder.model_id} gives vectors of {size} numbers, in {milliseconds:.0f} ms")


def check_disk(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the free disk space where data is kept."""
    folder = _nearest_folder(Path(situation.settings.store.path or data_home()).expanduser())
    free = shutil.disk_usage(folder).free
    text = f"{format_bytes(free)} are free at {folder}"
    if free < _LEAST_BYTES:
        yield fail("disk", text, "make room: a store that cannot be written keeps nothing")
    elif free < _LOW_BYTES:
        yield warn("disk", text, "make room; `everlong sessions vacuum` gives back what is not needed")
    else:
        yield ok("disk", text)


def check_logs(_: DoctorSituation) -> Iterator[Finding]:
    """Check that session logs can be written."""
    folder = data_home() / "logs"
    problem = _folder_problem(folder)
    if problem is None:
        yield ok("logs", f"{folder} can be written to")
    else:
        yield fail("logs", f"logs cannot be written: {problem}", "mend it, or set EVERLONG_HOME to another folder")


def check_archive(situation: DoctorSituation) -> Iterator[Finding]:
    """Check whether a client will delete logs that are not archived."""
    from everlong.cli.archive.formats import TITLES  # noqa: PLC0415 - may be broken
    from everlong.cli.archive.places import days_until_deletion, log_folders  # noqa: PLC0415 - as above
    from everlong.cli.archive.scan import unarchived_files  # noqa: PLC0415 - as above
    from everlong.store.opening import default_path  # noqa: PLC0415 - as above

    chosen = situation.settings.store
    there = [one for one in log_folders() if one.path.is_dir() and days_until_deletion(one.client) is not None]
    if not there:
        yield ok("archive", "no client that deletes its logs has any here")
        return
    if chosen.url is not None and "sqlite" not in chosen.url:
        yield ok("archive", f"{chosen.url.partition('://')[0]} was not contacted; everlong archive --once tells more")
        return
    stamps = _archived(Path(chosen.path or default_path()).expanduser())
    for folder in there:
        title, days = TITLES[folder.client], days_until_deletion(folder.client) or 0
        waiting = unarchived_files(stamps, folder)
        if not waiting:
            yield ok("archive", f"{title}: all logs are archived")
            continue
        left = max(0.0, days - (time.time() - min(changed for _, changed in waiting)) / 86_400)
        logs = counted(len(waiting), "log")
        text = f"{logs} of {title} not archived; it deletes logs after {days} days, the oldest of these in {left:.0f}"
        advice = "everlong archive --once imports them; everlong archive --install does it from now on"
        yield warn("archive", text, advice)


def _archived(path: Path) -> dict[str, Any]:
    """Return the stamps of the archived logs of a store, which is not changed."""
    from everlong.store.log_files import FileStamp  # noqa: PLC0415 - may be broken

    if not path.exists():
        return {}
    query = "SELECT file, size, mtime, inode FROM log_file WHERE tenant = 'local'"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as raw:
            return {file: FileStamp(size, mtime, inode) for file, size, mtime, inode in raw.execute(query)}
    except sqlite3.Error:  # of an older version, or none of ours: another check says so
        return {}


def check_memory(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that notes can be read, and that the external provider can be loaded."""
    from everlong.memory.external import offered_provider  # noqa: PLC0415 - may be broken
    from everlong.memory.notes import NotesMemory  # noqa: PLC0415 - as above

    chosen = situation.settings.memory
    if not chosen.enabled:
        yield ok("memory", "switched off (memory.enabled)")
        return
    notes = NotesMemory()
    try:
        count = sum(len(notes.notes(target)) for target in ("memory", "user"))
        problem = _folder_problem(notes.folder)
    except NotesError as error:
        count, problem = 0, str(error)
    if problem is None:
        yield ok("memory", f"{count} {'note' if count == 1 else 'notes'} in {notes.folder}")
    else:
        yield fail("memory", problem, "mend the file or its permissions")
    if chosen.provider is None:
        return
    try:
        offered: Any = offered_provider(chosen.provider)
    except ConfigError as error:
        yield fail("memory provider", str(error), "everlong config set memory.provider null goes on without it")
    else:
        name = getattr(offered, "__name__", type(offered).__name__)
        yield ok("memory provider", f"{chosen.provider} can be loaded ({name}); it is made when a session starts")


def _nearest_folder(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    path = path.absolute()
    return next((one for one in (path, *path.parents) if one.exists()), path)


def _folder_problem(folder: Path) -> str | None:
    """Return why a folder cannot be created or written to; None if it can."""
    there = _nearest_folder(folder)
    if not there.is_dir():
        return f"{there} is no folder"
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"{there} cannot be written to ({error.strerror or error})"


# -- channels ----------------------------------------------------------------------------------------------------------


def check_channels(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the token and the list of each channel that is switched on, and ask the platform if calls are allowed."""
    from everlong.channels.platforms import PLATFORMS, channel_settings  # noqa: PLC0415 - may be broken

    channels = situation.settings.channels
    enabled = [name for name in PLATFORMS if channel_settings(name, channels).enabled]
    if not enabled:
        yield ok("channels", "none is switched on; everlong setup telegram or discord sets one up")
    for name in enabled:
        yield _check_channel(name, situation)


def _check_channel(name: str, situation: DoctorSituation) -> Finding:
    from everlong.channels.platforms import channel_settings  # noqa: PLC0415 - may be broken
    from everlong.channels.tokens import token_source, token_variable  # noqa: PLC0415 - as above

    own = channel_settings(name, situation.settings.channels)
    missing = [package for package in EXTRAS[name] if not _installed_version(package)]
    if missing:
        return fail("channels", f"{name} is switched on, but lacks {', '.join(missing)}", install_command(name))
    source = token_source(name, own)
    if source is None:
        advice = f"set {token_variable(name, own)}, or say: everlong setup {name}"
        return fail("channels", f"{name} is switched on, but has no token", advice)
    listed = len(own.users) + len(own.chats) + len(getattr(own, "guilds", ()))
    text = f"{name}: a token from {source}, {counted(listed, 'id')} on the list"
    if situation.call:
        answer = _ask_channel(name, situation.settings)
        if answer.problem:
            return fail("channels", f"{text}; {answer.problem}", f"everlong setup {name} checks token and network")
        text = f"{text}; the bot is {answer.name}"
    if not listed:
        advice = f"everlong setup {name} --user ID; or let people in with a code: everlong channels pair {name}"
        return warn("channels", f"{text}: only people who were paired may talk", advice)
    webhook = getattr(own, "webhook_url", None)
    if webhook is not None and own.api_base is None and not webhook.startswith("https://"):
        advice = (
            "put a server with a certificate before it, or poll: everlong config set channels.telegram.webhook_url null"
        )
        return fail("channels", f"{text}; Telegram delivers to https:// addresses only, not to {webhook}", advice)
    return ok("channels", text)


class _ChannelAnswer(NamedTuple):
    name: str = ""
    problem: str = ""


def _ask_channel(name: str, settings: Settings) -> _ChannelAnswer:
    """Ask a platform who the bot is."""
    import asyncio  # noqa: PLC0415 - only calls need it

    from everlong.channels.platforms import channel_settings, make_platform  # noqa: PLC0415 - may be broken
    from everlong.channels.tokens import find_token  # noqa: PLC0415 - as above

    async def ask() -> str:
        token = find_token(name, channel_settings(name, settings.channels))
        platform = make_platform(name, token, settings.channels)
        try:
            return (await asyncio.wait_for(platform.identify(), _CALL_SECONDS)).name
        finally:
            await platform.close()

    try:
        return _ChannelAnswer(name=asyncio.run(ask()))
    except TimeoutError:
        return _ChannelAnswer(problem=f"no answer within {_CALL_SECONDS:g} seconds")
    except EverlongError as error:
        return _ChannelAnswer(problem=str(error))


# -- engine and plugins ------------------------------------------------------------------------------------------------


def check_engine(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the chosen context engine exists."""
    from everlong.agent.engines import resolve_engine  # noqa: PLC0415 - may be broken
    from everlong.plugins.manager import Plugins  # noqa: PLC0415 - as above

    plugins = Plugins(situation.settings)
    plugins.load()  # what is wrong with other plugins is told by a check of its own
    failed = plugins.failed.get(situation.settings.context.engine)
    said = [] if failed is None else [str(failed)]
    plugins.warn = said.append
    engine = resolve_engine(situation.settings, 128_000, plugins=plugins, warn=said.append)
    for text in said:
        yield warn("engine", text, "everlong config set context.engine compressor")
    if not said:
        yield ok("engine", f"context.engine is {engine.name}")


def check_plugins(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the plugins in use can be loaded."""
    from everlong.cli.plugins import (  # noqa: PLC0415 - may be broken
        ListedPlugin,
        check_plugin,
        missing_plugins,
    )
    from everlong.plugins.manager import Plugins  # noqa: PLC0415 - may be broken

    plugins = Plugins(situation.settings)
    listed = [one for one in ListedPlugin.of(plugins) if one.found.origin != "built-in"]
    wrong = 0
    for one in listed:
        problems = check_plugin(one.found).problems if one.is_active else [one.problem] if one.problem else []
        for text in problems:
            wrong += 1
            make = fail if one.is_active else warn
            yield make("plugins", f"{one.found.name}: {text}", f"everlong plugins doctor {one.found.name} tells more")
    for text in missing_plugins(plugins, engine=False):
        wrong += 1
        yield fail("plugins", text, "everlong plugins list shows what is there")
    if not wrong:
        used = ", ".join(one.found.name for one in listed if one.is_active) or "none"
        yield ok("plugins", f"{len(listed)} {'is' if len(listed) == 1 else 'are'} there; in use: {used}")


CHECKS: tuple[Check, ...] = (
    check_python,
    check_packages,
    check_config,
    check_folder,
    check_sandbox,
    check_terminal,
    check_keys,
    check_model,
    check_call,
    check_clock,
    check_summaries,
    check_gateway,
    check_local,
    check_store,
    check_embeddings,
    check_disk,
    check_logs,
    check_archive,
    check_memory,
    check_channels,
    check_engine,
    check_plugins,
)
