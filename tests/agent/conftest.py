"""What tests of the agent share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everlong.store import Store
from tests.agent.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    root = tmp_path / "project"
    root.mkdir()
    with Store.open(tmp_path / "store.db") as store:
        yield Desk(root, store)
