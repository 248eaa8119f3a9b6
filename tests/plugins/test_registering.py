"""What a plugin registers, and what it is given; what cannot be taken is a warning and breaks nothing."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from everlong.config import Settings
from everlong.plugins.manager import PluginContext, Plugins
from tests.plugins.making import ENGINE, write


def loaded(home: Path, code: str, **section: Any) -> tuple[Plugins, list[str]]:
    """Load the plugin ``p`` of one file."""
    write(home / "plugins" / "p", ENGINE.format(name="p") + code)
    said: list[str] = []
    settings = Settings.model_validate({"context": {"engine": "p"}, "plugins": {"p": section}})
    plugins = Plugins(settings, warn=said.append)
    plugins.load()
    return plugins, said


def test_a_plugin_has_a_section_and_a_folder_of_its_own(home: Path) -> None:
    code = """
def register(ctx):
    (ctx.data_dir / "zone.txt").write_text(ctx.config["zone"])
    ctx.register_context_engine(Engine)
"""
    plugins, said = loaded(home, code, zone="CET")
    assert said == []
    assert plugins.offer is not None
    kept = home / "plugin-data" / "p"
    assert (kept / "zone.txt").read_text() == "CET"
    if os.name != "nt":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ctx.register_context_engine(object())", "lacks name, update_from_response"),
        ("ctx.register_command('tide', print)", "called register_command, which Everlong does not offer"),
        ("[ctx.register_hook(event, print) for event in 'ab']", "called register_hook, which Everlong does not offer"),
    ],
)
def test_what_cannot_be_registered_is_one_warning(home: Path, call: str, said: str) -> None:
    plugins, warnings = loaded(home, f"def register(ctx):\n    {call}\n    ctx.register_context_engine(Engine)\n")
    assert len(warnings) == 1
    assert "plugin 'p'" in warnings[0]
    assert said in warnings[0]
    assert plugins.offer is not None  # what follows is registered all the same


def test_everything_that_the_context_has_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    offered = [name for name in dir(PluginContext) if not name.startswith("_")] + ["config", "logger", "manifest"]
    assert [name for name in offered if not re.search(rf"`{name}\b", page)] == []
