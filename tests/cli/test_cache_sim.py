"""``everlong cache-sim`` as a person runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.conftest import CALLS, Run

pytestmark = pytest.mark.usefixtures("shorter_sessions")


@pytest.mark.spec("11")
def test_it_shows_every_strategy_beside_no_caching_and_the_oracle(run: Run, session_file: Path) -> None:
    ran = run("cache-sim", str(session_file))
    assert ran.code == 0
    for name in ("off", "system_and_3", "ledger", "best possible", "input cost", "saved", "$"):
        assert name in ran.out
    assert "oracle" not in ran.out


def test_a_model_without_a_price_is_reckoned_in_tokens_and_says_so(run: Run) -> None:
    ran = run("cache-sim", "--generate", "serial", "--model", "claude-of-nobody")
    assert "in tokens: the price is not known" in ran.out
    assert "$" not in ran.out


def test_dollars_are_the_cost_in_tokens_at_the_price_of_the_model(run: Run) -> None:
    session = run("cache-sim", "--generate", "serial", "--json").json["sessions"][0]
    assert session["dollars_per_token"] == pytest.approx(3 / 1_000_000)
    dollars = session["strategies"]["ledger"]["cost"] * session["dollars_per_token"]
    assert f"${dollars:,.2f}" in run("cache-sim", "--generate", "serial").out


def test_json_has_every_request_with_its_cost_and_the_reason_of_a_miss(run: Run, session_file: Path) -> None:
    sessions = run("cache-sim", str(session_file), "--json", "--pauses", "0.2", "--seed", "3").json["sessions"]
    strategies = sessions[0]["strategies"]
    ledger = strategies["ledger"]
    assert len(ledger["requests"]) == sessions[0]["requests"]
    assert sum(request["cost"] for request in ledger["requests"]) == pytest.approx(ledger["cost"])
    assert ledger["missed_by_reason"]["expired"] > 0
    assert sessions[0]["oracle"] < ledger["cost"] < strategies["off"]["cost"] == pytest.approx(sessions[0]["uncached"])
    assert strategies["ledger, keep-alive"]["hit_share"] > ledger["hit_share"]


def test_a_made_up_session_is_the_same_each_time(run: Run) -> None:
    first, again, other = (
        run("cache-sim", "--generate", "mixed", "--seed", seed, "--json").out for seed in ("1", "1", "2")
    )
    assert first == again != other


def test_a_model_of_another_provider_is_played_by_its_own_rules(run: Run) -> None:
    session = run("cache-sim", "--generate", "serial", "--model", "gpt-5", "--json").json["sessions"][0]
    assert (session["provider"], list(session["strategies"])) == ("openai", ["automatic"])


def test_the_plot_is_a_picture_with_a_line_for_each_strategy(run: Run, session_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "cost.svg"
    assert run("cache-sim", str(session_file), "--plot", str(target), "--collapse-runs").code == 0
    root = ET.fromstring(target.read_text(encoding="utf-8"))  # noqa: S314 - our own file
    series = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(series) == 14
    looks = {(one.get("stroke"), one.get("stroke-dasharray")) for one in series[:8]}
    assert len(looks) == 8
    said = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert said.count("request") == said.count("US dollars") == 2
    assert sum(text.startswith("ledger, keep-alive ") for text in said) == 2


def test_the_plot_is_drawn_in_the_terminal_with_axes_and_a_legend(run: Run) -> None:
    ran = run("cache-sim", "--generate", "serial", "--plot", "-")
    assert (ran.code, ran.out.count(f"request {CALLS}"), ran.out.count("US dollars")) == (0, 2, 2)
    first, second = ran.out.split("above the best possible")
    assert "  c  ledger:" in first
    assert "  c  ledger:" in second  # the same letter in both
    assert run("cache-sim", "--generate", "serial", "--plot", "-", "--json").code == 2


def test_a_png_without_a_converter_is_an_error_that_says_what_to_do(
    run: Run, session_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    ran = run("cache-sim", str(session_file), "--plot", str(tmp_path / "cost.png"))
    assert ran.code == 1
    assert "PNG needs the package cairosvg" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--generate", "sideways"], ["--generate", "serial", "--plot", "x.gif"]],
)
def test_a_wrong_call_says_what_is_allowed(run: Run, arguments: list[str]) -> None:
    ran = run("cache-sim", *arguments)
    assert ran.code == 2
    assert "Error" in ran.err


def test_times_and_models_are_taken_from_the_options(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    talk = [{"role": "user", "content": "word " * 4_000}, {"role": "assistant", "content": "ok"}] * 3
    path.write_text(json.dumps({"model": "claude-opus-5", "messages": talk}), encoding="utf-8")
    slow = run("cache-sim", str(path), "--gap", "400", "--json").json["sessions"][0]
    assert slow["model"] == "claude-opus-5"
    assert slow["strategies"]["ledger"]["hit_share"] == 0
    assert slow["strategies"]["ledger, 1h"]["hit_share"] > 0.4
