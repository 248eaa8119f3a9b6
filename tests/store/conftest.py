"""The databases that the store is tested on: a SQLite file, and a PostgreSQL server of our own."""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from everlong.store import Store
from everlong.store.database import Database
from everlong.store.opening import open_database
from tests.examples import length

DATABASES = ("sqlite", "postgresql")
ON_EACH = {f"tests.store.test_{name}" for name in ("faults", "forget", "tree", "turns")}
"""The modules whose tests always run on a file and on a server. Of the others every fourth test runs on a server, which
takes four times as long; in `make soak` each runs on every kind of database."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs a database on its kinds of them."""
    if "url" in metafunc.fixturenames:
        module = metafunc.module.__name__
        kinds = list(DATABASES)
        if length(0, 1) and module not in ON_EACH:
            kinds = ["postgresql" if zlib.crc32(metafunc.function.__name__.encode()) % 4 == 0 else "sqlite"]
        metafunc.parametrize("url", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database of each kind for the whole run; tests part by tenant."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("store") / "store.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture(scope="session")
def database(url: str) -> Iterator[Database]:
    opened = open_database(url)
    yield opened
    opened.close()


@pytest.fixture
def store(database: Database) -> Store:
    """A tenant of its own in the shared database."""
    return Store(database, uuid.uuid4().hex)


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def schema_url(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """A schema of its own in the PostgreSQL database."""
    name = "s_" + re.sub(r"\W", "_", tmp_path.name).lower()
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {name} CASCADE"))
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield f"{postgres_url}&options=-csearch_path%3D{name}"
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()
