"""``everlong sessions``: the conversations in the store. The commands are in ``sessions_*.py``, by subject."""

from __future__ import annotations

import click

from everlong.cli.sessions_change import backup, delete, forget, stats, vacuum, verify
from everlong.cli.sessions_common import store_option, tenant_options
from everlong.cli.sessions_read import compactions, list_, rename, search, show, tail
from everlong.cli.sessions_transfer import export, import_


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
