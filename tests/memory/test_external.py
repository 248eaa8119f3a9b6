"""The external provider: a real package with a real entry point, used only if it is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everlong.config import Settings
from everlong.errors import ConfigError
from everlong.memory import MemoryManager, external_provider

PROVIDER = """
from everlong.memory import MemoryProvider

class Logbook(MemoryProvider):
    def __init__(self, settings=None):
        self.settings = settings

    @property
    def name(self):
        return "logbook"

    def system_prompt_block(self):
        return f"The logbook is kept in {self.settings['harbour'] if self.settings else 'no harbour'}."

class Plain(Logbook):
    def __init__(self):
        super().__init__()

ready = Plain()

def make():
    return Plain()

class Impostor:
    pass
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with entry points where Python finds it, as pip would."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def installed(package: str, source: str = PROVIDER, **entries: str) -> None:
        monkeypatch.delitem(sys.modules, package, raising=False)
        (site / f"{package}.py").write_text(source, encoding="utf-8")
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[everlong.memory]", *lines, ""]), encoding="utf-8")

    return installed


def settings(**memory: object) -> Settings:
    return Settings.model_validate({"memory": memory, "plugins": {"logbook": {"harbour": "Bergen"}}})


@pytest.mark.spec("3.1")
def test_the_named_provider_is_used_with_its_own_settings(install: Install, folder: Path, warnings: list[str]) -> None:
    install("ship_logbook", logbook="ship_logbook:Logbook")
    manager = MemoryManager.from_settings(settings(provider="logbook"), folder, warnings.append)
    manager.start("s1")
    assert manager.prompt_block() == "The logbook is kept in Bergen."
    assert "memory_add" in str(manager.tool_schemas())  # the built-in notes are there besides
    assert warnings == []


def test_a_name_that_nobody_offers_is_an_error_that_names_those_who_are_there(install: Install) -> None:
    with pytest.raises(ConfigError, match=r"no memory provider 'diary' .*'everlong\.memory'; none is installed"):
        external_provider("diary")
    install("ship_logbook", logbook="ship_logbook:Logbook", almanac="ship_logbook:Plain")
    with pytest.raises(ConfigError, match="installed are almanac, logbook") as caught:
        external_provider("diary")
    assert caught.value.key == "memory.provider"


@pytest.mark.parametrize(
    ("source", "entry", "told"),
    [
        ("import a_module_that_is_missing", "Logbook", "No module named 'a_module_that_is_missing'"),
        ("raise SystemExit('bye')", "Logbook", "SystemExit: bye"),
        ("x = (", "Logbook", "SyntaxError"),
        (PROVIDER, "Nothing", "AttributeError"),
        (PROVIDER, "Impostor", "is of the class Impostor, which is not made from everlong.memory.MemoryProvider"),
    ],
)
def test_a_broken_provider_is_a_warning_and_the_session_goes_on_without_it(
    install: Install, folder: Path, warnings: list[str], source: str, entry: str, told: str
) -> None:
    install("ship_logbook", source, logbook=f"ship_logbook:{entry}")
    manager = MemoryManager.from_settings(settings(provider="logbook"), folder, warnings.append)
    manager.start("s1")
    assert "memory_add" in str(manager.tool_schemas())
    assert len(warnings) == 1
    assert told in warnings[0]
    assert "'logbook'" in warnings[0]
    assert "this session goes on without it" in warnings[0]
