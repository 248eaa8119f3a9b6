"""A home folder and a project folder of one's own for each test, and a clean environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlong.config import LoadedSettings, load_settings
from everlong.config.trust import folder_wishes, remember_folder

Load = Callable[..., LoadedSettings]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "settings"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return folder


@pytest.fixture
def user_file(home: Path) -> Path:
    return home / "config.yaml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    (folder / ".everlong").mkdir(parents=True)
    return folder


@pytest.fixture
def project_file(project: Path) -> Path:
    return project / ".everlong" / "config.yaml"


def write_trusted(path: Path, text: str) -> None:
    """Write a project's file, and trust the folder with it."""
    path.write_text(text)
    remember_folder(folder_wishes(path.parent.parent), is_trusted=True)


@pytest.fixture
def load(home: Path, project: Path) -> Load:
    def loaded(overrides: dict[str, Any] | None = None, **env: str) -> LoadedSettings:
        return load_settings(overrides, cwd=project, env={"EVERLONG_HOME": str(home), **env})

    return loaded
