"""``everlong cache-sim`` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.spec("11")
def test_it_shows_every_strategy_beside_no_caching_and_the_oracle(run: Run, session_file: Path) -> None:
    ran = run("cache-sim", str(session_file))
    assert ran.code == 0
    for name in ("off", "system_and_3", "ledger", "best possible", "input cost", "saved", "$"):
        assert name in ran.out
    assert "oracle" not in ran.out


def test_dollars_are_the_cost_in_tokens_at_the_price_of_the_model(run: Run, session_file: Path) -> None:
    session = run("cache-sim", str(session_file), "--json").json["sessions"][0]
    assert session["dollars_per_token"] == pytest.approx(3 / 1_000_000)
    dollars = session["strategies"]["ledger"]["cost"] * session["dollars_per_token"]
    assert f"${dollars:,.4f}" in run("cache-sim", str(session_file)).out


@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "gpt-4o"])
def test_nothing_is_cheaper_than_the_best_possible(run: Run, tmp_path: Path, model: str) -> None:
    talk = [{"role": role, "content": f"The tide at pier {n}. " * 900} for n, role in enumerate(["user", "assistant"])]
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(talk))
    rows = [line for line in run("cache-sim", str(file), "--model", model).out.splitlines() if "$" in line]
    costs = {line.split("  ")[0]: float(line.split("$")[1].split()[0]) for line in rows}
    (best,) = [cost for names, cost in costs.items() if "best possible" in names]
    assert best == min(costs.values())
