"""Plugins are found in their places, by what they say of themselves; nothing of them is run for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong.config import Settings
from everlong.plugins.discovery import FoundPlugin
from everlong.plugins.manager import Plugins
from tests.plugins.making import engine_in, write


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


def found(**sections: Any) -> dict[str, FoundPlugin]:
    """What is there, by name; in a test no name is there twice."""
    return {one.name: one for one in Plugins(settings(**sections)).found}


@pytest.mark.spec("2.2", "2.6")
def test_every_place_is_looked_at_in_the_order_of_resolution(home: Path, tmp_path: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "one")
    engine_in(tmp_path / "more" / "context_engine" / "three")
    write(home / "plugins" / "four", "")
    write(tmp_path / "more" / "six", "")
    write(tmp_path / "seven", "")
    plugins = Plugins(settings(plugins={"paths": [str(tmp_path / "more"), str(tmp_path / "seven")]}))
    there = [(one.name, one.kind, one.origin) for one in plugins.found if one.origin != "package"]
    assert there == [
        ("compressor", "engine", "built-in"),
        ("lcm", "engine", "built-in"),
        ("one", "engine", "user"),
        ("three", "engine", "path"),
        ("four", "general", "user"),
        ("six", "general", "path"),
        ("seven", "general", "path"),
    ]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (b"name: [", "not valid YAML at line 1"),
        (b"- a\n- b\n", "holds no mapping"),
        (b"name: x\n", "does not tell description, version"),
        (b"name: {a: 1}\ndescription: d\nversion: 1\n", "name in its plugin.yaml must be text"),
        (b"name: x\ndescription: d\nversion: 1\nprovides: {a: b}\n", "provides in its plugin.yaml must be text"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"#" * 70_000, "larger than 64 KiB"),
        (b"!!python/object/apply:os.system ['true']", "holds no mapping"),
        (b"a: " + b"[" * 30_000, "is nested more than 100 levels deep"),
    ],
)
def test_a_broken_manifest_is_told_and_hides_nothing(home: Path, manifest: bytes, problem: str) -> None:
    folder = engine_in(home / "plugins" / "context_engine" / "odd")
    (folder / "plugin.yaml").write_bytes(manifest)
    assert problem in found()["odd"].problem


def test_a_plugin_with_a_name_that_it_cannot_have_is_listed_with_the_reason_and_answers_to_nothing(home: Path) -> None:
    write(home / "plugins" / "paths", "")
    plugins = Plugins(settings())
    assert "cannot be called 'paths'" in {one.name: one for one in plugins.found}["paths"].problem
    assert plugins.named("paths") == []
