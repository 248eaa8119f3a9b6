"""``everlong sessions``: the conversations in the store. The commands are in ``sessions_*.py``, by subject."""

from __future__ import annotations

import click

from everlong.cli.sessions_change import delete, forget
from everlong.cli.sessions_common import store_option, tenant_options
from everlong.cli.sessions_export import export
from everlong.cli.sessions_import import import_
from everlong.cli.sessions_list import compactions, list_, rename, tail
from everlong.cli.sessions_search import search
from everlong.cli.sessions_show import show
from everlong.cli.sessions_upkeep import backup, stats, vacuum, verify


@click.group("sessions")
@store_option(hidden=False)
@tenant_options(hidden=False)
def sessions_group() -> None:
    """Look at, search, import, export and keep the conversations in the store."""


for _made in (
    list_,
    show,
    search,
    tail,
    rename,
    compactions,
    export,
    import_,
    verify,
    delete,
    forget,
    stats,
    backup,
    vacuum,
):
    sessions_group.add_command(_made)
