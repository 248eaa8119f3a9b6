"""``everlong setup CLIENT --hooks``: hooks go into the client's own files, beside those of others, and out again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.client_files import EXISTING, scratch_home
from tests.cli.conftest import Run

OTHERS = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}, "model": "opus"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of nobody."""
    return scratch_home(tmp_path, monkeypatch)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def commands(values: Any, event: str) -> list[str]:
    return [hook["command"] for entry in values["hooks"].get(event, []) for hook in entry["hooks"]]


def test_hooks_of_claude_code_stand_beside_those_of_others_and_are_taken_back(home: Path, run: Run) -> None:
    file = put(home / ".claude/settings.json", json.dumps(OTHERS, indent=2))
    shown = run("setup", "claude-code", "--hooks")
    assert "SessionStart" in shown.out
    assert json.loads(file.read_text()) == OTHERS
    for _ in range(2):
        assert run("setup", "claude-code", "--hooks", "--write").code == 0
    values = json.loads(file.read_text())
    for event in ("SessionStart", "PreCompact"):
        (command,) = commands(values, event)
        assert command.endswith("hook claude-code")
    assert commands(values, "Stop")[0] == "say done"
    assert len(commands(values, "Stop")) == 2
    assert run("setup", "claude-code", "--hooks", "--undo").code == 0
    assert json.loads(file.read_text()) == OTHERS


def test_codex_gets_hooks_and_loses_them(home: Path, run: Run) -> None:
    config = put(home / ".codex/config.toml", EXISTING["codex"])
    written = run("setup", "codex", "--hooks", "--write")
    assert "/hooks" in written.err
    values = json.loads((home / ".codex/hooks.json").read_text())
    assert set(values["hooks"]) == {"SessionStart", "PreCompact", "Stop"}
    assert run("setup", "codex", "--hooks", "--undo").code == 0
    assert config.read_text() == EXISTING["codex"]
    assert not (home / ".codex/hooks.json").exists()


def test_opencode_gets_a_plugin_and_loses_it(home: Path, run: Run) -> None:
    file = home / ".config/opencode/plugins/everlong.js"
    assert "session.idle" in run("setup", "opencode", "--hooks").out
    assert not file.exists()
    assert run("setup", "opencode", "--hooks", "--write").code == 0
    assert '"hook", "opencode"]' in file.read_text()
    assert "already" in run("setup", "opencode", "--hooks", "--write").err
    assert run("setup", "opencode", "--hooks", "--undo").code == 0
    assert not file.exists()
    assert "nothing to undo" in run("setup", "opencode", "--hooks", "--undo").err
