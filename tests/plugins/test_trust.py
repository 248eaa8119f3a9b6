"""A project's plugins are loaded after their user trusted them, as they were then."""

from __future__ import annotations

import os
import py_compile
import stat
from pathlib import Path

import pytest

from everlong import ContextCompressor
from everlong.errors import PluginError
from everlong.plugins.trust import content_hash, is_trusted, trust, trust_file
from tests.plugins.making import engine_in
from tests.plugins.test_choosing import chosen


@pytest.fixture
def theirs(root: Path) -> Path:
    return engine_in(root / ".everlong" / "plugins" / "context_engine" / "theirs")


def test_a_projects_plugin_is_not_imported_before_it_is_trusted(theirs: Path, root: Path) -> None:
    (theirs / "__init__.py").write_text("raise SystemExit('it was imported')")
    engine, (said,) = chosen(root, "theirs")
    assert isinstance(engine, ContextCompressor)
    assert f"everlong trust add {theirs}" in said
    assert "it was imported" not in said


def test_once_trusted_it_is_used_until_anything_in_it_changes(theirs: Path, root: Path) -> None:
    trust(theirs)
    assert chosen(root, "theirs")[1] == []
    (theirs / "data.txt").write_text("new")
    assert not is_trusted(theirs)
    assert "is not trusted, or has changed" in chosen(root, "theirs")[1][0]
    trust(theirs)
    assert is_trusted(theirs)
    (theirs / "data.txt").rename(theirs / "other.txt")
    assert not is_trusted(theirs)


def test_git_does_not_count_and_all_else_does(theirs: Path) -> None:
    before = content_hash(theirs)
    (theirs / ".git").mkdir()
    (theirs / ".git" / "index").write_bytes(b"x")
    assert content_hash(theirs) == before
    (theirs / "__pycache__").mkdir()
    (theirs / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    assert content_hash(theirs) != before


@pytest.mark.spec("12.1")
def test_compiled_code_that_was_not_trusted_is_not_run(theirs: Path, root: Path, tmp_path: Path) -> None:
    (theirs / "__init__.py").write_text(f"from .__pycache__ import helper\n{(theirs / '__init__.py').read_text()}")
    cache, ran = theirs / "__pycache__", tmp_path / "ran"
    cache.mkdir()

    def compile_helper(code: str) -> None:
        source = tmp_path / "helper.py"
        source.write_text(code)
        py_compile.compile(str(source), str(cache / "helper.pyc"))

    compile_helper("pass")
    trust(theirs)
    compile_helper(f"open({str(ran)!r}, 'w')")
    assert "is not trusted, or has changed" in chosen(root, "theirs")[1][0]
    assert not ran.exists()


@pytest.mark.spec("12.1")
def test_nothing_is_imported_from_where_nobody_looked(theirs: Path, root: Path) -> None:
    hidden = theirs / ".git"
    code = (theirs / "__init__.py").read_text()
    (theirs / "__init__.py").write_text(f"import sys\nsys.path.insert(0, {str(hidden)!r})\nimport hidden\n{code}")
    trust(theirs)
    hidden.mkdir()
    (hidden / "hidden.py").write_text("raise SystemExit('it was imported')")
    assert is_trusted(theirs)
    (said,) = chosen(root, "theirs")[1]
    assert "No module named 'hidden'" in said


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")
def test_links_that_lead_out_are_refused_and_links_inside_are_not(theirs: Path, tmp_path: Path) -> None:
    (theirs / "inner").symlink_to(theirs / "plugin.yaml")
    trust(theirs)
    (theirs / "inner").unlink()
    assert not is_trusted(theirs)
    (tmp_path / "elsewhere").mkdir()
    (theirs / "outer").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PluginError, match="leads out of the plugin"):
        trust(theirs)
    assert not is_trusted(theirs)


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_the_list_is_the_users_own_and_a_broken_one_trusts_nothing(theirs: Path) -> None:
    trust(theirs)
    assert stat.S_IMODE(trust_file().stat().st_mode) == 0o600
    trust_file().write_text("{broken")
    assert not is_trusted(theirs)
    trust(theirs)
    assert is_trusted(theirs)
