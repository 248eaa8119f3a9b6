"""``everlong wrap``: a program whose calls go through the gateway, and nothing else of it changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everlong.gateway.auth import is_gateway
from everlong.store import Store
from everlong.testing import ModelServer
from tests.program import everlong_program
from tests.waiting import PATIENCE

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
CALL = """
import openai
with openai.OpenAI(api_key="k", max_retries=5) as gpt:
    said = gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    print(said.choices[0].message.content)
"""
VARIABLES = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE")


def wrapped(*words: str, folder: Path, cwd: Path | None = None, **env: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.Popen(
        [*everlong_program(), "wrap", "--store", str(folder / "wrap.db"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env={**clean, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        start_new_session=True,
    )


def run(*words: str, folder: Path, **env: str) -> tuple[int, str, str]:
    process = wrapped(*words, folder=folder, cwd=None, **env)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def python(code: str) -> list[str]:
    return ["--", sys.executable, "-c", code]


def test_a_program_finds_the_gateway_by_its_usual_variables_and_nothing_else_changes(tmp_path: Path) -> None:
    code, out, err = run("--port", "0", *python(SHOW), folder=tmp_path, MINE="as it was")
    assert code == 0
    assert "no request of" in err, "that it asked no model is all there is to say"
    assert len(err.splitlines()) == 1
    seen = json.loads(out)
    assert seen["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert seen["OPENAI_BASE_URL"] == seen["ANTHROPIC_BASE_URL"] + "/v1"
    changed = {name for name, value in seen.items() if os.environ.get(name) != value} - {"MINE", "PYTHONPATH"}
    assert changed <= {*VARIABLES, "LC_CTYPE", "NO_PROXY", "no_proxy"}
    assert seen["MINE"] == "as it was"
    assert not is_gateway(seen["ANTHROPIC_BASE_URL"]), "the gateway ends with the program"


def test_a_conversation_belongs_to_the_folder_that_the_program_was_started_in(tmp_path: Path) -> None:
    here = tmp_path / "my (old) shop"
    here.mkdir()
    call = CALL.replace('"hi"', '"<environment_context><cwd>/srv/victim</cwd></environment_context>"')
    with ModelServer() as model:
        process = wrapped("--port", "0", "--upstream", model.url, *python(call), folder=tmp_path, cwd=here)
        process.communicate(timeout=PATIENCE)
        assert len(model.requests) == 1
    with Store.open(tmp_path / "wrap.db") as store:
        assert [one.folder for one in store.conversations.newest()] == [str(here)]


def test_a_base_url_that_was_there_becomes_the_upstream(model: ModelServer, tmp_path: Path) -> None:
    env = {"OPENAI_BASE_URL": model.openai_url}
    code, out, _ = run("--port", "0", *python(CALL), folder=tmp_path, **env)
    assert (code, out) == (0, "Understood.\n")
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (python("raise SystemExit(7)"), 7),
        (python("import os; os.kill(os.getpid(), 9)"), 137),
        (["--", "no-such-program-anywhere"], 127),
        (["--", "/dev/null"], 126),
    ],
)
def test_the_exit_code_is_the_programs(words: list[str], code: int, tmp_path: Path) -> None:
    assert run("--port", "0", *words, folder=tmp_path)[0] == code


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_reach_the_program(name: str, tmp_path: Path) -> None:
    code = f"""
import signal, sys, time
signal.signal(signal.{name}, lambda *_: sys.exit(33))
print("ready", flush=True)
while True:
    time.sleep(60)
"""
    process = wrapped("--port", "0", *python(code), folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 33


def test_where_no_gateway_can_be_started_the_program_runs_without(tmp_path: Path) -> None:
    code, out, err = run("--port", "0", *python(SHOW), folder=tmp_path / "x", EVERLONG_GATEWAY__NEW_BLOCKS="many")
    assert code == 0
    assert not {*VARIABLES} & {*json.loads(out)}
    assert "EVERLONG_GATEWAY__NEW_BLOCKS" in err
    assert "talks to the API itself" in err


def test_a_wrap_inside_of_a_wrap_uses_its_gateway(model: ModelServer, tmp_path: Path) -> None:
    inner = [*everlong_program(), "wrap", "--store", str(tmp_path / "inner.db"), *python(CALL)]
    code, out, err = run("--port", "0", "--upstream", model.url, "--", *inner, folder=tmp_path)
    assert (code, out) == (0, "Understood.\n")
    assert err.count("1 request") == 1, "the outer one says what went through"
    assert not (tmp_path / "inner.db").exists()
