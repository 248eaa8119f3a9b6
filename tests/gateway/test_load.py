"""Many clients at two replicas while the upstream, the database and a replica fail: no turn is lost or wrong."""

from __future__ import annotations

import pytest
from bench.gateway.load import run

CLIENTS = 16
SECONDS = 8.0


@pytest.mark.usefixtures(
    "postgres_url"
)  # says so where there is no server; this one has to be restarted, so has its own
def test_clients_lose_nothing_whatever_fails_around_them() -> None:
    seen, wrong = run(CLIENTS, SECONDS)
    assert seen.problems == []
    assert wrong == []
    assert seen.turns > CLIENTS
    assert seen.answers["upstream failed"] > 0
