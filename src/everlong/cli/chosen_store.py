"""The store, tenant and conversation that the options of a command choose.

``--store`` and ``--tenant`` are kept in click's ``meta``, where the subcommands of ``everlong sessions`` find them.
Commands that do not touch the store import this module too: it loads the database only when it opens a store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from everlong import config
from everlong.cli.output import progress_bar, say
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


class _Subcommand(click.Command):
    """A subcommand that says where an option of its group stands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; name the right place of an option of the group."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            group = ctx.parent.command.params if ctx.parent else ()
            if not any(error.option_name in option.opts for option in group):
                raise
            place = f"everlong sessions {error.option_name} … {self.name}"
            raise click.UsageError(f"{error.option_name} stands before the command: {place}", ctx) from None


def command(name: str, tenants: Literal["one", "each", "all"] = "one") -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a subcommand of ``everlong sessions``.

    Args:
        name: The name of the subcommand.
        tenants: ``one`` refuses ``--all-tenants``; ``each`` runs the command once for every tenant; ``all`` leaves it
            to the command.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        run = function if tenants == "all" else run_for_each_tenant(function, is_allowed=tenants == "each")
        return click.command(name, cls=_Subcommand)(run)

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


def index_pending(store: Store, seconds: float | None = None) -> int:
    """Add messages that are not indexed yet to the search index, and return the number that is left.

    Args:
        store: The store.
        seconds: The most time to take. With a limit, a store that is busy is left alone.
    """
    left = total = _count_pending(store)
    if not left:
        return 0
    until = None if seconds is None else time.monotonic() + seconds
    with progress_bar("indexing") as step:
        while left and (until is None or time.monotonic() < until):
            try:
                taken = store.searcher.index_pending(_BATCH)
            except StoreError:
                if seconds is None:
                    raise
                break  # a search says that it is partial
            if not taken:
                break
            left = max(0, left - taken)
            step(total - left, total)
    return left


def embed_pending(store: Store) -> int:
    """Make vectors for all messages that have none, and return the number that is left."""
    left = total = store.searcher.count_unembedded()
    with progress_bar("embedding") as step:
        while left:
            if not store.searcher.embed_pending(_EMBEDDED_AT_ONCE):
                break
            left = store.searcher.count_unembedded()
            step(max(0, total - left), total)
    return left


def _count_pending(store: Store) -> int:
    from sqlalchemy import func, select  # noqa: PLC0415 - loads the database

    from everlong.store.schema import pending  # noqa: PLC0415 - as above

    with store.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(pending)).scalar_one())


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

    known = store.sessions.newest(limit=2_000)
    titles = {one.title.lower(): one.title for one in known if one.title}
    near = [titles[text] for text in titles if name and name.lower() in text][:3]
    near += [titles[text] for text in get_close_matches(name.lower(), titles, 3) if titles[text] not in near]
    near += get_close_matches(name, [one.id for one in known], 2)
    if not near:
        return error
    said = " or ".join(repr(one_line(text)) for text in near[:3])
    return NotStored(f"{error}; did you mean {said}?")


def newest_to_resume(store: Store, folder: Path, program: str) -> tuple[str | None, str]:
    """Return the id of the newest conversation of a folder for ``--continue``; else None and what to do instead.

    Imported conversations and those of the gateway's clients do not count: the agent did not hold them.
    """
    from everlong.store.transcripts.parts import name_of  # noqa: PLC0415 - loads the database

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


def print_json(value: Any) -> None:
    """Print data as JSON; while a command runs for all tenants, keep it for one object at the end."""
    meta = click.get_current_context().meta
    if _OUTPUT in meta:
        meta[_OUTPUT][meta[_TENANT]] = value
        return
    from everlong.store.session_log import json_text  # noqa: PLC0415 - loads the database

    click.echo(json_text(value, indent=2))
