"""The packages of the official clients: loaded late, missed early."""

from __future__ import annotations

import subprocess
import sys

import pytest

from everlong.errors import ConfigError
from everlong.providers import connect


@pytest.mark.parametrize(("name", "package"), [("anthropic:claude-sonnet-5", "anthropic"), ("some-model", "openai")])
def test_a_clients_package_is_loaded_when_it_is_needed_and_not_before(name: str, package: str) -> None:
    code = (
        "import sys; from everlong.providers import connect\n"
        f"found = connect({name!r}, base_url='http://127.0.0.1:9/v1', api_key='made-up')\n"
        f"found.close(); before = {package!r} in sys.modules\n"
        f"found.load(); print(before, {package!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_clients_package_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"needs the package openai; install it with"):
        connect("some-model", base_url="http://127.0.0.1:9/v1", api_key="made-up")
