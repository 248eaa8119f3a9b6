"""``everlong inspect``: figures that add up, pictures that fit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from everlong import Message, MessageCounter
from everlong.cli.demo import MODEL, PRICES, load_session, play
from everlong.config import ModelSettings, Settings
from everlong.inspector.security import Watch
from everlong.store import Store
from tests.cli.conftest import Run
from tests.context.builders import assistant, user
from tests.inspector.conftest import run_site
from tests.program import everlong_program
from tests.waiting import PATIENCE


def test_tokens_are_shown_by_role_and_by_tool_and_add_up(run: Run, session_file: Path, session: list[Message]) -> None:
    figure = run("inspect", str(session_file), "--json").json["conversations"][0]
    assert figure["tokens"] == sum(figure["by_role"].values()) == sum(MessageCounter().counts(session))
    assert figure["by_tool"]["bash"]["calls"] == 60
    assert figure["by_tool"]["bash"]["result_tokens"] == figure["by_role"]["tool"]
    assert [entry["tokens"] for entry in figure["largest"]] == sorted(
        (entry["tokens"] for entry in figure["largest"]), reverse=True
    )


def test_calls_and_results_that_stand_alone_are_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    path.write_text(
        json.dumps(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "user", "content": "x"},
                {"role": "tool", "tool_call_id": "zzz", "content": "y"},
            ]
        )
    )
    figure = run("inspect", str(path), "--json").json["conversations"][0]
    assert (figure["unanswered_calls"], figure["orphaned_results"]) == (1, 1)
    assert "1 call without a result" in run("inspect", str(path)).out


def test_a_file_of_two_conversations_has_a_total_and_a_small_share_is_not_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    one = [{"role": "user", "content": "Where? " * 999}, {"role": "assistant", "content": "There."}]
    path.write_text("\n".join(json.dumps({"messages": one}) for _ in range(2)))
    tokens, out = 2 * sum(MessageCounter().counts(one)), run("inspect", str(path)).out
    assert out.endswith(f"2 conversations: {tokens:,} tokens in 4 messages\n")
    assert re.findall(r"^  assistant +\d+ +(\S+) ", out, re.MULTILINE) == ["<1%", "<1%"]


def test_a_binary_file_is_called_no_text_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bin.dat"
    file.write_bytes(bytes(range(256)) * 4 + b"\xd8\x00\x00")
    assert "bin.dat: the input is no text file" in run("inspect", str(file)).err


def test_who_names_a_conversation_instead_of_a_file_is_told_where_to_look(run: Run) -> None:
    ran = run("inspect", "20261119_172632_a70263")
    assert (ran.code, "everlong inspect --web" in ran.err) == (2, True)


@contextmanager
def inspecting(*arguments: str, command: tuple[str, ...] = ("inspect",)) -> Iterator[str]:
    """The address of an inspector that runs as a program; it has to end well when it is told to."""
    process = subprocess.Popen(
        [*everlong_program(), *command, "--web", "--no-browser", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stderr is not None
    try:
        found = next((match for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\S+", line))), None)
        assert found is not None, "it did not say where it is"
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def read(address: str) -> str:
    with urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - our own address
        text: str = answer.read().decode()
    return text


def test_a_file_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps([user("Where is the harbour?"), assistant("In Grönvik.")]))
    with inspecting(str(file)) as address:
        assert "talk.json" in read(address)
        assert "Where is the <mark>harbour</mark>?" in read(f"{address}search?q=harbour")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["talk.json"]


def test_the_requests_of_a_file_are_played_and_a_compaction_can_be_tried(run: Run, tmp_path: Path) -> None:
    talk = [user("Where is the harbour?"), assistant("In Grönvik. " * 200)] * 40
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"model": "claude-sonnet-4-5", "messages": talk}))
    tokens = run("inspect", str(file), "--json").json["conversations"][0]["tokens"]
    with inspecting(str(file)) as address:
        found = re.search(r"/inspector/c/[^/\"]+", read(address))
        assert found is not None
        page = address.removesuffix("/inspector/") + found[0]
        assert f"About {tokens:,} tokens would be sent" in read(page)
        assert "Requests: 40." in read(f"{page}/timeline")
        assert "$0.0" in read(f"{page}/timeline")
        offer = read(f"{page}/compactions")
        token = re.search(r'name="token" value="(\w+)"', offer)
        assert token is not None
        form = urlencode({"token": token[1], "window": "8000"}).encode()
        sent = Request(f"{page}/compact", form, {"Origin": address.removesuffix("/inspector/")})  # noqa: S310 - ours
        with urlopen(sent, timeout=PATIENCE) as answer:  # noqa: S310 - ours
            assert answer.url == f"{page}/compactions/1"
        assert "Summary" in read(page)
        assert "of the window of 8,000 for which a compaction was tried" in read(page)


def test_the_demo_leaves_a_conversation_with_requests_and_compactions(tmp_path: Path) -> None:
    session, _ = load_session()
    with Store.open(tmp_path / "demo.db") as store:
        played = play(session[:120], 8_192, store)
        found = store.conversations.get(played[-1].conversation)
        assert found.messages == sum(message["role"] != "system" for message in session[:120])
        assert found.compactions >= 1
        assert found.cost == pytest.approx(played[-1].dollars)
        settings = Settings(models={MODEL: ModelSettings(context_length=8_192, **PRICES)})
        for site in run_site(store, Watch(), settings):
            words = site.get("/inspector/cost?age=all").words
        told = re.search(r"Compactions: \d+ (.+?) \(estimated\) .* = (\S+) \(estimated\)", words)
        assert told is not None
        assert told[2].lstrip("−") in told[1]


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
