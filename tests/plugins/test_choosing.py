"""Which engine a name leads to: the order, what activates one, what is refused, and what is said where nothing is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from everlong import ContextCompressor
from everlong.agent import resolve_engine
from everlong.config import Settings
from everlong.context import ContextEngine
from everlong.plugins.discovery import FoundPlugin
from everlong.plugins.guard import GuardedEngine
from everlong.plugins.manager import Plugins
from tests.plugins.making import ENGINE, engine_in, write

REGISTERS = ENGINE + "\ndef register(ctx):\n    ctx.register_context_engine(Engine)\n"


def chosen(engine: str, **plugins: Any) -> tuple[ContextEngine, list[str]]:
    """The engine that a name leads to, and what is said about it."""
    settings = Settings.model_validate({"context": {"engine": engine}, "plugins": plugins})
    said: list[str] = []
    loaded = Plugins(settings, warn=said.append)
    loaded.load()
    return resolve_engine(settings, 50_000, plugins=loaded, warn=said.append), said


def inside(engine: ContextEngine) -> Any:
    assert isinstance(engine, GuardedEngine), "the built-in engine is in use"
    return engine.inner


@pytest.mark.spec("2.2", "2.3", "2.4")
def test_an_engine_in_a_folder_is_used_where_it_is_named_and_only_there(home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "short")
    engine, said = chosen("short")
    assert (inside(engine).name, engine.context_length, said) == ("short", 50_000, [])
    engine, said = chosen("compressor")
    assert isinstance(engine, ContextCompressor)
    assert said == []


@pytest.mark.spec("2.2")
def test_nothing_can_take_the_place_of_the_built_in_engine(home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "compressor")
    engine_in(home / "plugins" / "context_engine" / "other", manifest="name: compressor\nprovides: compressor\n")
    engine, said = chosen("compressor")
    assert type(engine) is ContextCompressor
    assert said == []


@pytest.mark.spec("2.2", "2.4", "2.5")
def test_the_engine_of_a_general_plugin_is_found_by_the_plugins_name_and_by_what_it_provides(home: Path) -> None:
    folder = write(home / "plugins" / "hermes-graphs", REGISTERS.format(name="graphs"))
    engine, (warning,) = chosen("hermes-graphs")
    assert engine.name == "graphs"
    assert "calls itself 'graphs'" in warning
    engine, (warning,) = chosen("graphs")
    assert isinstance(engine, ContextCompressor)
    assert "no engine of that name" in warning
    (folder / "plugin.yaml").write_text("name: g\ndescription: d\nversion: 1\nprovides: graphs\n", encoding="utf-8")
    engine, said = chosen("graphs")
    assert (engine.name, said) == ("graphs", [])


@pytest.mark.spec("2.5")
def test_a_second_engine_is_refused_with_a_warning(home: Path) -> None:
    write(home / "plugins" / "twice", REGISTERS.format(name="twice") + "    ctx.register_context_engine(Engine)\n")
    engine, (said,) = chosen("twice")
    assert engine.name == "twice"
    assert "'twice'" in said
    assert "only one" in said


@pytest.mark.spec("2.4")
def test_of_several_classes_the_one_in_all_is_meant_and_the_most_derived_one(home: Path) -> None:
    two = ENGINE.format(name="x") + "\nclass Better(Engine):\n    name = 'better'\n"
    write(home / "plugins" / "context_engine" / "derived", two)
    assert chosen("derived")[0].name == "better"
    write(home / "plugins" / "context_engine" / "named", two + "\n__all__ = ['Engine']\n")
    assert chosen("named")[0].name == "x"
    others = ENGINE.format(name="x") + ENGINE.format(name="y").replace("class Engine", "class Other")
    write(home / "plugins" / "context_engine" / "unclear", others)
    engine, (said,) = chosen("unclear")
    assert isinstance(engine, ContextCompressor)
    assert "several context engines (Engine, Other)" in said
    write(home / "plugins" / "context_engine" / "y", others)
    assert chosen("y")[0].name == "y"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def register(ctx):\n    raise ValueError('no tide')", "ValueError: no tide"),
        ("def register(ctx):\n    raise SystemExit(3)", "SystemExit"),
        ("x = 1", "neither a class made from ContextEngine nor a register(ctx)"),
        ("def register(ctx):\n    pass", "offers no context engine"),
        (ENGINE.format(name="x").replace("def compress(", "def other("), "abstract method compress"),
        (REGISTERS.format(name="x").replace("self.context_length = context_length", "1 / 0"), "ZeroDivisionError"),
    ],
)
def test_a_plugin_that_fails_is_one_warning_and_the_built_in_engine(home: Path, code: str, said: str) -> None:
    write(home / "plugins" / "context_engine" / "bad", code)
    before = set(sys.modules)
    engine, warnings = chosen("bad")
    assert isinstance(engine, ContextCompressor)
    assert len(warnings) == 1
    assert said in warnings[0]
    assert "is used" in warnings[0]
    if "raise" in code:
        assert not {name for name in set(sys.modules) - before if "bad" in name}


@pytest.mark.spec("2.3")
def test_being_there_loads_nothing(home: Path) -> None:
    for folder in ("loud", "context_engine/loud"):
        write(home / "plugins" / folder, "raise SystemExit('it was imported')")
    engine_in(home / "plugins" / "context_engine" / "short")
    engine, said = chosen("short")
    assert (engine.name, said) == ("short", [])


@pytest.mark.spec("2.7")
def test_an_engine_reads_its_own_section_and_not_that_of_the_compressor(home: Path) -> None:
    code = REGISTERS.format(name="deep").replace("ctx.register", "Engine.depth = ctx.config\n    ctx.register")
    write(home / "plugins" / "context_engine" / "deep", code)
    engine, _ = chosen("deep", deep={"depth": 3})
    assert inside(engine).depth == {"depth": 3}


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
