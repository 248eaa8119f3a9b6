"""The packages of the official clients: loaded late, missed early."""

from __future__ import annotations

import sys

import pytest

from everlong.errors import ConfigError
from everlong.providers import connect


def test_a_clients_package_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"needs the package openai; install it with"):
        connect("some-model", base_url="http://127.0.0.1:9/v1", api_key="made-up")
