"""A process that is killed while it compacts leaves a graph that the next one goes on with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples import length
from tests.waiting import PATIENCE


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills are POSIX things")
def test_processes_killed_at_random_moments_leave_the_graph_sound() -> None:
    count = length(20, 3)
    command = [sys.executable, "-m", "bench.lossless.faults", "--rounds", str(count), "--quick"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{count} rounds" in ran.stdout
