"""``everlong usage --audit``: what the gateway would have done, by conversation and request by request."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from everlong.store import Store
from everlong.testing import ModelServer
from tests.cli.conftest import Run
from tests.gateway.running import run_gateway
from tests.gateway.test_audit import AUDIT, talk


def test_the_command_tells_conversations_and_single_requests(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "store.db"
    with ModelServer() as model, run_gateway(model.url, str(path), AUDIT) as running:
        talk(running, 5)
    shown = run("usage", "--audit", "--store", str(path))
    assert shown.out.split()[:9] == ["session", "requests", "compactions", "sent", "would", "be", "paid", "would", "be"]
    assert "markers: 5 requests would have got some; they would have saved $" in shown.out
    assert "compactions: none would have been made" in shown.out
    with Store.open(path) as store:
        name = store.sessions.newest()[0].id
    each = run("usage", "--audit", "--session", name, "--store", str(path)).out
    assert each.count("put in ") == 5
    told = run("usage", "--audit", "--json", "--store", str(path)).json
    assert len(told["requests"]) == 5
    assert Decimal(told["saved_by_markers"]) > 0
