"""The benchmark of the archive, with a few megabytes: every way stores the same, in little memory, killed or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.store import archive

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads memory from /proc")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for number in range(3):
        archive.write_log(folder, number, messages=120)
    return folder


@pytest.mark.soak
def test_every_way_stores_the_same_messages(logs: Path, tmp_path: Path) -> None:
    found = {way: archive.measure(logs, way, tmp_path / f"{way}.db") for way in ("before", "import", "now")}
    assert {one["messages"] for one in found.values()} == {3 * 119}
    assert found["now"]["memory"] < archive.MEMORY_MB
