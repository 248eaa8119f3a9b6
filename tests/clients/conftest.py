"""Real clients: which of them run, and what is left to ``make test-clients``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.clients.install import is_installed
from bench.clients.programs import PROGRAMS, Program

ALL = bool(os.environ.get("EVERLONG_CLIENT_MATRIX"))
NONE = bool(os.environ.get("EVERLONG_NO_CLIENTS"))
FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``matrix``, unless it is asked for; everything, where no client can be had."""
    own = [item for item in items if item.path.parent == FOLDER]
    left_out = own if NONE else [] if ALL else [item for item in own if item.get_closest_marker("matrix")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Program:
    """The client that a test names; skips where it is not installed."""
    found = PROGRAMS[request.param]
    if not is_installed(found.name):
        pytest.skip(f"{found.name} is not installed; run: make clients")
    return found
