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


def test_a_model_without_a_price_is_reckoned_in_tokens_and_says_so(run: Run, session_file: Path) -> None:
    ran = run("cache-sim", str(session_file), "--model", "claude-of-nobody")
    assert "in tokens: the price is not known" in ran.out
    assert "$" not in ran.out


def test_dollars_are_the_cost_in_tokens_at_the_price_of_the_model(run: Run, session_file: Path) -> None:
    session = run("cache-sim", str(session_file), "--json").json["sessions"][0]
    assert session["dollars_per_token"] == pytest.approx(3 / 1_000_000)
    dollars = session["strategies"]["ledger"]["cost"] * session["dollars_per_token"]
    shown = f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:,.4f}"
    assert shown in run("cache-sim", str(session_file)).out


def test_json_has_every_request_with_its_cost_and_the_reason_of_a_miss(run: Run, session_file: Path) -> None:
    sessions = run("cache-sim", str(session_file), "--json", "--pauses", "0.2").json["sessions"]
    strategies = sessions[0]["strategies"]
    ledger = strategies["ledger"]
    assert len(ledger["requests"]) == sessions[0]["requests"]
    assert sum(request["cost"] for request in ledger["requests"]) == pytest.approx(ledger["cost"])
    assert ledger["missed_by_reason"]["expired"] > 0
    assert sessions[0]["oracle"] < ledger["cost"] < strategies["off"]["cost"] == pytest.approx(sessions[0]["uncached"])
    assert strategies["ledger, keep-alive"]["hit_share"] > ledger["hit_share"]


def test_a_model_of_another_provider_is_played_by_its_own_rules(run: Run, session_file: Path) -> None:
    session = run("cache-sim", str(session_file), "--model", "gpt-5", "--json").json["sessions"][0]
    assert (session["provider"], list(session["strategies"])) == ("openai", ["automatic"])


def test_times_and_models_are_taken_from_the_options(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    talk = [{"role": "user", "content": "word " * 4_000}, {"role": "assistant", "content": "ok"}] * 3
    path.write_text(json.dumps({"model": "claude-opus-5", "messages": talk}), encoding="utf-8")
    slow = run("cache-sim", str(path), "--gap", "400", "--json").json["sessions"][0]
    assert slow["model"] == "claude-opus-5"
    assert slow["strategies"]["ledger"]["hit_share"] == 0
    assert slow["strategies"]["ledger, 1h"]["hit_share"] > 0.4
