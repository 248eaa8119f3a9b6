"""A plugin's folder is imported as a package of its own, whatever it is called and however its modules import."""

from __future__ import annotations

import os
import re
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from everlong.config import Settings
from everlong.context import ContextEngine
from everlong.errors import PluginError
from everlong.plugins.loading import load_folder, unload
from everlong.plugins.manager import PluginContext, Plugins
from tests.plugins.making import ENGINE, engine_in, write
from tests.plugins.test_choosing import chosen

PLUGINS = "everlong_plugin_"


def plugin(root: Path, name: str, **files: str) -> Path:
    """A plugin's folder; ``a__b`` is the file b.py in the folder a."""
    folder = root / name
    for stem, text in files.items():
        file = folder.joinpath(*stem.split("___")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def loaded_names() -> set[str]:
    return {name for name in sys.modules if name.startswith(PLUGINS)}


@pytest.mark.spec("2.4")
def test_relative_imports_and_sub_packages_work_at_import_and_in_functions(tmp_path: Path) -> None:
    folder = plugin(
        tmp_path,
        "deep",
        __init__="""
            from .words import GREETING
            from . import inner
            def late():
                from . import latecomer
                from .inner.core import answer
                return latecomer.VALUE + answer()
        """,
        words="GREETING = 'hello'",
        latecomer="VALUE = 40",
        inner_____init__="from ..words import GREETING as OUTER",
        inner___core="def answer():\n    from ..words import GREETING\n    return len(GREETING) - 3",
    )
    module = load_folder(folder, "deep")
    assert (module.GREETING, module.inner.OUTER, module.late()) == ("hello", "hello", 42)
    unload(module)


def test_a_plugins_folders_do_not_stay_on_the_path_of_the_program(tmp_path: Path) -> None:
    before = list(sys.path)
    folder = plugin(
        tmp_path,
        "pathy",
        __init__="""
            import os, sys
            sys.path.insert(0, os.path.join(os.path.dirname(__file__), "vendor"))
            import bundled
            def later():
                import other
                return other.VALUE
        """,
        vendor___bundled="import bundled_friend\nVALUE = bundled_friend.VALUE",
        vendor___bundled_friend="VALUE = 7",
        vendor___other="VALUE = 8",
    )
    module = load_folder(folder, "pathy")
    assert (module.bundled.VALUE, module.later()) == (7, 8)
    assert sys.path == before
    unload(module)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("def f(:\n", "SyntaxError"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import a_module_that_is_nowhere", "No module named 'a_module_that_is_nowhere'"),
        ("import agent.nothing_of_ours", "No module named 'agent.nothing_of_ours'"),
    ],
)
def test_a_failed_import_tells_the_plugins_own_traceback_and_leaves_nothing_behind(
    tmp_path: Path, broken: str, said: str
) -> None:
    path, modules, finders = list(sys.path), loaded_names(), list(sys.meta_path)
    folder = plugin(
        tmp_path,
        "bad",
        __init__="import sys\nsys.path.insert(0, '/nowhere')\nfrom . import good\nfrom . import broken",
        good="VALUE = 1",
        broken=broken,
    )
    with pytest.raises(PluginError, match="'bad' cannot be loaded") as caught:
        load_folder(folder, "bad")
    assert said in caught.value.traceback
    assert "broken.py" in caught.value.traceback
    assert "loading.py" not in caught.value.traceback
    assert (list(sys.path), loaded_names(), list(sys.meta_path)) == (path, modules, finders)


@pytest.mark.spec("2.8")
@pytest.mark.parametrize(
    "text",
    [
        "from agent.context_engine import ContextEngine",
        "import agent.context_engine as ce\nContextEngine = ce.ContextEngine",
        "import importlib\nContextEngine = importlib.import_module('agent.context_engine').ContextEngine",
        "ContextEngine = __import__('agent.context_engine', fromlist=['x']).ContextEngine",
    ],
)
def test_a_foreign_base_class_is_everlongs_own_to_the_plugin_and_to_nobody_else(tmp_path: Path, text: str) -> None:
    module = load_folder(plugin(tmp_path, "foreign", __init__=text), "foreign")
    assert module.ContextEngine is ContextEngine
    assert "agent" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        __import__("agent.context_engine")
    unload(module)


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one module, as pip leaves it behind."""
    site = tmp_path / "site"

    def put(name: str, code: str, **entries: str) -> None:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(code, encoding="utf-8")
        about = site / f"{name}-3.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.1\nSummary: About {name}.\n")
        lines = [f"[everlong.{group}]\n{entry}\n" for group, entry in entries.items()]
        (about / "entry_points.txt").write_text("".join(lines))
        invalidate_caches()

    monkeypatch.syspath_prepend(site)
    yield put
    for name in [one for one in sys.modules if one.startswith("pkg_")]:
        del sys.modules[name]


@pytest.mark.spec("2.2")
def test_engines_of_packages_are_found_after_folders(install: Install, home: Path) -> None:
    install("pkg_tide", ENGINE.format(name="tide"), engines="tide = pkg_tide:Engine")
    engine, said = chosen("tide")
    assert (engine.name, engine.context_length, said) == ("tide", 50_000, [])
    engine_in(home / "plugins" / "tide", name="nearer")
    assert chosen("tide")[0].name == "nearer"


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
