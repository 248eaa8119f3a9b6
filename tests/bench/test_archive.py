"""The benchmark of the archive, with a few megabytes: every way stores the same, in little memory, killed or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.store import archive

from everlong.cli.archive.log_import import LogImport
from everlong.cli.archive.places import LogFolder
from everlong.cli.archive.scan import Scan
from everlong.store import Store
from everlong.store.upkeep.maintenance import stats

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


def test_processes_that_read_ahead_store_the_same_messages(logs: Path, tmp_path: Path) -> None:
    paths = sorted(logs.glob("*.jsonl"))
    with Store.open(tmp_path / "store.db") as store:
        assert [path for path, _ in LogImport(store).add_all(paths, processes=2)] == paths
        assert stats(store)["messages"] == 3 * 119
        folder = LogFolder("claude-code", logs, ("*.jsonl",))
        assert Scan(store, [folder]).run().changed == 0
        assert store.verify().problems == []
