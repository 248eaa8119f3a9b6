"""``everlong wrap`` with the clients that it knows: stand-ins of their names show what they are started with."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from everlong import Store
from everlong.cli.main import main
from everlong.testing import ModelServer
from tests.cli.client_files import FILES, scratch_home

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the places of files are those of Linux")

SHOW = """
import json, os, sys
settings = os.environ.get("CLINE_PROVIDER_SETTINGS_PATH")
print(json.dumps({
    "words": sys.argv[1:],
    "env": dict(os.environ),
    "files": [open(word).read() for word in [*sys.argv[1:], settings or ""] if os.path.isfile(word)],
}))
"""
CALL = """
import openai
with openai.OpenAI(api_key="k", max_retries=0) as gpt:
    said = gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    print(said.choices[0].message.content)
"""
VARIABLES = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE")


@dataclass
class Seen:
    words: list[str]
    env: dict[str, str]
    files: list[str]
    err: str

    @property
    def address(self) -> str:
        return self.env["ANTHROPIC_BASE_URL"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*VARIABLES, "ANTHROPIC_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return scratch_home(tmp_path / "home", monkeypatch)


def stand_in(folder: Path, name: str, code: str) -> str:
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


@dataclass
class Ran:
    stdout: str
    stderr: str


class Wrap:
    """``everlong wrap`` in this process: loading the gateway anew for each test would take long."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        self._folder = folder

    def __call__(self, *words: str, **env: str) -> Ran:
        self._capfd.readouterr()
        with self._monkeypatch.context() as changed:
            for name, value in {"PYTHONPATH": os.pathsep.join(sys.path), **env}.items():
                changed.setenv(name, value)
            main(["wrap", *words])
        return Ran(*self._capfd.readouterr())

    def started(self, name: str, *words: str, flags: tuple[str, ...] = (), **env: str) -> Seen:
        """Return what a client is started with."""
        ran = self("--port", "0", *flags, "--", stand_in(self._folder, name, SHOW), *words, **env)
        return Seen(**json.loads(ran.stdout), err=ran.stderr)


@pytest.fixture
def wrapped(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Wrap:
    return Wrap(capfd, monkeypatch, tmp_path)


def write(home: Path, client: str, text: str) -> Path:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_codex_with_a_provider_of_its_own_goes_through_the_gateway_to_that_providers_address(
    wrapped: Wrap, tmp_path: Path, home: Path
) -> None:
    with ModelServer("Hello.") as model:
        write(
            home,
            "codex",
            f'model_provider = "my team"\n[model_providers."my team"]\nname = "x"\nbase_url = "{model.openai_url}"\n',
        )
        seen = wrapped.started("codex", "exec")
        assert seen.words == ["-c", f'model_providers."my team".base_url="{seen.address}/v1"', "exec"]
        ran = wrapped("--port", "0", "--", stand_in(tmp_path, "codex", CALL))
        assert ran.stdout == "Hello.\n"
        assert len(model.requests) == 1


@pytest.mark.parametrize("where", ["word", "variable", "file"])
def test_claude_code_learns_the_window_of_a_model_that_it_does_not_know(
    wrapped: Wrap, home: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (home / "everlong").mkdir()
    config = home / "everlong" / "config.yaml"
    config.write_text("models:\n  qwen4:\n    context_length: 262144\n", encoding="utf-8")
    words = ["--model", "qwen4"] if where == "word" else []
    if where == "variable":
        monkeypatch.setenv("ANTHROPIC_MODEL", "qwen4")
    if where == "file":
        write(home, "claude-code", '{"model": "qwen4"}')
    seen = wrapped.started("claude", *words)
    assert seen.env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "262144"
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in wrapped.started("claude", "--model", "claude-opus-4-8").env


def test_aiders_own_file_is_overruled_and_its_variables_are_kept(wrapped: Wrap, home: Path) -> None:
    write(
        home,
        "aider",
        "openai-api-base: http://127.0.0.1:1/v1\nset-env: [A=1, 'ANTHROPIC_API_BASE=http://127.0.0.1:1']\n",
    )
    seen = wrapped.started("aider", "a.py")
    wanted = ["--openai-api-base", f"{seen.address}/v1", "--set-env", "A=1"]
    assert seen.words == [*wanted, "--set-env", f"ANTHROPIC_API_BASE={seen.address}", "a.py"]


def test_cline_gets_a_copy_of_its_file_and_what_it_writes_there_is_kept(
    wrapped: Wrap, tmp_path: Path, home: Path
) -> None:
    path = write(home, "cline", '{"version": 1, "modes": {}, "providers": {}}')
    code = """
import json, os
name = os.environ["CLINE_PROVIDER_SETTINGS_PATH"]
values = json.load(open(name))
print(values["providers"]["anthropic"]["settings"]["baseUrl"])
values["providers"]["anthropic"]["settings"]["apiKey"] = "sk-new"
json.dump(values, open(name, "w"))
"""
    ran = wrapped("--port", "0", "--", stand_in(tmp_path, "cline", code))
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/folder/[\w-]+/v1\n", ran.stdout)
    kept = json.loads(path.read_bytes())["providers"]["anthropic"]
    assert kept["settings"] == {"provider": "anthropic", "apiKey": "sk-new"}


def test_when_the_program_ends_one_line_says_what_went_through(
    wrapped: Wrap, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with ModelServer("Hello.") as model:
        program = stand_in(tmp_path, "app", CALL + CALL)
        ran = wrapped("--port", "0", "--upstream", model.url, "--store", str(tmp_path / "s.db"), "--", program)
    line = re.fullmatch(
        r"everlong: 2 requests, 0 compactions, \d+ % from cache; (everlong sessions show \S+)\n", ran.stderr
    )
    assert line is not None, ran.stderr
    _, *words = line[1].split()
    main([words[0], "--store", str(tmp_path / "s.db"), *words[1:]])
    assert "Hello." in capfd.readouterr().out
    with Store.open(tmp_path / "s.db") as store:
        assert {one.client for one in store.conversations.newest()} == {"app"}  # and not "openai-sdk"


def test_a_program_that_bypassed_the_gateway_is_told_so(wrapped: Wrap) -> None:
    assert "no request of" in wrapped.started("other").err
    assert "reads neither OPENAI_BASE_URL nor ANTHROPIC_BASE_URL" in wrapped.started("other").err
    assert "`everlong setup codex`" in wrapped.started("codex").err


AGENTS = """
import anthropic
with anthropic.Anthropic(api_key="k", max_retries=0) as claude:
    head = "You are Claude Code, Anthropic's official CLI for Claude."
    tools = [{"name": "Task", "input_schema": {"type": "object"}}]
    for name, asked, headers in (
        ("own", ["Mend the build"], {}),
        ("own", ["Look for the test", "Look again", "And again"], {"x-claude-code-agent-id": "a1"}),
    ):
        messages = []
        for words in asked:
            messages.append({"role": "user", "content": words})
            said = claude.messages.create(model="my-own", max_tokens=100, system=head, tools=tools, messages=messages,
                extra_headers={"x-claude-code-session-id": name, **headers})
            messages.append({"role": "assistant", "content": said.content[0].text})
"""


def test_the_line_at_the_end_names_the_persons_own_conversation_and_no_sub_agents(
    wrapped: Wrap, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "s.db")
    with ModelServer("Done.") as model:
        program = stand_in(tmp_path, "app", AGENTS)
        ran = wrapped("--port", "0", "--upstream", model.url, "--store", store, "--", program)
    session = re.search(r"everlong sessions show (\S+)", ran.stderr)
    assert session is not None, ran.stderr
    main(["sessions", "--store", store, "show", session[1]])
    assert "Mend the build" in capfd.readouterr().out
