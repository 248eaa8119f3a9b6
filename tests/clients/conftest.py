"""Real clients: which of them run, and what is left to ``make test-clients``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.clients.install import is_installed
from bench.clients.programs import PROGRAMS, Program

ALL = bool(os.environ.get("EVERLONG_CLIENT_MATRIX"))
WITHOUT = os.environ.get("EVERLONG_WITHOUT_CLIENTS", "").split()
"""Clients that the registry does not have for this machine."""
FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``matrix``, unless it is asked for, and clients that cannot be had here."""
    own = [item for item in items if item.path.parent == FOLDER]
    left_out = [item for item in own if not ALL and item.get_closest_marker("matrix")]
    left_out += [item for item in own if item not in left_out and _client_of(item) in WITHOUT]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _client_of(item: pytest.Item) -> str | None:
    """Return the client that a test runs."""
    call = getattr(item, "callspec", None)
    name = call.params.get("program") if call else None
    return PROGRAMS[name].name if name in PROGRAMS else None


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Program:
    """The client that a test names; skips where it is not installed."""
    found = PROGRAMS[request.param]
    if not is_installed(found.name):
        pytest.skip(f"{found.name} is not installed; run: make clients")
    return found
