"""A cluster of the bench that is stopped leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENCLOSED = "import os, sys, time; print(os.environ['EVERLONG_CLUSTER_FOLDER'], flush=True); time.sleep(600)"
PROGRAM = "import sys; from bench.cluster.__main__ import enclose; sys.exit(enclose(sys.argv[1:]))"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="namespaces need root and util-linux")
def test_a_cluster_that_is_told_to_stop_takes_its_processes_and_its_folder_along() -> None:
    command = [sys.executable, "-c", PROGRAM, sys.executable, "-c", ENCLOSED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        folder = Path(started.stdout.readline().strip())
        assert folder.is_dir()
        started.terminate()
        assert started.stdout.read() == ""  # ends when nobody is left who could write there
    assert started.returncode == 143
    assert not folder.exists()
