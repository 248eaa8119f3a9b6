"""What the commands of ``everlong sessions`` share: which store, which session, times, how data and words are put out.

What a store is, the store package knows; it is loaded only when a command runs: ``everlong --help`` stays quick.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from everlong.cli.screen import console

if TYPE_CHECKING:
    from everlong.config.settings import StoreSettings
    from everlong.store import Conversation, Session, Store

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(r"(\d{1,6})([mhdw])")
_KEY = "everlong.store"
_TENANT = "everlong.tenant"
_ALL = "everlong.all_tenants"
_GATHERED = "everlong.gathered"
"""What was put out as JSON for each tenant, where a command is run for all."""


def _remember(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_KEY] = value


def store_option(*, hidden: bool) -> Callable[[Any], Any]:
    """Which store is meant."""
    return click.option(
        "--store",
        metavar="PATH|URL",
        expose_value=False,
        callback=_remember,
        hidden=hidden,
        help="The store to use: a SQLite file or a database url.  [default: as configured]",
    )


def _name_tenant(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_TENANT] = value


def _name_all(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_ALL] = True


def tenant_options(*, hidden: bool) -> Callable[[Any], Any]:
    """Whose conversations are meant: a gateway with keys keeps those of each key apart."""

    def made(function: Any) -> Any:
        one = click.option(
            "--tenant",
            metavar="NAME",
            expose_value=False,
            callback=_name_tenant,
            hidden=hidden,
            help="Those of this key of the gateway (gateway.keys.NAME).  [default: those of no key]",
        )
        every = click.option(
            "--all-tenants",
            is_flag=True,
            expose_value=False,
            callback=_name_all,
            hidden=hidden,
            help="Those of all keys, one after the other.",
        )
        return one(every(function))

    return made


def command(name: str, tenants: Literal["one", "each", "all"] = "one") -> Callable[[Callable[..., Any]], click.Command]:
    """A command of the group ``sessions``; ``--store`` and ``--tenant`` may also stand after its name.

    With ``each`` it is run for one tenant after the other where the user says so; with ``all`` it sees to all itself.
    """

    def made(function: Callable[..., Any]) -> click.Command:
        run = function if tenants == "all" else for_each_tenant(function, is_allowed=tenants == "each")
        return click.command(name)(store_option(hidden=True)(tenant_options(hidden=True)(run)))

    return made


def for_each_tenant(function: Callable[..., Any], *, is_allowed: bool = True) -> Callable[..., Any]:
    """Return a command that is run for every tenant with ``--all-tenants``: what it says below the name of each."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        meta = click.get_current_context().meta
        if not meta.get(_ALL):
            function(*arguments, **options)
            return
        if not is_allowed or _TENANT in meta:
            raise click.UsageError(
                "this is done for one tenant at a time; name it with --tenant, without --all-tenants"
            )
        code, meta[_GATHERED] = 0, {}
        for name in _all_tenants():
            meta[_TENANT] = name
            if not options.get("as_json"):
                say(f"{name}:")
            try:
                function(*arguments, **options)
            except click.exceptions.Exit as left:
                code = max(code, left.exit_code)
        gathered = meta.pop(_GATHERED)
        if options.get("as_json"):
            put_json(gathered)
        if code:
            raise click.exceptions.Exit(code)

    return run


def _all_tenants() -> list[str]:
    from everlong.store.maintenance import tenants  # noqa: PLC0415 - keeps `everlong --help` quick

    with opened() as store:
        return tenants(store.database)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")


def when(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A moment in seconds since 1970: a date, with or without a time (local unless it says so), or how long ago."""
    if value is None:
        return None
    text = value.strip()
    if text in {"today", "yesterday"}:
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return (midnight - timedelta(days=text == "yesterday")).timestamp()
    if ago := _AGO.fullmatch(text):
        return time.time() - timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds()
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{value!r} is no time; write 2026-01-31, '2026-01-31 14:25', today, or how long ago: 30m, 12h, 7d"
        ) from None


def store_settings() -> StoreSettings:
    """The settings of the store, with the one that the command line names."""
    from everlong.config import load_settings  # noqa: PLC0415 - keeps `everlong --help` quick

    settings = load_settings().settings.store
    named = click.get_current_context().meta.get(_KEY)
    if named is None:
        return settings
    return settings.model_copy(update={"url": named} if "://" in named else {"url": None, "path": named})


@contextmanager
def opened(*, new: bool = False) -> Iterator[Store]:
    """The store that is meant; one that the command line names must be there, unless a new one is allowed."""
    from everlong.errors import StoreUnavailable  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store import open_store  # noqa: PLC0415 - as above

    named = click.get_current_context().meta.get(_KEY)
    if named is not None and not new and "://" not in named and not Path(named).expanduser().exists():
        raise StoreUnavailable(
            f"there is no store at {named}; `everlong sessions import --store {named} FILE` makes one"
        )
    tenant = click.get_current_context().meta.get(_TENANT, "local")
    with open_store(store_settings(), tenant) as store:
        if tenant != "local" and not new:
            _check_tenant(store)
        yield store


def _check_tenant(store: Store) -> None:
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.maintenance import tenants  # noqa: PLC0415 - as above

    known = tenants(store.database)
    if store.tenant not in known:
        raise NotStored(
            f"nothing of a tenant {store.tenant!r} is in {store.database.backend.where}; there are: {', '.join(known)}"
        )


@contextmanager
def opened_for_all() -> Iterator[list[Store]]:
    """The store that is meant, for each tenant that has something in it."""
    from everlong.store import Store  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.maintenance import tenants  # noqa: PLC0415 - as above

    with opened() as store:
        yield [Store(store.database, name) for name in tenants(store.database)]


def found(store: Store, name: str) -> Conversation:
    """Return a conversation by an id, a title or the beginning of an id; what is near is named where there is none."""
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick

    try:
        return store.conversations.find(name)
    except NotStored as error:
        raise _with_what_is_near(store, name, error) from error


def found_part(store: Store, name: str) -> Session:
    """Return a part of a conversation in the same way."""
    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick

    try:
        return store.sessions.find(name)
    except NotStored as error:
        raise _with_what_is_near(store, name, error) from error


def _with_what_is_near(store: Store, name: str, error: Exception) -> Exception:
    from difflib import get_close_matches  # noqa: PLC0415 - only where it is needed

    from everlong.errors import NotStored  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - as above

    known = store.sessions.newest(limit=2_000)
    titles = {one.title.lower(): one.title for one in known if one.title}
    near = [titles[text] for text in titles if name and name.lower() in text][:3]
    near += [titles[text] for text in get_close_matches(name.lower(), titles, 3) if titles[text] not in near]
    near += get_close_matches(name, [one.id for one in known], 2)
    if not near:
        return error
    said = " or ".join(repr(one_line(text)) for text in near[:3])
    return NotStored(f"{error}; did you mean {said}?")


def to_go_on_with(store: Store, folder: Path, program: str) -> tuple[str | None, str]:
    """Return the newest conversation of a folder, by its id, for ``--continue``; else None and what to do instead.

    Conversations of clients of the gateway, and imported ones, are not gone on with here.
    """
    from everlong.store.transcripts.parts import name_of  # noqa: PLC0415 - keeps `everlong --help` quick

    def is_ours(one: Conversation) -> bool:
        return one.platform != "gateway" and not one.is_imported and one.messages > 0

    here = str(folder.resolve())
    newest = store.conversations.newest(1, folder=here, where=is_ours)
    if newest:
        return newest[0].id, ""
    elsewhere = store.conversations.newest(1, where=is_ours)
    if not elsewhere:
        return None, "there is no session to go on with yet"
    (one,) = elsewhere
    where = f" in {one.folder}" if one.folder else ""
    return None, (
        f"there is no session to go on with in {here}; the newest elsewhere is {name_of(one)!r}{where}: "
        f"{program} --resume {one.id}"
    )


def put_json(value: Any) -> None:
    """Data on stdout as JSON; of a command that is run for all tenants, all together at the end."""
    meta = click.get_current_context().meta
    if _GATHERED in meta:
        meta[_GATHERED][meta[_TENANT]] = value
        return
    from everlong.store.transcripts.writer import json_text  # noqa: PLC0415 - keeps `everlong --help` quick

    click.echo(json_text(value, indent=2))


def put_line(value: Any) -> None:
    """Data on stdout as JSON on one line."""
    click.echo(json.dumps(value, ensure_ascii=True, default=str))


def say(text: str) -> None:
    """A word to the person who watches."""
    click.echo(f"everlong: {text}", err=True)


def confirm(question: str, yes: bool) -> None:
    """Ask before what cannot be undone; without a yes nothing is done."""
    if yes:
        return
    try:
        is_wanted = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nobody is there to answer; say --yes to do it without being asked") from None
    if not is_wanted:
        say("nothing was changed")
        raise click.exceptions.Exit(1)


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """A number of bytes for people."""
    amount = float(number)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1_000:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1_000
    return f"{amount:,.1f} GB"


BATCH = 500

Step: TypeAlias = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@contextmanager
def bar(doing: str) -> Iterator[Step]:
    """A bar on stderr while work goes on, only where a person watches."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def index_what_is_pending(store: Store, seconds: float | None = None) -> int:
    """Index what is stored and not indexed, for so long at most; how many were left. A busy store is left alone."""
    from everlong.errors import StoreError  # noqa: PLC0415 - keeps `everlong --help` quick

    left = _pending(store)
    total = left
    until = None if seconds is None else time.monotonic() + seconds
    if not left:
        return 0
    with bar("indexing") as step:
        while left and (until is None or time.monotonic() < until):
            try:
                taken = store.searcher.index_pending(BATCH)
            except StoreError:
                if seconds is None:
                    raise
                break  # a search looks through what is not indexed, so it need not wait for the index
            if not taken:
                break
            left = max(0, left - taken)
            step(total - left, total)
    return left


def _pending(store: Store) -> int:
    from sqlalchemy import func, select  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.store.schema import pending  # noqa: PLC0415 - as above

    with store.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(pending)).scalar_one())
