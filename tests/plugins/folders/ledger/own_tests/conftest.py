"""The usual way in which such plugins load themselves for their own tests."""

import importlib.util
import sys
from pathlib import Path

plugin_dir = Path(__file__).resolve().parent.parent

if "ledger_plugin" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "ledger_plugin", str(plugin_dir / "__init__.py"), submodule_search_locations=[str(plugin_dir)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger_plugin"] = module
    spec.loader.exec_module(module)
