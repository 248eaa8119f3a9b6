from __future__ import annotations

from pathlib import Path

import pytest

from everlong.config import config_home, project_config_path, user_config_path


def test_everlong_home_decides_where_the_users_file_is(home: Path) -> None:
    assert config_home() == home
    assert user_config_path() == home / "config.yaml"


@pytest.mark.parametrize("unset", ["", "  "])
def test_without_everlong_home_the_systems_usual_place_is_taken(home: Path, unset: str) -> None:
    assert config_home({"EVERLONG_HOME": unset}).name == "everlong"
    assert config_home({"EVERLONG_HOME": unset}) != home


def test_the_nearest_project_file_above_a_folder_is_found(project: Path, project_file: Path) -> None:
    project_file.touch()
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    assert project_config_path(deep) == project_file
    (deep / ".everlong").mkdir()
    nearer = deep / ".everlong" / "config.yaml"
    nearer.touch()
    assert project_config_path(deep) == nearer
