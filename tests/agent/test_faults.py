"""A session while calls fail, the summarizer is dead, a memory provider hangs and the process is killed."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from bench.agent.audit import audited
from bench.agent.faults import play
from bench.agent.requests import Job

from everlong.store import Store


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


def test_the_audit_sees_what_was_lost_doubled_or_left_open(store: Store) -> None:
    done = [Job(0, "one (HB-0)", (), "a"), Job(1, "two (HB-1)", (), "b")]
    at = store.record(
        [
            {"role": "user", "content": "one (HB-0)"},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "two (HB-1)"},
            {"role": "assistant", "content": "b"},
        ]
    )
    session = store.sessions.start(at, from_depth=0).id
    assert audited(store, session, done, []) == []
    assert Counter(audited(store, session, done[::-1], []))
    assert audited(store, session, [*done, Job(2, "three (HB-2)", (), "c")], [])
    assert audited(store, session, [done[0], Job(1, "two (HB-1)", (), "c")], []) == ["HB-1 ends with 'b'"]
    assert audited(store, session, done, ["call_1"]) == ["call call_1 is there 0 times"]
    store.turns.begin(at, session=session)
    assert audited(store, session, done, []) == ["turns [1] were never finished"]
