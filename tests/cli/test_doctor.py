"""``everlong doctor``: every check on a sound setup and on broken ones; a list at the end, never a traceback."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everlong import Store
from everlong.store.opening import VERSION, VERSION_TABLE
from everlong.testing import ModelServer
from tests.cli.conftest import Ran, Run, add_session
from tests.program import everlong_program
from tests.testing_server.conftest import Serve, serve
from tests.waiting import PATIENCE

__all__ = ["serve"]

SECRET = "sk-ant-made-up-0123456789abcdef0123"  # noqa: S105 - nobody's
TALK: Any = [{"role": "user", "content": "Which berth is free?"}, {"role": "assistant", "content": "The fourth."}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def configured(home: Path, text: str) -> None:
    (home / "config.yaml").write_text(text, encoding="utf-8")


def served(home: Path, server: ModelServer, more: str = "") -> None:
    """A model on a server of one's own."""
    configured(
        home,
        f"agent: {{model: 'workshop:test-model'}}\nproviders: {{workshop: {{base_url: '{server.openai_url}', "
        f"key_variable: WORKSHOP_API_KEY}}}}\n{more}",
    )


def checks(ran: Ran) -> dict[str, dict[str, str]]:
    """What each check found, with all its texts in one, and its worst state."""
    found: dict[str, dict[str, str]] = {}
    for one in ran.json["checks"]:
        before = found.get(one["name"], {"state": "ok", "text": "", "advice": ""})
        state = max(before["state"], one["state"], key=["ok", "warn", "fail"].index)
        found[one["name"]] = {"state": state} | {key: f"{before[key]} {one[key]}".strip() for key in ("text", "advice")}
    return found


def test_all_is_well_with_a_model_that_answers_and_no_key_is_ever_shown(
    run: Run, serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKSHOP_API_KEY", SECRET)
    server = serve("ok", window=50_000, api_key=SECRET, dialect="vllm")
    served(home, server)
    with Store.open(home / "store.db") as store:
        add_session(store, TALK)
        add_session(Store(store.database, "ada"), TALK)
    ran = run("doctor", "--call", "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    found = checks(ran)
    assert {one["state"] for one in found.values()} <= {"ok", "warn"}
    assert "workshop (WORKSHOP_API_KEY)" in found["keys"]["text"]
    assert "a window of 50,000 tokens (server); no prices are known test-model answered in " in found["model"]["text"]
    assert found["store"]["text"].endswith(f"store.db, schema {VERSION}, 4 messages; every hash is right")
    assert [request.body["max_tokens"] for request in server.requests] == [1]
    assert SECRET not in ran.out + ran.err + run("doctor").out


NO_NETWORK = """
import os, socket
def refuse(*_):
    print("the network was used")
    os._exit(99)
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from everlong.cli.main import main
main()
"""


def test_without_call_nothing_is_sent_anywhere(serve: Serve, home: Path) -> None:
    served(home, serve("ok"), "store: {url: 'postgresql://nobody@127.0.0.1:1/none'}\n")
    env = os.environ | {"WORKSHOP_API_KEY": SECRET}
    ran = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, "doctor"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert "the network was used" not in ran.stdout
    assert (ran.returncode, "was not contacted; --call does that" in ran.stdout) == (0, True)


def damage_store(home: Path) -> None:
    (home / "store.db").write_bytes(b"not a database at all" * 400)


def damage_everything(home: Path) -> None:
    (home / "config.yaml").mkdir()
    (home / "store.db").mkdir()


@pytest.mark.parametrize(("damage", "broken"), [(damage_store, {"store"}), (damage_everything, {"config", "store"})])
def test_whatever_is_broken_there_is_a_list_and_no_traceback(home: Path, damage: Any, broken: set[str]) -> None:
    damage(home)
    command = [*everlong_program(), "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    ran = Ran(done.returncode, done.stdout, done.stderr)
    assert (ran.code, ran.err) == (1, "")
    assert {name for name, one in checks(ran).items() if one["state"] == "fail"} == broken


def test_the_keys_of_the_gateway_and_prices_under_a_limit_are_checked(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(
        home,
        "gateway: {keys: {ada: {key_variable: ADA_GATEWAY_KEY, dollars_per_day: 5}}}\n"
        "models: {gpt-4o: {context_length: 9000}, tiny: {context_length: 9000}}\n",
    )
    found = checks(run("doctor", "--json"))["gateway"]
    assert (found["state"], "ADA_GATEWAY_KEY, but no such environment variable" in found["text"]) == ("fail", True)
    monkeypatch.setenv("ADA_GATEWAY_KEY", "made-up-" * 5)
    found = checks(run("doctor", "--json"))["gateway"]
    assert (found["state"], found["text"].rpartition("; ")[2]) == ("warn", "not of tiny")
    assert "prices known of 1 of 2 configured models" in found["text"]
    assert "models.tiny.input_price" in found["advice"]


@pytest.mark.parametrize(
    ("version", "state", "said"),
    [("9999", "fail", f"this version knows {VERSION}"), (VERSION, "ok", VERSION)],
)
def test_the_version_of_the_schema_is_told_and_not_changed(
    run: Run, home: Path, version: str, state: str, said: str
) -> None:
    path = home / "store.db"
    Store.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (version,))  # noqa: S608 - a constant
    ran = run("doctor", "--json")
    assert (checks(ran)["store"]["state"], ran.code) == (state, int(state == "fail"))
    assert said in checks(ran)["store"]["text"]
    with sqlite3.connect(path) as raw:
        assert raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() == (version,)  # noqa: S608


def test_a_store_that_contradicts_itself_or_is_somebody_elses_fails(run: Run, home: Path) -> None:
    path = home / "store.db"
    with Store.open(path) as store:
        add_session(store, TALK)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE node SET depth = depth + 5 WHERE seq = 1")
    ran = run("doctor", "--json")
    assert "contradicts itself" in checks(ran)["store"]["text"]
    path.unlink()
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE recipes (id INTEGER)")
    assert "not Everlong's" in checks(run("doctor", "--json"))["store"]["text"]


def test_a_database_on_a_server_is_looked_at_where_calls_are_allowed(run: Run, home: Path, postgres_url: str) -> None:
    Store.open(postgres_url).close()
    configured(home, f"store: {{url: '{postgres_url}'}}\n")
    found = checks(run("doctor", "--call", "--json"))
    assert found["store"]["state"] == "ok"
    configured(home, "store: {url: 'postgresql://nobody:hush-4711@127.0.0.1:9/none'}\n")
    away = run("doctor", "--call", "--json")
    assert (away.code, checks(away)["store"]["state"]) == (1, "fail")
    assert "hush-4711" not in away.out
