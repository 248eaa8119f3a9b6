from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from everlong.testing import Ask, ScriptedModel
from tests.waiting import PATIENCE

STORY = "".join(f"{number:03} " for number in range(130)).strip()


def run_processes(server: Any, folder: Path, moments: list[str]) -> list[int]:
    """Return the exit codes of processes that die at moments, one after the other."""
    arguments = [str(folder / "store.db"), server.openai_url, str(folder), *moments]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", root]), "EVERLONG_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "tests.channels.killed_channel", *arguments]
    done = subprocess.run(command, env=env, cwd=root, stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def check_one_answer(folder: Path) -> None:
    """One turn is stored, and people see its words once; a message without words may have stayed behind."""
    shown = [one["text"] for one in json.loads((folder / "shown.json").read_text()).values()]
    assert "".join(text for text in shown if text != "…") == STORY
    assert shown.count("…") <= 1
    with Store.open(folder / "store.db") as store:
        (one,) = store.conversations.newest(5)
        roles = [line.entry.message["role"] for line in store.conversations.lines(one.id) if line.status is None]
        assert roles == ["user", "assistant"]
        assert store.verify().problems == []


@pytest.mark.spec("12.7")
def test_kill_9_after_kill_9_leaves_one_turn_and_one_answer(serve: Any, tmp_path: Path) -> None:
    def say(_ask: Ask) -> str:
        if len(model.asked) == 1:  # in the middle of the turn
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        return STORY

    model = ScriptedModel(say)
    moments = ["stored", "thinking", "send-1-after", "edit-1-after", "edit-2-before", "never"]
    codes = run_processes(serve(model), tmp_path, moments)
    assert dict(zip(moments, codes, strict=True)) == dict.fromkeys(moments, -signal.SIGKILL) | {"never": 0}
    check_one_answer(tmp_path)
    assert len(model.asked) == 2  # the second one instead of the one that a kill cut short
