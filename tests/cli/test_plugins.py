"""``everlong plugins``: listing, choosing, looking, starting, trusting; comments in config.yaml stay."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from everlong.config import load_settings
from everlong.plugins.trust import trust
from tests.cli.conftest import Run
from tests.plugins.making import copied, engine_in, write
from tests.plugins.test_choosing import REGISTERS


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
    copied("harbour_log", home / "plugins" / "context_engine")
    copied("clock", home / "plugins")
    engine_in(home / "plugins" / "context_engine" / "odd", manifest="")
    (home / "config.yaml").write_text("context: {engine: harbour_log}\nplugins: {enabled: [clock]}\n")
    listed = run("plugins", "list").out
    assert listed == run("plugins").out  # off a terminal there is no menu
    lines = listed.splitlines()
    assert lines[0] == "Provider Plugins → Context Engine"
    assert "    compressor   0.1.0  built-in" in lines[1]
    assert "    lcm          0.1.0  built-in" in lines[2]
    assert lines[3].startswith("  * harbour_log  1.2.0  user")
    assert "one line for each request" in lines[3]
    assert lines[5] == "      ! it has no plugin.yaml"
    assert "  * clock        0.3.0  user" in lines[7]
    values = run("plugins", "list", "--json").json
    assert values["engine"] == "harbour_log"
    active = {one["name"]: one["active"] for one in values["plugins"] if one["origin"] != "package"}
    assert active == {"compressor": False, "lcm": False, "harbour_log": True, "odd": False, "clock": True}


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


@pytest.mark.spec("2.6")
def test_choosing_a_general_plugin_enables_it_too(run: Run, home: Path) -> None:
    told = "name: hermes-lcm\ndescription: d\nversion: 1\nprovides: [lcm]\n"
    write(home / "plugins" / "hermes-lcm", REGISTERS.format(name="lcm"), told)
    (home / "config.yaml").write_text("plugins:\n  # those that I like\n  enabled: [other]\n")
    write(home / "plugins" / "other", "def register(ctx): pass")
    assert run("plugins", "use", "hermes-lcm").code == 0
    settings = load_settings().settings
    assert (settings.context.engine, settings.plugins.enabled) == ("lcm", ["other", "hermes-lcm"])
    assert "# those that I like" in (home / "config.yaml").read_text()
    assert run("plugins", "doctor").code == 0
    assert run("plugins", "use", "lcm").code == 0
    assert load_settings().settings.plugins.enabled == ["other", "hermes-lcm"]


def test_a_general_plugin_is_chosen_by_the_name_of_its_engine_and_refused_without_one(run: Run, home: Path) -> None:
    write(home / "plugins" / "hermes-lcm", REGISTERS.format(name="lcm"))
    assert run("plugins", "use", "hermes-lcm").code == 0
    settings = load_settings().settings
    assert (settings.context.engine, settings.plugins.enabled) == ("lcm", ["hermes-lcm"])
    listed = run("plugins", "list").out
    assert "  * hermes-lcm" in listed
    assert "  * compressor" not in listed
    assert "(lcm)" in run("plugins", "doctor").out
    copied("clock", home / "plugins")
    ran = run("plugins", "use", "clock")
    assert (ran.code, "offers no context engine" in ran.err) == (1, True)
    assert load_settings().settings.plugins.enabled == ["hermes-lcm"]
    write(home / "plugins" / "broken", "1 / 0")
    assert run("plugins", "use", "broken").code == 0
    assert run("plugins", "doctor").code == 1


def test_a_name_that_is_not_there_changes_nothing_and_the_error_says_what_is(run: Run, home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "short")
    ran = run("plugins", "use", "shrot")
    assert ran.code == 1
    assert "there is no plugin 'shrot' (did you mean short?); there are compressor, lcm, short" in ran.err
    assert str(home / "plugins" / "context_engine") in ran.err
    assert not (home / "config.yaml").exists()
    assert run("plugins", "info", "nobody").code == 1


def test_choosing_for_a_project_writes_its_file_and_an_override_is_told(run: Run, home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "short")
    assert run("plugins", "use", "short", "--project").code == 0
    assert Path(".everlong/config.yaml").read_text() == "context:\n  engine: short\n"
    assert "overrides it" in run("plugins", "use", "compressor").err


def test_info_tells_all_that_is_known_without_loading(run: Run, home: Path) -> None:
    write(home / "plugins" / "context_engine" / "loud", "raise SystemExit('it was imported')")
    told = run("plugins", "info", "loud").out
    assert "version:     1.0" in told
    assert "active:      no" in told
    values = run("plugins", "info", "loud", "--json").json
    assert values["where"] == str(home / "plugins" / "context_engine" / "loud")


def test_the_doctor_shows_the_plugins_own_traceback(run: Run, home: Path) -> None:
    folder = write(home / "plugins" / "context_engine" / "bad", "from . import inner")
    (folder / "inner.py").write_text("def tide():\n    return 1 / 0\n\ntide()\n")
    before = set(sys.modules)
    ran = run("plugins", "doctor", "bad")
    assert ran.code == 1
    assert f'File "{folder / "inner.py"}", line 2, in tide' in ran.out
    assert "ZeroDivisionError" in ran.out
    assert "everlong/plugins/loading.py" not in ran.out
    values = run("plugins", "doctor", "bad", "--json").json
    assert (values["ok"], "ZeroDivisionError" in values["plugins"][0]["traceback"]) == (False, True)
    assert not {name for name in set(sys.modules) - before if "everlong_plugin_bad" in name}


def test_the_doctor_tells_what_was_registered_and_what_the_engine_does_wrong(run: Run, home: Path) -> None:
    copied("clock", home / "plugins")
    copied("harbour_log", home / "plugins" / "context_engine")
    told = run("plugins", "doctor", "harbour_log")
    assert told.code == 0
    assert "ok    harbour_log 1.2.0 in" in told.out
    assert "registered: a context engine (harbour_log)" in told.out
    told = run("plugins", "doctor", "clock")
    assert "the command /tide, the command /broken, the command /help, the tool high_water" in told.out
    assert "it brings a command /help, which the chat has already" in told.out
    assert told.code == 1
    wrong = REGISTERS.format(name="wrong").replace("return False", "return 1").replace("return messages", "return None")
    write(home / "plugins" / "context_engine" / "wrong", wrong)
    told = run("plugins", "doctor", "wrong")
    assert "should_compress must give True or False, and gave int" in told.out
    assert "compress must give a list of messages" in told.out
    assert told.code == 1


def test_the_doctor_looks_at_what_is_in_use_and_at_what_is_named_and_not_there(run: Run, home: Path) -> None:
    assert run("plugins", "doctor").out.startswith("ok    compressor")
    (home / "config.yaml").write_text("plugins: {enabled: [ghost]}\n")
    ran = run("plugins", "doctor")
    assert ran.code == 1
    assert "plugins.enabled names 'ghost'" in ran.out
    (home / "config.yaml").write_text("plugins: {paths: [nowhere]}\n")
    assert f"plugins.paths names {home / 'nowhere'}, and there is no such folder" in run("plugins", "doctor").out
    (home / "config.yaml").write_text("context: {engine: ghost}\n")
    assert "context.engine is 'ghost'" in run("plugins", "doctor").out


def test_a_projects_plugin_is_trusted_by_command(run: Run, home: Path) -> None:
    folder = engine_in(Path(".everlong/plugins/context_engine/theirs").absolute())
    (home / "config.yaml").write_text("context: {engine: theirs}\n")
    assert f"everlong plugins trust {folder}" in run("plugins", "list").out
    ran = run("plugins", "doctor")
    assert (ran.code, "is not trusted" in ran.out) == (1, True)
    assert run("plugins", "doctor", "theirs").code == 1
    assert "not trusted yet" in run("plugins", "use", "theirs").err
    ran = run("plugins", "trust", ".everlong/plugins/context_engine/theirs")
    assert (ran.code, "is trusted as it is now" in ran.err) == (0, True)
    assert run("plugins", "doctor").code == 0
    ran = run("plugins", "trust", ".")
    assert (ran.code, "is no plugin" in ran.err) == (1, True)


def test_a_new_engine_is_written_used_and_well(run: Run, home: Path, tmp_path: Path) -> None:
    ran = run("plugins", "new", "tide")
    assert ran.code == 0
    assert str(home / "plugins" / "context_engine" / "tide" / "plugin.yaml") in ran.out.splitlines()
    assert run("plugins", "use", "tide").code == 0
    assert run("plugins", "doctor").out.startswith("ok    tide")
    assert run("plugins", "new", "tide").code == 1
    assert run("plugins", "new", "context_engine").code == 1
    ran = run("plugins", "new", "moon", "--path", str(tmp_path / "moon"))
    (line,) = [line for line in ran.err.splitlines() if "plugins.paths" in line]
    assert run(*shlex.split(line.partition(": everlong ")[2])).code == 0
    assert run("plugins", "use", "moon").code == 0
    assert load_settings().settings.context.engine == "moon"
    assert run("plugins", "doctor", "moon").code == 0


def test_the_host_path_is_a_folder_with_the_modules_of_other_hosts(run: Run) -> None:
    assert (Path(run("plugins", "host-path").out.strip()) / "agent" / "context_engine.py").is_file()


def test_everlong_doctor_looks_at_plugins(run: Run, home: Path) -> None:
    def plugins() -> list[dict[str, str]]:
        return [one for one in run("doctor", "--json").json["checks"] if one["name"] == "plugins"]

    (one,) = plugins()
    assert (one["state"], one["text"]) == ("ok", "0 are there; in use: none")
    engine_in(home / "plugins" / "context_engine" / "short", manifest="")
    (one,) = plugins()
    assert (one["state"], "it has no plugin.yaml" in one["text"]) == ("warn", True)
    write(home / "plugins" / "context_engine" / "short", "1 / 0")
    (home / "config.yaml").write_text("context: {engine: short}\nplugins: {enabled: [ghost]}\n")
    found = plugins()
    assert [one["state"] for one in found] == ["fail", "fail"]
    assert "ZeroDivisionError" in found[0]["text"]
    assert "everlong plugins doctor short" in found[0]["advice"]
    assert "'ghost'" in found[1]["text"]


def test_a_trusted_plugin_of_a_project_can_be_chosen_by_its_project(run: Run, home: Path) -> None:
    folder = engine_in(Path(".everlong/plugins/context_engine/theirs").absolute())
    trust(folder)
    Path(".everlong/config.yaml").write_text("context: {engine: theirs}\n")
    assert home.is_dir()
    assert "* compressor" in run("plugins", "list").out
    assert run("trust", "add").code == 0
    assert "* theirs" in run("plugins", "list").out
