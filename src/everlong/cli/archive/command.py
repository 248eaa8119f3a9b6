"""``everlong archive``: imports the logs of other clients, once or for as long as it runs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from everlong.cli.chosen_store import index_pending, open_chosen_store, print_json, store_option
from everlong.cli.output import counted, json_option, progress_bar, say

if TYPE_CHECKING:
    from everlong.cli.archive.places import LogFolder
    from everlong.cli.archive.scan import ScanResult
    from everlong.store import Store

__all__ = ["archive_command"]

_MOST_LISTED = 20
_INTERVAL = 5.0
"""Seconds between two looks at the folders: clients delete logs after days, and people search for older words."""


@click.command("archive")
@click.option("--once", is_flag=True, help="Import what is there and exit.")
@json_option
@store_option
def archive_command(once: bool, as_json: bool) -> None:
    """Import the logs of other clients before those delete them, and go on while the clients write.

    Without --once it runs until it is stopped and looks at the folders again and again; only what has changed is read.
    The clients' files are never changed. Importing twice adds nothing, and a conversation that went through the gateway
    appears once.
    """
    if as_json and not once:
        raise click.UsageError("--json reports one import, so it needs --once")
    from everlong.cli.archive.places import log_folders  # noqa: PLC0415 - keeps `--help` quick

    with open_chosen_store(new=True) as store:
        if once:
            _import_once(store, log_folders(), as_json=as_json)
        else:
            _watch(store, log_folders())


def _import_once(store: Store, folders: list[LogFolder], *, as_json: bool) -> None:
    from everlong.cli.archive.scan import Scan  # noqa: PLC0415 - loads the database

    with progress_bar("archiving") as step:
        result = Scan(store, folders).run(step)
    _say_skipped(result)
    index_pending(store)
    if as_json:
        outcomes = {name: result.outcomes[name] for name in ("new", "grown", "known", "empty")}
        told = {"files": result.files, "changed": result.changed, **outcomes, "clients": dict(result.clients)}
        print_json({**told, "broken_lines": result.broken, "skipped": result.skipped})
    say(_describe(result))
    if result.skipped:
        raise click.exceptions.Exit(1)


def _watch(store: Store, folders: list[LogFolder]) -> None:
    from everlong.cli.archive.scan import Scan  # noqa: PLC0415 - loads the database
    from everlong.errors import StoreBusy  # noqa: PLC0415 - as above

    scan = Scan(store, folders, is_growing=True)
    say(f"archiving the logs of {counted(sum(one.path.is_dir() for one in folders), 'folder')}; Ctrl-C ends it")
    with _stop_signals() as stop:
        while not stop.is_set():
            began = time.monotonic()
            try:
                result = scan.run(is_stopped=stop.is_set)
                if result.sessions:
                    index_pending(store, seconds=_INTERVAL)
                    say(_describe(result))
                _say_skipped(result)
            except StoreBusy as error:
                say(f"{error}; trying again in {_INTERVAL:g} s")
            stop.wait(max(0.05, _INTERVAL - (time.monotonic() - began)))


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that is set when the process is asked to end."""
    stop = threading.Event()

    def ask(_number: int, _frame: object) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _describe(result: ScanResult) -> str:
    from everlong.cli.archive.log_import import describe_outcomes  # noqa: PLC0415 - loads the database

    text = f"read {result.changed:,} of {counted(result.files, 'log')}"
    text += f": {describe_outcomes(result.outcomes)}" if result.outcomes.total() else ""
    return text + (f"; {counted(result.broken, 'line')} could not be read" if result.broken else "")


def _say_skipped(result: ScanResult) -> None:
    for name, problem in list(result.skipped.items())[:_MOST_LISTED]:
        say(f"skipped {name}: {' '.join(problem.split())}")
    if len(result.skipped) > _MOST_LISTED:
        say(f"… and {len(result.skipped) - _MOST_LISTED:,} more files were skipped; --once --json lists all")
