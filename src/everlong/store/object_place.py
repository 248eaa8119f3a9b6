"""A place for large contents outside the database: a bucket with the S3 API, another cloud's, or a folder.

A row of the database holds a reference in the place of the bytes: address, key, size and hash of the object. It says
everything that a reader needs, so any process that can open the database can read the object. Credentials and endpoint
come from the environment, as every tool for that cloud reads them; no row and no setting holds one.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import orjson

from everlong.errors import StoreDamaged, StoreError, StoreUnavailable
from everlong.extras import install_command

KEPT_BYTES = 32 << 20
"""Bytes of objects that a process keeps in memory: the same large result is sent again with every turn."""

_SECONDS = 30
_ATTEMPTS = 3
_MOST_WORDS = 300


class Reference(NamedTuple):
    """The name of an object, as the row in the database holds it."""

    at: str
    key: str
    codec: int
    size: int
    hash: str

    @property
    def name(self) -> str:
        """The address of the object, for people."""
        return f"{self.at.rstrip('/')}/{self.key}"

    def packed(self) -> bytes:
        """Return the reference as a row holds it."""
        return orjson.dumps(self._asdict())


def read_reference(data: bytes) -> Reference:
    """Return the reference that a row holds."""
    try:
        return Reference(**orjson.loads(data))
    except (ValueError, TypeError) as error:
        raise StoreDamaged(
            f"a reference to an object cannot be read: {error}; run `everlong sessions verify`"
        ) from error


def hash_of(data: bytes) -> str:
    """Return the hash of an object's bytes, by which a reader sees that they are whole."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class ObjectPlace:
    """One bucket with a prefix, or one folder; every failure becomes an error of ours that names the object."""

    def __init__(self, url: str, *, seconds: float = _SECONDS, attempts: int = _ATTEMPTS) -> None:
        self.url = url
        try:
            self._library: Any = import_module("obstore")
            stores: Any = import_module("obstore.store")
        except ImportError as error:
            raise StoreError(f"{url} needs a package that is not installed: {install_command('objects')}") from error
        try:
            self._store = _open(stores, url, seconds, attempts)
        except (self._errors(), ValueError, OSError) as error:
            raise StoreUnavailable(f"store.objects: {url} cannot be opened: {_words(error)}") from error

    def put(self, key: str, data: bytes) -> None:
        """Write an object; writing the same one again changes nothing."""
        with self._telling(key, "written"):
            self._library.put(self._store, key, data)

    def get(self, key: str) -> bytes:
        """Return an object.

        Raises:
            StoreDamaged: There is none.
            StoreUnavailable: The place cannot be reached, or the object broke off.
        """
        with self._telling(key, "read"):
            try:
                return bytes(self._library.get(self._store, key).bytes())
            except FileNotFoundError as error:
                raise StoreDamaged(
                    f"the object {self._name(key)} is missing; bring it back from a version or a copy of the bucket"
                ) from error

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is as good as deleted."""
        with self._telling(key, "deleted"), suppress(FileNotFoundError):
            self._library.delete(self._store, key)

    @contextmanager
    def _telling(self, key: str, done: str) -> Iterator[None]:
        """Turn the library's errors into one of ours that names the object."""
        try:
            yield
        except (self._errors(), OSError) as error:
            raise StoreUnavailable(f"{self._name(key)} cannot be {done}: {_words(error)}") from error

    def _name(self, key: str) -> str:
        return f"{self.url.rstrip('/')}/{key}"

    def _errors(self) -> type[Exception]:
        found: type[Exception] = self._library.exceptions.BaseError
        return found


def _open(stores: Any, url: str, seconds: float, attempts: int) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return stores.LocalStore(folder)
    if parts.scheme == "memory":
        return stores.MemoryStore()
    from datetime import timedelta  # noqa: PLC0415 - only here

    limit = timedelta(seconds=seconds)
    # Limits of our own keep the library from reading this one of its variables.
    is_plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"true", "1"}
    options = {"timeout": limit, "connect_timeout": min(limit, timedelta(seconds=5)), "allow_http": is_plain}
    retries = {"max_retries": attempts - 1, "retry_timeout": limit}
    return stores.from_url(url, client_options=options, retry_config=retries)


def _words(error: Exception) -> str:
    """Return the first line of an error; the library adds the whole request after it."""
    return str(error).partition("\n")[0][:_MOST_WORDS]


# -- the places of this process, and the objects that it has read ------------------------------------------------------

_places: dict[str, ObjectPlace] = {}
_kept: OrderedDict[str, bytes] = OrderedDict()
_kept_bytes = 0
_lock = threading.Lock()


def place_at(url: str) -> ObjectPlace:
    """Return the place with an address; a process opens each once."""
    with _lock:
        found = _places.get(url)
    if found is None:
        found = ObjectPlace(url)
        with _lock:
            found = _places.setdefault(url, found)
    return found


def use_place(place: ObjectPlace) -> None:
    """Have this process reach an address through a place that was opened with other limits."""
    with _lock:
        _places[place.url] = place


def fetch(data: bytes) -> tuple[bytes, int]:
    """Return the bytes that a reference stands for, and how they are packed."""
    told = read_reference(data)
    with _lock:
        held = _kept.get(told.name)
        if held is not None:
            _kept.move_to_end(told.name)
            return held, told.codec
    held = fetch_anew(told)
    _keep(told.name, held)
    return held, told.codec


def fetch_anew(told: Reference) -> bytes:
    """Return the bytes of an object as they are in its place now."""
    held = place_at(told.at).get(told.key)
    if len(held) != told.size:
        raise StoreDamaged(f"the object {told.name} has {len(held):,} bytes and should have {told.size:,}")
    if hash_of(held) != told.hash:
        raise StoreDamaged(f"the object {told.name} was changed: it does not hash to what the store noted")
    return held


def drop_kept(name: str) -> None:
    """Take an object out of this process's memory."""
    global _kept_bytes  # noqa: PLW0603 - of the whole process
    with _lock:
        gone = _kept.pop(name, b"")
        _kept_bytes -= len(gone)


def _keep(name: str, data: bytes) -> None:
    global _kept_bytes  # noqa: PLW0603 - as above
    if len(data) > KEPT_BYTES // 4:
        return
    with _lock:
        if name not in _kept:
            _kept[name] = data
            _kept_bytes += len(data)
        while _kept_bytes > KEPT_BYTES:
            _, gone = _kept.popitem(last=False)
            _kept_bytes -= len(gone)
