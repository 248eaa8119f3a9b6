import pytest
from bench.channels.many_chats import play


@pytest.mark.soak
def test_chats_at_once_with_faults_and_a_kill_are_answered_once() -> None:
    outcome = play(5, 2, kills=1)
    assert outcome.twice == outcome.missing == outcome.misplaced == outcome.stored_twice == []
    assert (outcome.answered, outcome.kills) == (10, 1)
    assert outcome.is_right, outcome
