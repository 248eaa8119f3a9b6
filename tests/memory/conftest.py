"""A folder for notes and a list that gathers warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.memory import NotesMemory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memories"


@pytest.fixture
def notes(folder: Path) -> NotesMemory:
    return NotesMemory(folder)


@pytest.fixture
def warnings() -> list[str]:
    return []
