"""Every setting of the memory section does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from everlong.config import MemorySettings, Settings
from everlong.memory import MemoryManager, NotesMemory
from everlong.memory.files import hold_lock
from tests.waiting import PATIENCE


def made(folder: Path | None, warnings: list[str], **memory: object) -> MemoryManager:
    manager = MemoryManager.from_settings(Settings.model_validate({"memory": memory}), folder, warnings.append)
    manager.start("s1")
    return manager


@pytest.mark.spec("9.4")
def test_the_budget_bounds_the_block(folder: Path, warnings: list[str]) -> None:
    for number in range(40):
        NotesMemory(folder).add("user", f"Knows the harbour master of port {number}.")
    small, large = made(folder, warnings, budget_tokens=200), made(folder, warnings, budget_tokens=2_000)
    assert 0 < small.prompt_block().count("Knows") < large.prompt_block().count("Knows") == 40
    assert made(folder, warnings, budget_tokens=0).prompt_block() == ""


def test_the_time_limit_is_the_setting(folder: Path, warnings: list[str]) -> None:
    manager = made(folder, warnings, timeout_seconds=3)
    assert manager._providers[0]._seconds == 3
    with hold_lock(folder.parent, 5):
        pass  # the lock belongs to a folder, not to the process
    folder.mkdir(exist_ok=True)
    with hold_lock(folder, 5):
        manager = made(folder, warnings, timeout_seconds=1)
        manager._providers[0]._seconds = PATIENCE  # so that a busy machine does not reach it first
        answer = manager.handle_tool_call("memory_add", {"target": "user", "text": "Sails."})
    assert "locked for 0.5 seconds" in answer  # told in time, rather than hanging past the limit


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    "values",
    [{"budget_tokens": -1}, {"timeout_seconds": 0}, {"flush_min_turns": -1}, {"flush": 1}, {"enabled": "maybe"}],
)
def test_values_out_of_range_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MemorySettings.model_validate(values)
