"""What the package exports, and what using it costs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import everlong
import everlong.agent
import everlong.errors
import everlong.memory
import everlong.plugins
import everlong.providers
import everlong.testing

ROOT = Path(__file__).parent.parent


@pytest.mark.spec("11")
@pytest.mark.parametrize(
    "package",
    [everlong, everlong.agent, everlong.memory, everlong.plugins, everlong.providers, everlong.testing],
    ids=lambda p: p.__name__,
)
def test_every_name_of_the_public_packages_exists(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = package.Nonsense


LAZY_PACKAGES = [
    path for path in sorted((ROOT / "src").rglob("__init__.py")) if "export_lazily(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", LAZY_PACKAGES, ids=lambda path: path.parent.name)
def test_type_checkers_see_the_names_that_a_package_exports_lazily(path: Path) -> None:
    package = ".".join(path.parent.relative_to(ROOT / "src").parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typed = {
        f"{found.module}.{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for found in block.body
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }
    (call,) = (
        found for found in ast.walk(tree) if isinstance(found, ast.Call) and ast.unparse(found.func) == "export_lazily"
    )
    homes = ast.literal_eval(call.args[1])
    assert typed == {f"{package}.{home}.{name}" for home, names in homes.items() for name in names.split()}


def test_no_modules_import_each_other_in_a_circle() -> None:
    # The circles of import-linter's acyclic_siblings are those of whole packages; these are those of single modules.
    graph = grimp.build_graph("everlong", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) - {name} for name in graph.modules}
    TopologicalSorter(imports).prepare()  # which raises and names the modules of a circle


def test_the_tree_of_errors_shows_all_of_them() -> None:
    shown = re.findall(r"^ +(?:[│ ]*[├└]── )?([A-Z]\w+)", everlong.errors.__doc__ or "", re.MULTILINE)
    assert sorted(shown) == sorted(everlong.errors.__all__)


def test_loading_providers_testing_and_memory_loads_no_client_and_no_server() -> None:
    code = """
import sys, everlong.memory, everlong.providers, everlong.testing
heavy = {"openai", "anthropic", "httpx2", "genai_prices", "pydantic", "http.server"}
print(sorted(heavy & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_module_says_what_it_is() -> None:
    modules = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    assert [str(path) for path, text in modules.items() if not text.startswith('"""')] == []


def test_compacting_loads_no_provider_sdk_no_server_no_database_and_no_terminal_toolkit() -> None:
    code = """
import sys, everlong
messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} " * 400} for n in range(50)]
engine = everlong.ContextCompressor(16_000)
engine.compress(messages)
assert engine.last_report.outcome == "summarized"
heavy = {"openai", "anthropic", "httpx", "aiohttp", "starlette", "sqlalchemy", "sqlite3", "rich", "click", "pydantic",
         "ruamel", "splintr", "numpy", "asyncio", "http", "urllib.request"}
print(sorted(heavy & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from everlong.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
print(sorted({"rich", "pydantic", "ruamel", "splintr"} & set(sys.modules)), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_a_command_that_reads_the_store_loads_no_engine_and_no_other_database(tmp_path: Path) -> None:
    code = """
import sys
from everlong.cli.main import main
try:
    main(["sessions", "list"])
except SystemExit:
    pass
heavy = {"everlong.context.compressor", "everlong.lossless.engine", "sqlalchemy.dialects.postgresql", "regex", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""
    home = os.environ | {"EVERLONG_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home)
    assert ran.stdout.strip() == "[]"
