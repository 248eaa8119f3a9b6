"""Gateways in front of a model server and of an upstream that says exactly what a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everlong.gateway.journal import Journal, JournalEntry
from everlong.testing import ModelServer
from tests.examples import few
from tests.gateway.running import Raw, Running, run_gateway
from tests.gateway.upstream import Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as scripted:
        yield scripted


@pytest.fixture
def relay(upstream: Upstream, tmp_path: Path) -> Iterator[Running]:
    """A gateway in front of the scripted upstream, for models whose window nothing fills."""
    settings = {"compression": {"enabled": False}}
    with run_gateway(upstream.url, str(tmp_path / "relay.db"), settings) as running:
        yield running


@pytest.fixture
def raw(relay: Running) -> Iterator[Raw]:
    """A connection to that gateway."""
    with relay.raw() as client:
        yield client


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[JournalEntry]:
    """What gateways write into their journals from now on."""
    written: list[JournalEntry] = []
    put = Journal.put

    def noted(journal: Journal, entry: JournalEntry) -> int:
        written.append(entry)
        return put(journal, entry)

    monkeypatch.setattr(Journal, "put", noted)
    return written


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(model: ModelServer, tmp_path: Path) -> Iterator[Running]:
    """A gateway in front of the model server."""
    with run_gateway(model.url, str(tmp_path / "gateway.db")) as running:
        yield running


@pytest.fixture(params=few(["sqlite", "postgresql"]))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind; those who share the server part by tenant."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("postgres_url")
    return found
