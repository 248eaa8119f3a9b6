from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from everlong.cli.config import config_group
from everlong.errors import ConfigError
from tests.config.conftest import write_trusted


@pytest.fixture(autouse=True)
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def run(*words: str) -> Result:
    return CliRunner().invoke(config_group, words, catch_exceptions=False)


def test_show_lists_every_setting_as_yaml() -> None:
    values = YAML(typ="safe").load(run("show").stdout)
    assert values["compression"]["threshold"] == 0.5
    assert values["auxiliary"]["compression"]["choose"] == "first_good"
    assert values["plugins"] == {"paths": []}


def test_show_tells_what_a_setting_or_a_section_means() -> None:
    assert run("show", "agent.max_cost").stdout.startswith("agent.max_cost: The most US dollars that one prompt may")
    assert run("show", "models.gpt-5.input_price").stdout.startswith(
        "models.NAME.input_price: US dollars for a million"
    )
    assert "store.redact: Whether keys, " in run("show", "store").stdout
    with pytest.raises(ConfigError, match=r"store\.ulr .* did you mean store\.url"):
        run("show", "store.ulr")


def test_set_writes_the_users_file_and_says_so_on_stderr(user_file: Path) -> None:
    done = run("set", "compression.threshold", "0.6")
    assert done.stdout == ""
    assert done.stderr == f"compression.threshold is now 0.6 in {user_file}\n"
    assert json.loads(run("show", "--json").stdout)["compression"]["threshold"] == 0.6


def test_set_works_while_another_source_is_broken_and_says_so(project_file: Path) -> None:
    write_trusted(project_file, "nonsense: 1\n")
    done = run("set", "context.engine", "lcm")
    assert done.exit_code == 0
    assert "no effect yet" in done.stderr


def test_unset_removes_the_line_and_keeps_all_comments(user_file: Path) -> None:
    above = "# mine\ncompression:\n  # half is too soon\n"
    below = "  # and this\n  protect_last_n: 7\n\n# the engine\ncontext:\n  engine: lcm\n"
    user_file.parent.mkdir(parents=True, exist_ok=True)
    user_file.write_text(f"{above}  threshold: 0.6  # of the window\n{below}")
    done = run("set", "compression.threshold")
    assert done.stderr == f"compression.threshold is no longer set in {user_file}\n"
    assert user_file.read_text() == above + below
    assert json.loads(run("show", "--json").stdout)["compression"]["threshold"] == 0.5
    with pytest.raises(ConfigError, match=r"compression.threshold is not set in"):
        run("set", "compression.threshold")


def test_a_name_without_settings_is_no_fault() -> None:
    run("set", "models.mine.input_price", "1")
    assert run("set", "models.mine.input_price").exit_code == 0
    assert json.loads(run("show", "--json").stdout)["models"] == {}


def test_unset_leaves_a_file_alone_that_it_could_only_damage(user_file: Path) -> None:
    user_file.parent.mkdir(parents=True, exist_ok=True)
    user_file.write_text("compression: {threshold: 0.6, protect_last_n: 7}\n")
    with pytest.raises(ConfigError, match="edit the file by hand"):
        run("set", "compression.threshold")
    assert user_file.read_text() == "compression: {threshold: 0.6, protect_last_n: 7}\n"
