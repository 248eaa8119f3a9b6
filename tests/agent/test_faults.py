"""A session while calls fail, the summarizer is dead, a memory provider hangs and the process is killed."""

from __future__ import annotations

import sys

import pytest
from bench.agent.faults import play


@pytest.mark.spec("5.7", "7.1", "7.2", "7.3")
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed with SIGKILL")
def test_whatever_fails_every_acknowledged_message_is_stored_once_and_the_session_goes_on() -> None:
    run = play(60, 3, "openai", is_quick=True)
    assert run.problems == []
    assert run.acknowledged == list(range(60))
    assert sum(run.kills.values()) == 3
    assert sum(run.faults.values()) >= 5
    assert run.seen["compaction"] >= 1
    assert run.most_hung <= 1
