"""``everlong inspect --web``: the inspector over a store, or over the conversations of a file."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import webbrowser
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sqlalchemy import Connection, update

from everlong import config
from everlong.caching.rules import provider_of
from everlong.caching.simulation import MODEL
from everlong.cli.chosen_store import chosen_tenant, open_chosen_store, use_store
from everlong.cli.output import counted, read_input, say, track
from everlong.errors import ConfigError
from everlong.extras import install_command
from everlong.model import leading_system_count
from everlong.providers.base import Usage
from everlong.providers.catalogue import Catalogue
from everlong.providers.endpoints import ENDPOINTS
from everlong.store import open_store
from everlong.store.conversations import ConversationLine
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.schema import session, turn
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.store import Store

_SQLITE = b"SQLite format 3\x00"
_NICE = 5
"""The steps by which pages stand back behind other processes."""
_NEEDED = ("aiohttp", "jinja2", "markdown_it", "nh3")


def is_installed() -> bool:
    """Return whether all that the inspector needs is installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


def check_installed() -> None:
    """Raise a `ConfigError` that says how to install the inspector, if it is not installed."""
    if not is_installed():
        raise ConfigError(
            f"the inspector is not installed; install it with: {install_command('inspector')}", key="inspect"
        )


def show_web(target: str | None, *, port: int, opens_browser: bool, model: str | None = None) -> None:
    """Serve the inspector over a store or a file until it is stopped; ``model`` is asked for the requests of a file."""
    check_installed()
    if target is None or "://" in target or _is_store(target):
        if target is not None:
            use_store(target)
        with open_chosen_store(new=target is None) as store:
            serve_inspector(store, target, port=port, opens_browser=opens_browser)
        return
    with (
        tempfile.TemporaryDirectory(prefix="everlong-inspect-") as folder,
        _open_transcript(target, Path(folder) / "store.db", model) as store,
    ):
        serve_inspector(store, target, port=port, opens_browser=opens_browser, is_copy=True)


def serve_for_gateway() -> None:
    """Serve the inspector to the gateway that started this process, until that closes standard input.

    The first line of input is JSON with the store and the gateway's secret, which no argument and no environment shows.
    """
    check_installed()
    told = json.loads(sys.stdin.buffer.readline())
    use_store(told["store"])
    with open_chosen_store() as store:
        serve_inspector(store, port=0, opens_browser=False, proof=told["proof"])


def serve_inspector(
    store: Store,
    name: str | None = None,
    *,
    port: int,
    opens_browser: bool,
    proof: str = "",
    models: Mapping[str, Any] | None = None,
    is_copy: bool = False,
) -> None:
    """Serve the inspector over an open store until it is stopped.

    Args:
        store: The store.
        name: The store as people know it.
        port: The port on this machine; 0 for any free one.
        opens_browser: True to open the browser.
        proof: The secret of the gateway that started this.
        models: Settings of models in the store.
        is_copy: True if the store is a copy of a file: its requests are reckoned, and compactions may be tried on it.
    """
    import asyncio  # noqa: PLC0415 - keeps `--help` quick

    from everlong.inspector.app import serve  # noqa: PLC0415 - as above
    from everlong.inspector.handlers import Reader  # noqa: PLC0415 - as above
    from everlong.inspector.security import Watch  # noqa: PLC0415 - as above

    def tell(address: str) -> None:
        if proof:  # the gateway reads where it listens
            click.echo(address)
            return
        say(f"the inspector is at {address} (only this machine reaches it; Ctrl-C stops it)")
        if opens_browser and not webbrowser.open(address):
            say("no browser could be opened; open the address yourself")

    with suppress(AttributeError, OSError):  # a page can wait, a gateway's client cannot
        os.nice(_NICE)
    settings = config.load_settings({"models": models} if models else None).settings
    reader = Reader(store.database, settings, name or store.database.backend.where, is_copy=is_copy)
    watch = Watch(store.tenant, proof)
    asyncio.run(serve(reader, watch, port=port, on_ready=tell, until_eof=bool(proof)))


def _is_store(target: str) -> bool:
    if target == "-":
        return False
    with Path(target).open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


@contextmanager
def _open_transcript(file: str, path: Path, model: str | None) -> Iterator[Store]:
    """Open a store of its own for the conversations of a file, with the requests that would have led to them."""
    transcript = read_input(file)
    written = 0.0 if file == "-" else Path(file).stat().st_mtime
    with open_store(path, chosen_tenant(), waits_for_disk=False) as store:
        origin = ImportOrigin(Path(file).name, written)
        added = 0
        for one in track(transcript.conversations, "reading"):
            chosen = model or one.model or MODEL
            counter = MessageCounter(counter_for(chosen))
            done = Importer(store).add(one, origin)
            if done.session is not None and done.outcome == "new":
                lead = one.messages[: leading_system_count(one.messages)]
                head = counter.count_tools(one.tools) + sum(counter.counts(lead))
                _play(store, done.session, chosen, head, counter)
            added += done.outcome != "empty"
        say(f"showing {counted(added, 'conversation')} of {file}; nothing of it is kept after this")
        yield store


def _play(store: Store, ident: str, model: str, head: int, counter: MessageCounter) -> None:
    """Store the requests that would have led to an imported conversation: each sends everything before its answer.

    What a request has in common with the one before it counts as read from the provider's cache. ``head`` are the
    tokens of tools and system prompt.
    """
    settings = config.load_settings().settings
    provider = provider_of(model=model)
    if ":" not in model and provider in ENDPOINTS:
        model = f"{provider}:{model}"
    price = partial(Catalogue(settings.models, settings.providers).cost, model)
    rows: list[dict[str, Any]] = []
    sums: Counter[str] = Counter()
    same = {"tenant": store.tenant, "session": ident, "branch": store.sessions.get(ident).branch}
    same |= {"model": model, "status": "done"}
    sent, cached, place = head, 0, None
    for line in store.conversations.entries(ident):
        if not isinstance(line, ConversationLine) or line.status is not None:
            continue
        entry = line.entry
        tokens = 0 if entry.id is None else counter.count(entry.message)
        if entry.message["role"] == "assistant" and place is not None:
            usage = {"cache_read_tokens": cached, "cache_write_tokens": sent - cached, "output_tokens": tokens}
            sums.update(usage, api_calls=1)
            asked = {"node": place.id, "depth": place.depth, "ts": entry.ts}
            answered = {"reply": entry.digest, "echo_node": entry.id, "cost": price(Usage(**usage)) or 0.0}
            rows.append({**same, **asked, **answered, "usage": json.dumps(usage)})
            cached = sent
        sent, place = sent + tokens, entry

    def write(connection: Connection) -> None:
        if rows:
            connection.execute(turn.insert(), rows)
        values = {**sums, "cost": sum(row["cost"] for row in rows), "model": model}
        connection.execute(update(session).where(session.c.id == ident).values(values))

    store.database.write(write)


if __name__ == "__main__":
    click.Command("inspector", callback=serve_for_gateway)()  # in a context, in which the store is chosen
