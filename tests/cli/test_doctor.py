"""``everlong doctor``: every check on a sound setup and on broken ones; a list at the end, never a traceback."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everlong import Store
from everlong.store.upgrade import HEAD, VERSION_TABLE
from everlong.testing import ModelServer
from tests.cli.conftest import Ran, Run, add_session
from tests.onnx_folder import make_onnx_folder
from tests.program import everlong_program
from tests.testing_server.conftest import Serve, serve
from tests.waiting import PATIENCE

__all__ = ["serve"]

ROOT = Path(__file__).parents[2]
SECRET = "sk-ant-made-up-0123456789abcdef0123"  # noqa: S105 - nobody's
TALK: Any = [{"role": "user", "content": "Which berth is free?"}, {"role": "assistant", "content": "The fourth."}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
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


def states(ran: Ran, *names: str) -> list[str]:
    found = checks(ran)
    return [found[name]["state"] for name in names]


# -- a sound setup -------------------------------------------------------------------------------------------------


def test_all_is_well_with_a_model_that_answers_and_no_key_is_ever_shown(
    run: Run, serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKSHOP_API_KEY", SECRET)
    server = serve("ok", window=50_000, api_key=SECRET, dialect="vllm")
    served(home, server)
    with Store.open(home / "store.db") as store:
        add_session(store, TALK)
    ran = run("doctor", "--call", "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    found = checks(ran)
    assert {one["state"] for one in found.values()} <= {"ok", "warn"}
    assert "workshop (env WORKSHOP_API_KEY)" in found["keys"]["text"]
    assert "a window of 50,000 tokens (server); no prices are known test-model answered in " in found["model"]["text"]
    assert found["store"]["text"].endswith(f"store.db, schema {HEAD}, 2 messages; every hash is right")
    assert [request.body["max_tokens"] for request in server.requests] == [1]
    assert SECRET not in ran.out + ran.err + run("doctor").out


def test_people_get_a_line_for_each_check_and_what_to_do(run: Run, home: Path) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert "ok    packages          Everlong " in ran.out
    assert "warn  model             none is chosen" in ran.out
    assert "→ everlong config set agent.model PROVIDER:MODEL" in ran.out
    assert "checks, 0 failed, " in ran.err
    assert list(home.iterdir()) == []  # looking makes nothing


def test_every_finding_that_is_not_ok_says_what_to_do(run: Run, home: Path) -> None:
    configured(home, "agent: {model: 'nobody:m'}\nmemory: {provider: ghost}\ncontext: {engine: ghost}\n")
    ran = run("doctor", "--json")
    wrong = [one for one in ran.json["checks"] if one["state"] != "ok"]
    assert {one["name"] for one in wrong} >= {"keys", "model", "memory", "plugins"}  # and what is missing here
    assert all(one["advice"] and one["text"] for one in wrong)
    assert states(ran, "model", "memory", "plugins") == ["fail", "fail", "fail"]
    assert ran.code == 1


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


# -- broken ones, by the program itself ----------------------------------------------------------------------------


def program(*arguments: str, cwd: Path | None = None, before: str = "", **env: str | None) -> Ran:
    """The program in a process of its own; a variable that is None is taken out."""
    values = {name: value for name, value in (os.environ | env).items() if value is not None}
    code = f"{before}\nfrom everlong.cli.main import main; main()"
    start = [sys.executable, "-c", code] if before or env else everlong_program()
    done = subprocess.run(
        [*start, "doctor", *arguments], env=values, cwd=cwd, capture_output=True, check=False, timeout=PATIENCE
    )
    return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def damage_config(home: Path) -> None:
    configured(home, "agent: {model: [unclosed\n")


def damage_store(home: Path) -> None:
    (home / "store.db").write_bytes(b"not a database at all" * 400)


def damage_everything(home: Path) -> None:
    (home / "config.yaml").mkdir()
    (home / "store.db").mkdir()
    (home / "memories").write_text("a file")


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        (damage_config, {"config"}),
        (damage_store, {"store"}),
        (damage_everything, {"config", "store", "memory"}),
    ],
)
def test_whatever_is_broken_there_is_a_list_and_no_traceback(home: Path, damage: Any, broken: set[str]) -> None:
    damage(home)
    ran = program("--json")
    assert (ran.code, ran.err) == (1, "")
    assert {name for name, one in checks(ran).items() if one["state"] == "fail"} == broken


def test_without_a_home_and_in_a_folder_that_is_gone_it_still_ends_well(home: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = "import os, shutil; shutil.rmtree(os.getcwd())"
    ran = program("--json", cwd=gone, before=leave, EVERLONG_HOME=None, HOME=None, XDG_CONFIG_HOME=None)
    assert ran.err == ""
    assert states(ran, "packages", "config") == ["ok", "fail"]
    assert home.exists()


def test_a_client_that_cannot_be_imported_is_a_finding(home: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "anthropic.py").write_text("raise RuntimeError('half an upgrade')\n")
    configured(home, "agent: {model: 'anthropic:claude-sonnet-5'}\n")
    path = os.pathsep.join([str(tmp_path / "broken"), *sys.path])
    ran = program("--json", PYTHONPATH=path, ANTHROPIC_API_KEY=SECRET)
    assert (ran.code, checks(ran)["model"]["state"]) == (1, "fail")
    assert "half an upgrade" in checks(ran)["model"]["text"]
    assert SECRET not in ran.out


def test_an_output_that_knows_ascii_only_gets_ascii(home: Path) -> None:
    configured(home, "agent: {model: 'nobody:m'}\n")
    ran = program(PYTHONIOENCODING="ascii")
    assert "Traceback" not in ran.err
    assert ran.out.isascii()


# -- single checks -------------------------------------------------------------------------------------------------


def test_every_problem_of_the_configuration_is_a_finding_of_its_own(run: Run, home: Path) -> None:
    configured(home, "compression: {treshold: 0.5, target_ratio: 7}\n")
    ran = run("doctor", "--json")
    wrong = [one["text"] for one in ran.json["checks"] if one["name"] == "config"]
    assert len(wrong) == 2
    assert any("did you mean" in text and "threshold" in text for text in wrong)
    assert any("compression.target_ratio" in text for text in wrong)


@pytest.mark.parametrize(
    ("version", "state", "said"),
    [("0105", "fail", "before the first release"), ("9999", "fail", "knows up to"), (HEAD, "ok", HEAD)],
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


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("free", "state"), [(1_000, "fail"), (100_000_000, "warn"), (10**12, "ok")])
def test_a_disk_that_is_nearly_full_is_told(run: Run, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    usage = shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert states(run("doctor", "--json"), "disk") == [state]


def test_the_model_for_the_search_by_meaning_is_tried(run: Run, home: Path, tmp_path: Path) -> None:
    configured(home, f"search: {{embeddings: '{make_onnx_folder(tmp_path / 'words')}'}}\n")
    assert "gives vectors of 16 numbers" in checks(run("doctor", "--json"))["embeddings"]["text"]
    configured(home, f"search: {{embeddings: '{tmp_path}'}}\n")
    found = checks(run("doctor", "--json"))["embeddings"]
    assert (found["state"], "there is no model.onnx" in found["text"]) == ("fail", True)


def test_an_embeddings_endpoint_is_asked_only_with_call(run: Run, home: Path) -> None:
    with ModelServer() as server:
        provider = f"providers: {{workshop: {{base_url: '{server.openai_url}'}}}}\n"
        configured(home, f"search: {{embeddings: 'workshop:small'}}\n{provider}")
        assert states(run("doctor", "--json"), "embeddings") == ["ok"]
        assert server.requests == []
        assert "gives vectors of 64" in checks(run("doctor", "--json", "--call"))["embeddings"]["text"]


def test_a_model_without_a_key_cannot_be_called(run: Run, home: Path) -> None:
    configured(home, "agent: {model: 'anthropic:claude-sonnet-5'}\n")
    found = checks(run("doctor", "--json"))
    assert found["model"]["state"] == "fail"
    assert "set ANTHROPIC_API_KEY" in found["model"]["text"]


def test_a_known_model_has_its_window_from_the_catalogue(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    configured(home, "agent: {model: 'anthropic:claude-sonnet-5'}\n")
    text = checks(run("doctor", "--json"))["model"]["text"]
    assert text.endswith("a window of 1,000,000 tokens (catalogue); prices are known")


def test_a_key_that_is_not_taken_and_a_server_that_is_away_are_told_apart(
    run: Run, serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKSHOP_API_KEY", SECRET)
    server = serve("ok", api_key="another key")
    served(home, server)
    wrong_key = run("doctor", "--call", "--json")
    assert states(wrong_key, "model") == ["fail"]
    assert "could not be reached" not in checks(wrong_key)["model"]["text"]
    assert "everlong auth list shows the keys" in checks(wrong_key)["model"]["advice"]
    configured(home, "agent: {model: 'w:m'}\nproviders: {w: {base_url: 'http://127.0.0.1:9/v1'}}\n")
    away = checks(run("doctor", "--call", "--json"))
    assert (away["model"]["state"], "could not be reached" in away["model"]["text"]) == ("fail", True)
    assert SECRET not in wrong_key.out


@pytest.mark.usefixtures("home")
def test_who_writes_summaries_must_exist_and_have_a_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLONG_AUXILIARY__COMPRESSION__PROVIDER", "nobody")
    assert "is not a known provider" in checks(run("doctor", "--json"))["summaries"]["text"]
    monkeypatch.setenv("EVERLONG_AUXILIARY__COMPRESSION__PROVIDER", "openai")
    assert checks(run("doctor", "--json"))["summaries"]["state"] == "fail"
