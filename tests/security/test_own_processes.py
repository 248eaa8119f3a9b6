"""Processes that Everlong starts or writes down: a folder's own modules never take the place of ours."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import everlong
from everlong.processes import own_command
from tests.cli.client_files import scratch_home
from tests.cli.conftest import Run, run
from tests.waiting import PATIENCE, until

__all__ = ["run"]

HOSTILE = ("everlong", "json", "click", "asyncio", "sqlite3", "sitecustomize", "usercustomize", "aiohttp")


@pytest.fixture
def trace(clone: Path) -> Path:
    """The file that the clone's modules write when one of them runs."""
    trace = clone.parent / "ran"
    for name in HOSTILE:
        (clone / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write('{name}\\n')\n")
    return trace


def plain_environment(home: Path) -> dict[str, str]:
    left_out = ("PYTHONPATH", "PYTHONSAFEPATH", "TELEGRAM_BOT_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "EVERLONG_HOME": str(home), "NO_PROXY": "127.0.0.1"}


def test_a_hook_that_was_written_down_runs_no_module_of_the_folder(
    home: Path, clone: Path, trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = scratch_home(clone.parent, monkeypatch)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without everlong
    assert run("setup", "claude-code", "--hooks", "--write").code == 0
    written = json.loads((user / ".claude" / "settings.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]
    told = json.dumps({"hook_event_name": "SessionStart", "session_id": "s1", "cwd": str(clone)})
    done = subprocess.run(
        ["/bin/sh", "-c", written["command"]],
        cwd=clone,
        env=plain_environment(home),
        input=told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not trace.exists(), f"the folder's own code ran: {trace.read_text().split()}"


def test_every_written_hook_names_its_program_by_its_path_wherever_everlong_is_found(
    tmp_path: Path, clone: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = scratch_home(tmp_path, monkeypatch)
    (clone / "everlong").write_text("#!/bin/sh\n")
    (clone / "everlong").chmod(0o755)
    monkeypatch.chdir(clone)
    monkeypatch.setenv("PATH", ".:/usr/bin:/bin")
    for client in ("claude-code", "codex", "opencode"):
        assert run("setup", client, "--hooks", "--write").code == 0
    claude = json.loads((user / ".claude/settings.json").read_text())["hooks"]
    codex = json.loads((user / ".codex/hooks.json").read_text())["hooks"]
    written = [hook["command"] for events in (claude, codex) for one in events.values() for hook in one[0]["hooks"]]
    assert (
        written
        == [shlex.join(own_command("everlong", "hook", "claude-code"))] * 3
        + [shlex.join(own_command("everlong", "hook", "codex"))] * 3
    )
    plugin = (user / ".config/opencode/plugins/everlong.js").read_text()
    assert json.dumps(own_command("everlong", "hook", "opencode")) in plugin
    assert own_command("everlong")[:2] == [sys.executable, "-P"]


def test_a_gateway_in_the_folder_its_inspector_its_channels_and_its_storing_process_run_no_module_of_it(
    home: Path, clone: Path, trace: Path
) -> None:
    (home / "config.yaml").write_text("gateway: {port: 0}\nchannels: {telegram: {enabled: true}}\n")
    errors = clone.parent / "said"
    with errors.open("wb") as said:
        serving = subprocess.Popen(
            [*own_command("everlong"), "serve", "--until-eof"],
            cwd=clone,
            env=plain_environment(home),
            stdin=subprocess.PIPE,
            stderr=said,
        )
    try:
        found = until(lambda: re.search(r"listening on (http://\S+?),", errors.read_text()) or serving.poll())
        assert isinstance(found, re.Match), errors.read_text()
        page = urllib.request.urlopen(f"{found[1]}/inspector", timeout=PATIENCE)  # noqa: S310 - our own
        assert page.status == 200
        until(lambda: "the channels ended" in errors.read_text())  # they have no token
    finally:
        serving.communicate()
    assert not trace.exists(), f"the folder's own code ran: {trace.read_text().split()}"


def test_no_other_place_of_the_source_spells_a_command_of_our_own() -> None:
    root = Path(everlong.__file__).parent
    by_hand = re.compile(r"sys\.executable|\"-m\",\s*f?\"everlong|\"-c\",\s*f?\"(?:import|from)")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if by_hand.search(path.read_text())}
    assert found == {"processes.py"}
