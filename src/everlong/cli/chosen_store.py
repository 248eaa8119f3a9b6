"""The store, tenant and conversation that the options of a command choose.

``--store`` and ``--tenant`` are kept in click's ``meta``, where the subcommands of ``everlong sessions`` find them.
Commands that do not touch the store import this module too: it loads the database only when it opens a store.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from everlong import config
from everlong.cli.output import progress_bar, say, working
from everlong.errors import NotStored, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from everlong.config.settings import StoreSettings
    from everlong.store import Conversation, Store
    from everlong.store.search.vectors import Embedder

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(r"(\d{1,6})([mhdw])")
_STORE = "everlong.store"
_TENANT = "everlong.tenant"
_ALL_TENANTS = "everlong.all_tenants"
_OUTPUT = "everlong.output"
"""The JSON of each tenant so far, while a command runs for all of them."""
_BATCH = 500
_EMBEDDED_AT_ONCE = 32


# -- options -----------------------------------------------------------------------------------------------------------


def _keep_as(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that keeps an option's value in click's ``meta``."""

    def keep(context: click.Context, _option: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            context.meta[key] = value

    return keep


store_option = click.option(
    "--store",
    metavar="PATH|URL",
    expose_value=False,
    callback=_keep_as(_STORE),
    help="The store to use: a SQLite file or a database url.  [default: as configured]",
)
tenant_option = click.option(
    "--tenant",
    metavar="NAME",
    expose_value=False,
    callback=_keep_as(_TENANT),
    help="Conversations of this gateway key (gateway.keys.NAME).  [default: those without a key]",
)
all_tenants_option = click.option(
    "--all-tenants",
    is_flag=True,
    expose_value=False,
    callback=_keep_as(_ALL_TENANTS),
    help="Conversations of all gateway keys, one key after the other.",
)


def command(name: str, tenants: Literal["one", "each", "all"] = "one") -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a subcommand of ``everlong sessions``.

    Args:
        name: The name of the subcommand.
        tenants: ``one`` refuses ``--all-tenants``; ``each`` runs the command once for every tenant; ``all`` leaves it
            to the command.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        run = function if tenants == "all" else run_for_each_tenant(function, is_allowed=tenants == "each")
        return click.command(name)(store_option(tenant_option(all_tenants_option(run))))

    return decorate


def run_for_each_tenant(function: Callable[..., Any], *, is_allowed: bool = True) -> Callable[..., Any]:
    """Return the command, run once for every tenant if the user says ``--all-tenants``."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        meta = click.get_current_context().meta
        if not meta.get(_ALL_TENANTS):
            function(*arguments, **options)
            return
        if not is_allowed or _TENANT in meta:
            raise click.UsageError(
                "this is done for one tenant at a time; name it with --tenant, without --all-tenants"
            )
        from everlong.store.upkeep.maintenance import tenants  # noqa: PLC0415 - loads the database

        code, meta[_OUTPUT] = 0, {}
        with open_chosen_store() as store:
            names = tenants(store.database)
        for number, name in enumerate(names):
            meta[_TENANT] = name
            if not options.get("as_json"):  # a part of the data: without it nobody could tell whose the rows are
                click.echo(f"\n{name}:" if number else f"{name}:")
            try:
                function(*arguments, **options)
            except click.exceptions.Exit as left:
                code = max(code, left.exit_code)
        output = meta.pop(_OUTPUT)
        if options.get("as_json"):
            print_json(output)
        if code:
            raise click.exceptions.Exit(code)

    return run


def is_for_all_tenants() -> bool:
    """Return whether the user says ``--all-tenants``."""
    return bool(click.get_current_context().meta.get(_ALL_TENANTS))


def parse_time(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Return the seconds since 1970 of a date, a local time, or a time ago such as ``7d``; a callback for options."""
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


# -- opening -----------------------------------------------------------------------------------------------------------


def store_settings() -> StoreSettings:
    """Return the store's settings, with the path or url that ``--store`` names."""
    settings = config.load_settings().settings.store
    named = click.get_current_context().meta.get(_STORE)
    if named is None:
        return settings
    return settings.model_copy(update={"url": named})


def use_store(name: str) -> None:
    """Choose a store by its path or url, as ``--store`` does."""
    click.get_current_context().meta[_STORE] = name


def chosen_tenant() -> str:
    """Return the tenant that ``--tenant`` names."""
    return str(click.get_current_context().meta.get(_TENANT, "local"))


def chosen_options() -> str:
    """Return the options that choose the same store and tenant in another command, with a space before each."""
    named, tenant = click.get_current_context().meta.get(_STORE), chosen_tenant()
    store = "" if named is None else f" --store {shlex.quote(named)}"
    return store if tenant == "local" else f"{store} --tenant {shlex.quote(tenant)}"


def other_tenants(store: Store) -> str:
    """Return how to see what other tenants have; empty if they have nothing, or are shown already."""
    from everlong.store.upkeep.maintenance import tenants  # noqa: PLC0415 - loads the database

    others = [name for name in tenants(store.database) if name not in {"local", store.tenant}]
    if not others or is_for_all_tenants():
        return ""
    return f"--all-tenants shows those of {', '.join(others)} too"


@contextmanager
def open_chosen_store(*, new: bool = False) -> Iterator[Store]:
    """Open the store that the options choose.

    Args:
        new: True if a store or tenant that does not exist yet is created.

    Raises:
        StoreUnavailable: ``--store`` names a file that does not exist.
        NotStored: the store knows no tenant of that name.
    """
    from everlong.store import open_store  # noqa: PLC0415 - loads the database

    meta = click.get_current_context().meta
    named, tenant = meta.get(_STORE), meta.get(_TENANT, "local")
    if named is not None and not new and "://" not in named and not Path(named).expanduser().exists():
        raise StoreUnavailable(
            f"there is no store at {named}; `everlong sessions --store {named} import FILE` makes one"
        )
    with open_store(store_settings(), tenant, embedder=_embedder()) as store:
        if tenant != "local" and not new:
            _check_tenant(store)
        yield store


def _embedder() -> Embedder | None:
    """Return the model for the search by meaning, if the settings name one that can be used."""
    settings = config.load_settings().settings
    if settings.search.embeddings == "off":
        return None
    from everlong.providers.embeddings import usable_embedder  # noqa: PLC0415 - seldom needed

    return usable_embedder(settings, say)


def _check_tenant(store: Store) -> None:
    from everlong.store.upkeep.maintenance import tenants  # noqa: PLC0415 - loads the database

    known = tenants(store.database)
    if store.tenant not in known:
        raise NotStored(
            f"nothing of a tenant {store.tenant!r} is in {store.database.backend.where}; there are: {', '.join(known)}"
        )


@contextmanager
def open_for_all_tenants() -> Iterator[list[Store]]:
    """Open the chosen store once for each tenant."""
    from everlong.store import Store  # noqa: PLC0415 - loads the database
    from everlong.store.upkeep.maintenance import tenants  # noqa: PLC0415 - as above

    with open_chosen_store() as store:
        yield [Store(store.database, name) for name in tenants(store.database)]


def index_pending(store: Store, seconds: float | None = None) -> None:
    """Add messages that are not indexed yet to the search index.

    Args:
        store: The store.
        seconds: The most time to take. With a limit, a busy store is left alone: a search says that it is partial.
    """
    from sqlalchemy import select  # noqa: PLC0415 - loads the database

    from everlong.store.schema import pending  # noqa: PLC0415 - as above

    with store.database.read() as connection:
        if connection.execute(select(pending).limit(1)).first() is None:
            return
    until = None if seconds is None else time.monotonic() + seconds
    with working("indexing"):
        while until is None or time.monotonic() < until:
            try:
                if not store.searcher.index_pending(_BATCH):
                    return
            except StoreError:
                if seconds is None:
                    raise
                return


def embed_pending(store: Store) -> int:
    """Make vectors for all messages that have none, and return the number that is left."""
    left = total = store.searcher.count_unembedded()
    if not total:
        return 0
    with progress_bar("embedding") as step:
        while left and store.searcher.embed_pending(_EMBEDDED_AT_ONCE):
            left = store.searcher.count_unembedded()
            step(max(0, total - left), total)
    return left


# -- conversations -----------------------------------------------------------------------------------------------------


def find_conversation(store: Store, name: str) -> Conversation:
    """Return a conversation by its id, the beginning of its id, or its title.

    Raises:
        NotStored: there is none; the message suggests similar ones.
    """
    try:
        return store.conversations.find(name)
    except NotStored as error:
        raise _suggest_names(store, name, error) from error


def _suggest_names(store: Store, name: str, error: Exception) -> Exception:
    from difflib import get_close_matches  # noqa: PLC0415 - only for a name that was not found

    from everlong.store.transcripts import one_line  # noqa: PLC0415 - loads the database

    known = [text for one in store.sessions.newest(limit=2_000) for text in (one.title, one.id) if text]
    near = [text for text in known if name and name.lower() in text.lower()] or get_close_matches(name, known, 3, 0.5)
    said = " or ".join(repr(one_line(text)) for text in dict.fromkeys(near[:3]))
    return NotStored(f"{error}; did you mean {said}?") if said else error


def newest_to_resume(store: Store, folder: Path) -> str:
    """Return the id of the newest conversation of a folder, for ``--continue``.

    Imported conversations and those of the gateway's clients do not count: the agent did not hold them.

    Raises:
        NotStored: there is none.
    """

    def is_ours(one: Conversation) -> bool:
        return one.platform != "gateway" and not one.is_imported and one.messages > 0

    here = str(folder.resolve())
    newest = store.conversations.newest(1, folder=here, where=is_ours)
    if not newest:
        raise NotStored(
            f"there is no session to go on with in {here}; leave --continue out, or name one with --resume: "
            "`everlong sessions list` shows them"
        )
    return newest[0].id


def print_json(value: Any) -> None:
    """Print data as JSON; while a command runs for all tenants, keep it for one object at the end."""
    meta = click.get_current_context().meta
    if _OUTPUT in meta:
        meta[_OUTPUT][meta[_TENANT]] = value
        return
    from everlong.store.session_log import json_text  # noqa: PLC0415 - loads the database

    click.echo(json_text(value, indent=2))
