"""``everlong doctor``: the checks, by subject, and the list that it prints of their findings.

A check yields findings, or raises an error, which is a finding too. It imports what it checks when it runs, so that
a broken package is a line of the list. Whatever is broken, the command ends with that list and no traceback.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import click

from everlong import __version__, config
from everlong.cli.output import counted, fold, format_bytes, json_option, print_values, say
from everlong.cli.screen import styled
from everlong.config.paths import data_home
from everlong.errors import ConfigError, EverlongError
from everlong.extras import install_command, list_extras, packages_of
from everlong.redaction import redact

if TYPE_CHECKING:
    from everlong.config import Settings

State = Literal["ok", "warn", "fail"]
_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
_WIDTH = 18
_MOST_VERIFIED = 5_000
"""Messages up to which a store is verified hash by hash: that takes about a second."""
_LOW_BYTES, _LEAST_BYTES = 500_000_000, 20_000_000
_CALL_SECONDS = 30.0


class Finding(NamedTuple):
    """The finding in one sentence, and the step that mends it."""

    state: State
    text: str
    advice: str = ""


class DoctorSituation(NamedTuple):
    """The settings that the checks look at, and whether they may talk to servers."""

    settings: Settings
    may_call: bool


Check: TypeAlias = Callable[[DoctorSituation], Iterator[Finding]]


# -- the command -------------------------------------------------------------------------------------------------------


@click.command("doctor")
@click.option("--call", is_flag=True, help="Also contact servers: the model, for one token, and the database.")
@json_option
def doctor_command(call: bool, as_json: bool) -> None:
    """Check the installation, the configuration, the model and the store; exit with 1 if anything fails.

    Nothing is changed, and without --call nothing is sent anywhere.
    """
    try:
        settings = config.load_settings().settings
    except (ConfigError, OSError):  # `check_config` reports it
        settings = config.Settings()
    situation = DoctorSituation(settings, call)
    found: list[dict[str, str]] = []
    for name, (check, advice) in _CHECKS.items():
        for finding in _run_check(check, advice, situation):
            found.append({"name": name, **finding._asdict()})
            if not as_json:
                _print_finding(name, finding)
    failures, warnings = (sum(one["state"] == state for one in found) for state in ("fail", "warn"))
    if as_json:
        print_values({"ok": not failures, "checks": found})
    else:
        say(f"{len(found)} checks, {failures} failed, {warnings} with a warning")
    if failures:
        raise click.exceptions.Exit(1)


def _run_check(check: Check, advice: str, situation: DoctorSituation) -> Iterator[Finding]:
    """Yield the findings of a check without secrets, each on one line; an error that it raises is one of them."""
    try:
        for one in check(situation):
            yield one._replace(text=_clean(one.text), advice=_clean(one.advice))
    except (EverlongError, OSError) as error:
        yield Finding("fail", _clean(str(error)), advice)
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything, and the other checks go on
        yield Finding("fail", _clean(f"{type(error).__name__}: {error}"), advice)


def _clean(text: str) -> str:
    return " ".join(redact(text).split())


def _print_finding(name: str, finding: Finding) -> None:
    state = styled(f"{finding.state:<4}", fg=_COLOURS[finding.state], bold=finding.state != "ok")
    indent = " " * (6 + _WIDTH)
    text = fold(f"{finding.state:<4}  {name:<{_WIDTH}}{finding.text}", sys.stdout, indent)
    click.echo(f"{state}{_printable(text[4:])}")
    if finding.advice:
        click.echo(_printable(fold(f"{indent}→ {finding.advice}", sys.stdout, indent)))


def _printable(text: str) -> str:
    """Return a text with escapes for the characters that standard output cannot show."""
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


# -- installation and settings -----------------------------------------------------------------------------------------


def check_packages(_: DoctorSituation) -> Iterator[Finding]:
    """Check which extras are installed."""
    yield Finding("ok", f"Everlong {__version__}, Python {platform.python_version()} on {platform.system()}")
    there = [extra for extra in list_extras() if not _missing_packages(extra)]
    about = {"testing": "testing (only for tests of your own engines)"}
    absent = [about.get(extra, extra) for extra in list_extras() if extra not in there]
    text = f"extras: {', '.join(there) or 'none'}; not installed: {', '.join(absent) or 'none'}"
    if {"anthropic", "openai"} & {*there}:
        yield Finding("ok", text)
    else:
        yield Finding("warn", f"{text}: no model can be asked", f"{install_command('anthropic')}, or openai")


def _missing_packages(extra: str) -> list[str]:
    return [name for name in packages_of(extra) if not any(metadata.distributions(name=name))]


def check_config(_: DoctorSituation) -> Iterator[Finding]:
    """Check the configuration files, and report every problem in them."""
    try:
        loaded = config.load_settings()
    except ConfigError as error:
        listed = [line.removeprefix("  - ") for line in str(error).splitlines() if line.startswith("  - ")]
        for sentence in listed or [str(error)]:
            yield Finding("fail", sentence, "correct it; the checks below look at the default settings")
        return
    files = [path for path in (config.user_config_path(), config.project_config_path()) if path and path.is_file()]
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    names = " and ".join(map(str, files)) or f"no file ({config.user_config_path()} is not there)"
    yield Finding("ok", f"{names}; settings that are not the default: {changed}")
    for notice in loaded.notices:
        yield Finding("warn", notice, "look at the file; everlong trust list shows what you have trusted")


def check_sandbox(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the sandbox of the agent's commands."""
    from everlong.agent.tools.sandbox import Confinement, find_sandbox  # noqa: PLC0415 - may be broken

    mode = situation.settings.agent.sandbox
    confinement = Confinement(mode)
    if confinement.is_missing:
        yield Finding("fail", f"agent.sandbox is on, and {find_sandbox()[1]}: no command can run", "install bubblewrap")
        return
    text = f"agent.sandbox is {mode}; commands run {confinement.describe()}"
    if confinement.sandbox is not None:
        yield Finding("ok", text)
    else:
        advice = "everlong config set agent.sandbox auto" if mode == "off" else "install bubblewrap"
        yield Finding("warn", text, f"{advice}; until then look closely at what you approve")


# -- models ------------------------------------------------------------------------------------------------------------


def check_keys(situation: DoctorSituation) -> Iterator[Finding]:
    """Check which providers have a key, and where it comes from."""
    from everlong.providers.endpoints import (  # noqa: PLC0415 - may be broken
        ENDPOINTS,
        endpoint_for,
        key_source,
    )

    own = situation.settings.providers
    found = {name: key_source(endpoint_for(name, own)) for name in sorted({*ENDPOINTS, *own})}
    there = ", ".join(f"{name} ({source})" for name, source in found.items() if source)
    if there:
        yield Finding("ok", there)
    else:
        advice = (
            "set a variable such as ANTHROPIC_API_KEY; to try things out, "
            "python -m everlong.testing is a stand-in model on this machine that needs none"
        )
        yield Finding("warn", "no provider has a key; only servers of your own can be used", advice)


def check_gateway(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the keys and routes of `everlong serve`, and the prices of models where a key has a limit in dollars."""
    from everlong.gateway.auth import Guard  # noqa: PLC0415 - may be broken
    from everlong.gateway.routing import Routes  # noqa: PLC0415 - as above
    from everlong.providers.catalogue import Catalogue  # noqa: PLC0415 - as above

    settings = situation.settings
    Guard(settings.gateway)  # raises an error that names the variable that is not set
    catalogue = Catalogue(settings.models, settings.providers)
    routes = Routes(settings)
    names = dict.fromkeys((*settings.models, *filter(None, [settings.agent.model])))
    unpriced = [name for name in names if catalogue.rates(name) is None]
    text = f"{counted(len(settings.gateway.keys), 'key') if settings.gateway.keys else 'no key is needed'}; "
    text += f"upstreams: {routes.shown}"
    if names:
        text += f"; prices known of {len(names) - len(unpriced)} of {counted(len(names), 'configured model')}"
    if unpriced and any(key.dollars_per_day is not None for key in settings.gateway.keys.values()):
        advice = f"set models.{unpriced[0]}.input_price and output_price: a key with dollars_per_day is refused it"
        yield Finding("warn", f"{text}; not of {', '.join(unpriced)}", advice)
    else:
        yield Finding("ok", text)


def check_model(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the chosen model can be called, report its window, and call it if that is allowed."""
    from everlong.providers.connection import RetryPolicy, connect  # noqa: PLC0415 - may be broken
    from everlong.providers.endpoints import is_model_file  # noqa: PLC0415 - as above
    from everlong.providers.local import find_model_file  # noqa: PLC0415 - as above

    name = situation.settings.agent.model
    if name is None:
        advice = "everlong config set agent.model PROVIDER:MODEL"
        yield Finding("warn", "none is chosen, so every command has to name one (--model)", advice)
        return
    if is_model_file(name):
        yield Finding("ok", f"{find_model_file(Path(name))} is served on this machine")
        return
    connection = connect(name, situation.settings, policy=RetryPolicy(attempts=1), timeout=_CALL_SECONDS)
    try:
        ask = connection.served_context_length if situation.may_call else None
        info = connection.catalogue.info(connection.model_name, connection.endpoint, ask)
        priced = "prices are known" if info.prices is not None else "no prices are known"
        address = getattr(connection.inner, "address", "")  # imports the client
        text = f"{name} at {address}: a window of {info.context_length:,} tokens ({info.context_source}); {priced}"
        if info.context_source == "default":
            advice = f"set models.{connection.model_name}.context_length, or let --call ask the server"
            yield Finding("warn", f"{text}; the window is a guess, because nothing is known of the model", advice)
        else:
            yield Finding("ok", text)
        if situation.may_call:
            began = time.monotonic()
            reply = connection.complete([{"role": "user", "content": "Say ok."}], max_tokens=1)
            seconds = time.monotonic() - began
            yield Finding("ok", f"{reply.model} answered in {seconds:.1f} s ({reply.usage.total_tokens} tokens)")
    finally:
        connection.close()


# -- data --------------------------------------------------------------------------------------------------------------


def check_store(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the store can be opened, is Everlong's, has a known version, and is whole."""
    from everlong.store.database import Database  # noqa: PLC0415 - may be broken
    from everlong.store.opening import VERSION, backend_for, version_of  # noqa: PLC0415 - as above
    from everlong.store.store import Store, location, open_store  # noqa: PLC0415 - as above
    from everlong.store.upkeep.maintenance import stats, tenants  # noqa: PLC0415 - as above

    settings = situation.settings.store
    backend = backend_for(location(settings), 5.0)
    path: Path | None = getattr(backend, "path", None)
    if path is None and not situation.may_call:
        yield Finding("ok", f"{backend.where} was not contacted; --call does that")
        return
    if path is not None and not path.exists():
        yield Finding("ok", f"there is none yet; the first conversation makes {path}")
        return
    database = Database(backend)
    try:
        with database.read() as connection:
            is_new = version_of(connection) is None and backend.is_empty(connection)
    finally:
        database.close()
    if is_new:
        yield Finding("ok", f"{backend.where} is empty; the first conversation makes its tables")
        return
    with open_store(settings) as store:
        stores = [Store(store.database, name) for name in tenants(store.database)]
        messages = sum(stats(one)["messages"] for one in stores)
        problems = [] if messages > _MOST_VERIFIED else [line for one in stores for line in one.verify().problems]
    checked = "every hash is right" if messages <= _MOST_VERIFIED else "`everlong sessions verify` checks every hash"
    if problems:
        yield Finding("fail", f"{backend.where} contradicts itself: {problems[0]}", "restore a backup")
    else:
        yield Finding("ok", f"{backend.where}, schema {VERSION}, {counted(messages, 'message')}; {checked}")


def check_disk(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that data can be written, and the free space there."""
    where = situation.settings.store.url or ""
    wanted = Path(where if where and "://" not in where else data_home() / "store.db").expanduser().absolute().parent
    folder = next(one for one in (wanted, *wanted.parents) if one.exists())
    with tempfile.TemporaryFile(dir=folder):
        free = shutil.disk_usage(folder).free
    state: State = "fail" if free < _LEAST_BYTES else "warn" if free < _LOW_BYTES else "ok"
    advice = "" if state == "ok" else "make room; `everlong sessions maintain` gives back what is not needed"
    yield Finding(state, f"{format_bytes(free)} are free at {folder}", advice)


def check_embeddings(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the model for the search by meaning works, if calls are allowed."""
    from everlong.providers.embeddings import embedder_for  # noqa: PLC0415 - may be broken

    embedder = embedder_for(situation.settings)
    if embedder is None:
        yield Finding("ok", "search.embeddings is off: the search goes by words")
    elif not situation.may_call:
        yield Finding("ok", f"{embedder.model_id}, not asked; --call does that")
    else:
        size = embedder.embed(["Which port did we agree on?"], is_query=True).shape[1]
        yield Finding("ok", f"{embedder.model_id} gives vectors of {size} numbers")


# -- channels and plugins ----------------------------------------------------------------------------------------------


def check_channels(situation: DoctorSituation) -> Iterator[Finding]:
    """Check the packages and the token of each channel that is switched on; the platform is not asked."""
    from everlong.channels import PLATFORMS, channel_settings, find_token  # noqa: PLC0415 - may be broken

    channels = situation.settings.channels
    enabled = {name: own for name in PLATFORMS if (own := channel_settings(name, channels)).enabled}
    if not enabled:
        yield Finding("ok", "none is switched on; everlong config set channels.telegram.enabled true does it")
    for name, own in enabled.items():
        if missing := _missing_packages(name):
            text = f"{name} is switched on, but lacks {', '.join(missing)}"
            yield Finding("fail", text, install_command(name))
            continue
        find_token(name)  # raises an error that says where to put one
        listed = len(own.users) + len(own.chats) + len(getattr(own, "guilds", ()))
        text = f"{name}: there is a token, {counted(listed, 'id')} on the list"
        advice = f"let people in with a code: everlong channels pair {name}"
        yield Finding("ok", text) if listed else Finding("warn", f"{text}: only paired people may talk", advice)


def check_plugins(situation: DoctorSituation) -> Iterator[Finding]:
    """Check that the context engine and the plugins in use are there and can be loaded."""
    from everlong.cli.plugins import ListedPlugin, load_plugin, missing_plugins  # noqa: PLC0415 - may be broken
    from everlong.errors import PluginError  # noqa: PLC0415 - as above
    from everlong.plugins.manager import Plugins  # noqa: PLC0415 - as above

    plugins = Plugins(situation.settings)
    active = [one.found for one in ListedPlugin.of(plugins) if one.is_active]
    problems = [*missing_plugins(plugins)]
    for found in active:
        problems += [f"{found.name}: {found.problem}"] if found.problem else []
        try:
            load_plugin(found, situation.settings, problems.append)
        except PluginError as error:
            places = [line.strip() for line in error.traceback.splitlines() if line.startswith("  File ")]
            problems.append(f"{error} ({places[-1]})" if places else str(error))
    for text in problems:
        yield Finding("fail", text, "mend the plugin, or choose another; everlong plugins shows what is there")
    if not problems:
        used = ", ".join(found.name for found in active)
        yield Finding("ok", f"context.engine is {situation.settings.context.engine}; in use: {used}")


_CHECKS: dict[str, tuple[Check, str]] = {
    "packages": (check_packages, "install Everlong anew"),
    "config": (check_config, "go to a folder that is there, and correct the file"),
    "sandbox": (check_sandbox, "install bubblewrap"),
    "keys": (check_keys, "correct providers in the settings"),
    "gateway": (check_gateway, "correct gateway in config.yaml, or set the variable where `everlong serve` runs"),
    "model": (check_model, "correct agent.model, the key or the address"),
    "store": (check_store, "restore a backup, or name another file: everlong config set store.url PATH"),
    "disk": (check_disk, "mend the folder, or name another place: everlong config set store.url PATH"),
    "embeddings": (check_embeddings, "everlong config set search.embeddings PROVIDER:MODEL or off"),
    "channels": (check_channels, "set TELEGRAM_BOT_TOKEN or DISCORD_BOT_TOKEN"),
    "plugins": (check_plugins, "everlong plugins shows what is there"),
}
"""The checks by the names that are printed, in their order, each with the advice for an error that it raises."""
