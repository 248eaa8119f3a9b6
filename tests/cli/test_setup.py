"""``everlong setup``: a client's own file leads its requests through the gateway, and everything else in it stays."""

from __future__ import annotations

import json
import re
import stat
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from everlong.cli.clients import CLIENTS
from everlong.cli.clients.formats import value_at
from everlong.cli.setup import NAMES
from everlong.gateway.routing import Route
from everlong.testing import ModelServer
from tests.cli.client_files import EXISTING, FILES, quiet_port, scratch_home
from tests.cli.conftest import Run
from tests.gateway.served import serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the places of files are those of Linux")

WITH_FILE = list(FILES)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return scratch_home(tmp_path / "home", monkeypatch)


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the gateway would be by the settings; there is none."""
    with quiet_port() as port:
        monkeypatch.setenv("EVERLONG_GATEWAY__PORT", str(port))
        yield f"http://127.0.0.1:{port}"


def existing(home: Path, client: str) -> Path:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(EXISTING[client], encoding="utf-8")
    path.chmod(0o640)
    return path


def test_the_choices_of_the_command_are_the_clients_that_are_known() -> None:
    assert list(NAMES) == list(CLIENTS)


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", WITH_FILE)
def test_without_write_the_change_is_shown_and_nothing_is_made(run: Run, home: Path, address: str, client: str) -> None:
    ran = run("setup", client)
    assert ran.code == 0
    assert address in ran.out
    assert str(home / FILES[client]) in ran.err
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("client", WITH_FILE)
def test_what_is_shown_is_a_whole_file_of_the_clients_format(run: Run, home: Path, client: str) -> None:
    shown = run("setup", client).out
    run("setup", client, "--write")
    assert (home / FILES[client]).read_text(encoding="utf-8").strip() == shown.strip()


@pytest.mark.parametrize("client", WITH_FILE)
def test_an_existing_file_keeps_all_of_its_lines(run: Run, home: Path, address: str, client: str) -> None:
    path = existing(home, client)
    ran = run("setup", client, "--write")
    assert ran.code == 0
    now = path.read_text(encoding="utf-8")
    for line in EXISTING[client].splitlines():
        for word in re.findall(r'[#/]+ [a-z ]+|"[^"]+"|[\w.-]+', line):  # comments, texts, names
            if "localhost:11434" not in word and word != "11434":
                assert word in now, line
    assert address in now
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("client", WITH_FILE)
def test_writing_twice_changes_nothing(run: Run, home: Path, client: str) -> None:
    path = existing(home, client)
    run("setup", client, "--write")
    once = path.read_bytes()
    ran = run("setup", client, "--write")
    assert (ran.code, path.read_bytes()) == (0, once)
    assert "nothing was changed" in ran.err
    assert "has these settings already" in run("setup", client).err


@pytest.mark.parametrize("client", WITH_FILE)
def test_undo_restores_every_byte(run: Run, home: Path, client: str) -> None:
    path = existing(home, client)
    run("setup", client, "--write")
    run("setup", client, "--write", "--url", "http://127.0.0.1:9999")
    ran = run("setup", client, "--undo")
    assert ran.code == 0
    assert path.read_bytes() == EXISTING[client].encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.glob("*everlong*")) == []


@pytest.mark.parametrize("client", WITH_FILE)
def test_undo_removes_a_file_that_was_not_there(run: Run, home: Path, client: str) -> None:
    run("setup", client, "--write")
    assert run("setup", client, "--undo").code == 0
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("client", WITH_FILE)
def test_there_is_nothing_to_undo_where_nothing_was_written(run: Run, home: Path, client: str) -> None:
    path = existing(home, client)
    ran = run("setup", client, "--undo")
    assert ran.code == 0
    assert "nothing to undo" in ran.err
    assert path.read_text(encoding="utf-8") == EXISTING[client]


def test_a_file_with_the_line_ends_of_windows_keeps_them(run: Run, home: Path) -> None:
    path = existing(home, "claude-code")
    path.write_bytes(EXISTING["claude-code"].replace("\n", "\r\n").encode())
    run("setup", "claude-code", "--write")
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")
    run("setup", "claude-code", "--undo")
    assert path.read_bytes() == EXISTING["claude-code"].replace("\n", "\r\n").encode()


def test_a_symbolic_link_stays_one(run: Run, home: Path, address: str) -> None:
    path = existing(home, "codex")
    real = home / "dotfiles.toml"
    path.rename(real)
    path.symlink_to(real)
    run("setup", "codex", "--write")
    assert path.is_symlink()
    assert address in real.read_text(encoding="utf-8")


# -- undo after other changes ------------------------------------------------------------------------------------------


def test_undo_keeps_what_the_client_wrote_since(run: Run, home: Path) -> None:
    path = existing(home, "claude-code")
    run("setup", "claude-code", "--write")
    values = json.loads(path.read_bytes())
    values["permissions"]["allow"].append("Bash(make:*)")
    path.write_text(json.dumps(values, indent=2), encoding="utf-8")
    ran = run("setup", "claude-code", "--undo")
    assert "took back only" in ran.err
    left = json.loads(path.read_bytes())
    assert left["permissions"]["allow"] == ["Bash(ls:*)", "Bash(make:*)"]
    assert left["env"] == {"MY_OWN": "1"}


def test_undo_keeps_a_key_that_was_entered_since(run: Run, home: Path) -> None:
    path = home / FILES["cline"]
    run("setup", "cline", "--write")
    values = json.loads(path.read_bytes())
    values["providers"]["anthropic"]["settings"]["apiKey"] = "sk-new"
    path.write_text(json.dumps(values), encoding="utf-8")
    run("setup", "cline", "--undo")
    entry = json.loads(path.read_bytes())["providers"]["anthropic"]
    assert entry["settings"] == {"provider": "anthropic", "apiKey": "sk-new"}
    assert entry["updatedAt"], "Cline reads no entry without it"


def test_undo_keeps_items_that_were_added_to_a_list_since(run: Run, home: Path) -> None:
    path = existing(home, "aider")
    run("setup", "aider", "--write")
    path.write_text(path.read_text(encoding="utf-8") + "\nauto-commits: false\n", encoding="utf-8")
    run("setup", "aider", "--undo")
    values = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert values["set-env"] == ["HTTP_TIMEOUT=60"]
    assert values["auto-commits"] is False
    assert "openai-api-base" not in values


def test_a_file_that_was_put_right_by_hand_gets_a_new_backup(run: Run, home: Path) -> None:
    path = existing(home, "codex")
    run("setup", "codex", "--write")
    path.write_text('model = "gpt-6"\n', encoding="utf-8")  # by hand, without our line
    run("setup", "codex", "--write")
    run("setup", "codex", "--undo")
    assert path.read_text(encoding="utf-8") == 'model = "gpt-6"\n'


# -- what cannot be written --------------------------------------------------------------------------------------------

BROKEN = {
    "claude-code": '{"env": {"A": 1}\n"model": "opus"}',
    "codex": 'model = "gpt-5\n',
    "opencode": '{\n  "provider": [}\n',
    "pi": "{'providers': 1}",
    "aider": "a: [1\nb: 2\n",
    "cline": "",
    "llm": "qwen: 1\n",
}


@pytest.mark.parametrize("client", [name for name in BROKEN if BROKEN[name]])
@pytest.mark.parametrize("flag", [(), ("--write",)])
def test_a_broken_file_is_an_error_and_stays_as_it_is(run: Run, home: Path, client: str, flag: tuple[str, ...]) -> None:
    path = existing(home, client)
    path.write_text(BROKEN[client], encoding="utf-8")
    ran = run("setup", client, *flag)
    assert (ran.code, ran.out) == (1, "")
    assert path.name in ran.err
    assert "nothing was changed" in ran.err
    assert path.read_text(encoding="utf-8") == BROKEN[client]
    assert list(path.parent.glob("*everlong*")) == []


def test_a_value_of_another_kind_in_the_way_is_an_error(run: Run, home: Path) -> None:
    path = existing(home, "claude-code")
    path.write_text('{"env": "none"}', encoding="utf-8")
    ran = run("setup", "claude-code", "--write")
    assert ran.code == 1
    assert "env.ANTHROPIC_BASE_URL cannot be set" in ran.err
    assert path.read_text(encoding="utf-8") == '{"env": "none"}'


def test_a_file_that_is_no_text_is_an_error(run: Run, home: Path) -> None:
    path = existing(home, "codex")
    path.write_bytes(b"\xff\xfe\x00")
    ran = run("setup", "codex", "--write")
    assert ran.code == 1
    assert "UTF-8" in ran.err
    assert path.read_bytes() == b"\xff\xfe\x00"


def test_a_folder_in_the_place_of_the_file_is_an_error(run: Run, home: Path) -> None:
    (home / FILES["codex"]).mkdir(parents=True)
    ran = run("setup", "codex", "--write")
    assert ran.code == 1
    assert "cannot be read" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("setup", "langchain", "--write"), "no configuration file"),
        (("setup", "codex", "--write", "--undo"), "not both"),
        (("setup", "codex", "--model", "gpt-5"), "--model is for claude-code and llm"),
        (("setup", "codex", "--url", "over there"), "--url is 'over there'"),
        (("setup", "emacs"), "emacs"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(run: Run, words: tuple[str, ...], said: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert said in ran.err


# -- each client -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["langchain", "openai-sdk", "anthropic-sdk"])
def test_for_a_library_the_lines_of_code_are_shown(run: Run, client: str) -> None:
    ran = run("setup", client, "--url", "https://gateway.example.com/v1")
    assert ran.code == 0
    assert 'base_url="https://gateway.example.com' in ran.out


def claude_variables(home: Path) -> Any:
    return json.loads((home / FILES["claude-code"]).read_bytes())["env"]


def test_claude_code_keeps_its_window_where_the_upstream_is_anthropics_own(run: Run, home: Path) -> None:
    run("setup", "claude-code", "--write")
    assert claude_variables(home)["_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"] == "1"


@pytest.mark.parametrize(
    "setting",
    [
        {"EVERLONG_GATEWAY__UPSTREAM": "http://localhost:8080/v1"},
        {"config": "gateway:\n  routes:\n    'claude-*':\n      base_url: https://bedrock.example.com\n"},
    ],
)
def test_elsewhere_claude_code_is_not_told_that_it_is(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    for name, value in setting.items():
        if name == "config":
            (home / "everlong").mkdir()
            (home / "everlong" / "config.yaml").write_text(value, encoding="utf-8")
        else:
            monkeypatch.setenv(name, value)
    ran = run("setup", "claude-code", "--write")
    assert list(claude_variables(home)) == ["ANTHROPIC_BASE_URL"]
    assert "Anthropic's own address" in ran.err


def test_a_gateway_that_runs_says_itself_where_requests_go(run: Run, home: Path, tmp_path: Path) -> None:
    with ModelServer("Hello.") as model, serving(model.url, tmp_path) as hosted:
        ran = run("setup", "claude-code", "--write", "--url", hosted.address)
        assert claude_variables(home) == {"ANTHROPIC_BASE_URL": hosted.address}
        assert "no gateway listens" not in ran.err


def test_claude_code_is_told_the_window_of_a_model_that_it_does_not_know(run: Run, home: Path) -> None:
    (home / "everlong").mkdir()
    config = "gateway:\n  upstream: http://localhost:8080/v1\nmodels:\n  qwen4:\n    context_length: 262144\n"
    (home / "everlong" / "config.yaml").write_text(config, encoding="utf-8")
    run("setup", "claude-code", "--write", "--model", "qwen4")
    found = claude_variables(home)
    assert (found["ANTHROPIC_MODEL"], found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]) == ("qwen4", "262144")
    run("setup", "claude-code", "--undo")
    run("setup", "claude-code", "--write", "--model", "claude-opus-4-8")
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in claude_variables(home)


def test_codex_keeps_a_provider_of_the_users_own_and_is_told_where_its_requests_went(
    run: Run, home: Path, address: str
) -> None:
    path = existing(home, "codex")
    own = '\nmodel_provider = "team"\n\n[model_providers.team]\nname = "Team"  # ours\nbase_url = "https://llm.example.com/v1"\n'
    path.write_text(own, encoding="utf-8")
    ran = run("setup", "codex", "--write")
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    assert values["model_provider"] == "team"
    assert values["model_providers"]["team"] == {"name": "Team", "base_url": f"{address}/v1"}
    assert "--upstream https://llm.example.com/v1" in ran.err
    run("setup", "codex", "--undo")
    assert path.read_text(encoding="utf-8") == own


def test_codex_with_a_chatgpt_login_needs_its_own_upstream(run: Run, home: Path) -> None:
    (home / ".codex").mkdir()
    login = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": {"access_token": "t"}}
    (home / ".codex" / "auth.json").write_text(json.dumps(login), encoding="utf-8")
    assert "--upstream https://chatgpt.com/backend-api/codex" in run("setup", "codex").err
    route = Route("https://chatgpt.com/backend-api/codex", "openai", "custom")
    assert route.url("/v1/responses") == "https://chatgpt.com/backend-api/codex/responses"


def test_opencodes_own_provider_goes_through_the_gateway_too(run: Run, home: Path, address: str) -> None:
    path = existing(home, "opencode").with_name("opencode.jsonc")
    path.write_text(
        '{"model": "box/m", "provider": {"box": {"npm": "@ai-sdk/openai-compatible", '
        '"options": {"baseURL": "http://box:1/v1"}}}}',
        encoding="utf-8",
    )
    ran = run("setup", "opencode", "--write")
    values = json.loads(path.read_bytes())
    assert value_at(values, ("provider", "box", "options", "baseURL")) == f"{address}/v1"
    assert "--upstream http://box:1/v1" in ran.err


def test_llm_gets_one_more_model_for_each_name(run: Run, home: Path) -> None:
    path = existing(home, "llm")
    run("setup", "llm", "--write")
    run("setup", "llm", "--write", "--model", "gpt-4o", "--url", "http://127.0.0.1:9000")
    models = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert [item["model_id"] for item in models] == ["qwen", "everlong/gpt-5", "everlong/gpt-4o"]
    assert {item["api_base"] for item in models[1:]} == {"http://127.0.0.1:9000/v1"}
    assert "# quick" in path.read_text(encoding="utf-8")


def test_variables_that_name_another_place_are_obeyed(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    run("setup", "codex", "--write")
    assert (tmp_path / "elsewhere" / "config.toml").exists()
    assert not (home / ".codex").exists()


def test_the_automatic_threshold_is_offered_until_it_is_set(run: Run) -> None:
    ran = run("setup", "claude-code")
    assert "compaction starts at 50 % of the window; `everlong config set compression.threshold auto`" in ran.err
    assert run("config", "set", "compression.threshold", "auto").code == 0
    ran = run("setup", "claude-code")
    assert "compaction starts at" not in ran.err
