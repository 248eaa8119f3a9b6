"""Every setting of the memory section does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from everlong.config import MemorySettings, Settings
from everlong.memory import MemoryManager, NotesMemory


def made(folder: Path | None, warnings: list[str], **memory: object) -> MemoryManager:
    manager = MemoryManager.from_settings(Settings.model_validate({"memory": memory}), folder, warnings.append)
    manager.start("s1")
    return manager


def test_memory_that_is_off_has_no_tools_and_no_block(folder: Path, warnings: list[str]) -> None:
    NotesMemory(folder).add("user", "Sails.")
    assert "Sails." in made(folder, warnings).prompt_block()
    manager = made(folder, warnings, enabled=False, provider="of no matter")
    assert manager.prompt_block() == ""
    assert manager.tool_schemas() == []
    assert warnings == []


def test_the_usual_folder_is_in_the_data_home(
    tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLONG_HOME", str(tmp_path))
    made(None, warnings).handle_tool_call("memory_add", {"target": "user", "text": "Sails."})
    assert (tmp_path / "memories" / "USER.md").exists()


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("values", [{"scope": "nowhere"}, {"flush": 1}, {"enabled": "maybe"}])
def test_values_out_of_range_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MemorySettings.model_validate(values)
