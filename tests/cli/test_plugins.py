"""``everlong plugins``: listing, choosing, looking; comments in config.yaml stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.plugins.making import HARBOUR_LOG, engine_in, write


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.mark.spec("2.6")
def test_the_list_tells_what_is_there_where_it_is_from_and_what_is_in_use(run: Run, home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "harbour_log", manifest=HARBOUR_LOG)
    write(home / "plugins" / "clock", "")
    engine_in(home / "plugins" / "context_engine" / "odd", manifest="")
    (home / "config.yaml").write_text("context: {engine: harbour_log}\n")
    lines = run("plugins").out.splitlines()  # off a terminal there is no menu
    assert lines[0] == "Provider Plugins → Context Engine"
    assert "    compressor   0.1.0  built-in" in lines[1]
    assert "    lcm          0.1.0  built-in" in lines[2]
    assert lines[3].startswith("  * harbour_log  1.2.0  user")
    assert "one line for each request" in lines[3]
    assert lines[5] == "      ! it has no plugin.yaml"
    assert "    clock        1.0    user" in lines[7]
    values = run("plugins", "--json").json
    assert values["engine"] == "harbour_log"
    active = {one["name"]: one["active"] for one in values["plugins"] if one["origin"] != "package"}
    assert active == {"compressor": False, "lcm": False, "harbour_log": True, "odd": False, "clock": False}


@pytest.mark.spec("2.6")
def test_an_engine_is_chosen_and_comments_stay(run: Run, home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "short")
    file = home / "config.yaml"
    file.write_text("# mine\ncontext:\n  engine: compressor  # for now\n")
    ran = run("plugins", "use", "short")
    assert ran.code == 0
    assert file.read_text() == "# mine\ncontext:\n  engine: short  # for now\n"
    assert f"context.engine is now short in {file}" in ran.err
    assert run("plugins", "use", "compressor").code == 0
    assert file.read_text() == "# mine\ncontext:\n  engine: compressor  # for now\n"


def test_the_doctor_loads_what_is_in_use_and_names_the_line_that_fails(run: Run, home: Path) -> None:
    write(home / "plugins" / "context_engine" / "broken", "ready = True\n1 / 0\n")
    (home / "config.yaml").write_text("context: {engine: broken}\n")
    ran = run("doctor")
    assert ran.code == 1
    assert "ZeroDivisionError" in ran.out
    assert "line 2" in ran.out


def test_a_plugin_that_cannot_be_loaded_is_not_chosen(run: Run, home: Path) -> None:
    write(home / "plugins" / "context_engine" / "broken", "ready = True\n1 / 0\n")
    ran = run("plugins", "use", "broken")
    assert (ran.code, "ZeroDivisionError" in ran.err) == (1, True)
    assert not (home / "config.yaml").exists()


def test_choosing_a_plugin_says_what_the_doctor_will_find_fault_with(run: Run, home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "odd", manifest="")
    ran = run("plugins", "use", "odd")
    assert (ran.code, "but it has no plugin.yaml" in ran.err) == (0, True)
