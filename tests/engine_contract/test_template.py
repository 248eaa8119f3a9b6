"""The template for new engines: what it writes, and what it refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.errors import PluginError
from everlong.plugins.loading import load_folder, unload
from everlong.plugins.template import write_plugin
from everlong.testing import check_engine
from tests.examples import length


def test_a_folder_with_engine_manifest_description_and_tests_is_written(tmp_path: Path) -> None:
    written = write_plugin(tmp_path / "deep" / "short_term", "short_term")
    names = sorted(str(path.relative_to(tmp_path / "deep" / "short_term")) for path in written)
    assert names == [
        "README.md",
        "__init__.py",
        "engine.py",
        "plugin.yaml",
        "tests/__init__.py",
        "tests/test_engine.py",
    ]
    assert all("{{" not in path.read_text(encoding="utf-8") for path in written)


@pytest.mark.spec("2.4")
def test_the_engine_keeps_the_contract_as_it_is_loaded_by_a_host(tmp_path: Path) -> None:
    write_plugin(tmp_path / "short_term", "short_term")
    module = load_folder(tmp_path / "short_term", "short_term")
    try:
        assert module.ShortTermEngine().name == "short_term"
        assert check_engine(module.ShortTermEngine, examples=length(6, 1)) == []
    finally:
        unload(module)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "Short Term",
            "'Short Term' cannot be the name of an engine: it takes small letters, digits and _.*Try short_term",
        ),
        ("short-term", "Try short_term"),
        ("", "'' cannot be the name of an engine: it takes small letters"),
        ("a" * 41, "at most 40 of them"),
        ("compressor", "'compressor' cannot be the name of an engine: it means something else already"),
        ("json", "it means something else already"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_with_the_reason(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        write_plugin(tmp_path / "new", name)
    assert list(tmp_path.iterdir()) == []
