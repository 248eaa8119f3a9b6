"""``everlong why``: where something was said, what has become of it, and how to get it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong import Store
from everlong.context.oversized import SpillLimits
from everlong.store import Branch, Occasion, Session
from everlong.store.whereabouts import find_whereabouts
from everlong.tokens import MessageCounter
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, step, user
from tests.store.engines import ScriptedEngine, summarizing

TALK = [
    user("Set up the proxy."),
    assistant("Where shall it listen?"),
    user("It listens on port 8443, behind the old gate."),
    assistant("Noted."),
    *step(1, "listening on port 8443 " + "and more of the log " * 50),
    assistant("It runs."),
    user("Now write the docs."),
    assistant("Done."),
]


@pytest.fixture
def why(run: Run, store_file: Path) -> Run:
    return lambda *arguments, **more: run("why", "--store", str(store_file), *arguments, **more)


def compact(store: Store, session: Session, change: Any) -> Branch:
    """Have a conversation compacted as a host does it, with a child session."""
    newest = store.sessions.resume(session.id)
    at = store.branch(newest.branch or 0)
    done = store.compact(
        at, ScriptedEngine(change), Occasion("threshold", newest.id), roll_over=newest.id, current_tokens=9_500
    )
    assert done.outcome == "compacted"
    return at


def states(store: Store, words: str, **more: Any) -> list[tuple[str, str]]:
    return [(one.role, one.state) for one in find_whereabouts(store, words, **more)]


def test_words_that_a_summary_does_not_say_have_a_way_back(store: Store, why: Run, store_file: Path) -> None:
    session = add_session(store, TALK, "Proxy")
    compact(store, session, summarizing(0, 4, "a proxy was wanted"))
    (one,) = [place for place in find_whereabouts(store, "port 8443") if place.role == "user"]
    assert one.state == "summarized"
    shown = why("port", "8443").out
    assert "now    summarized: the summary in its place does not say it in these words" in shown
    asked = f"--store {store_file}"
    assert f"everlong sessions {asked} show {session.id} --message " in shown
    assert "1 place shown; --limit 5 shows more" in why("port", "8443", "-n", "1").err


def test_an_oversized_message_is_a_stub(store: Store, why: Run) -> None:
    session = add_session(store, [user("Look: " + "port 8443 is open. " * 100_000)], "Giant")
    store.spill(store.branch(session.branch or 0), SpillLimits(2_000, MessageCounter(), "read_turn"))
    assert states(store, "port 8443") == [("user", "stub")]
    assert "now    shortened to a stub, and still says it" in why("port 8443").out


def test_undoing_brings_it_back(store: Store) -> None:
    session = add_session(store, TALK, "Proxy")
    at = compact(store, session, summarizing(0, 4))
    store.undo(at)
    assert ("user", "in context") in states(store, "port 8443")


def test_a_forgotten_message_is_found_by_its_id_only(store: Store, why: Run) -> None:
    add_session(store, TALK, "Proxy")
    found = find_whereabouts(store, "port 8443")
    store.forget([one.node for one in found])
    nothing = why("port 8443")
    assert nothing.code == 0
    assert nothing.out == ""
    assert "nothing was found for 'port 8443'; try fewer or other words" in nothing.err
    assert "2 messages in this store were forgotten" in nothing.err
    shown = why(found[0].id).out
    assert "now    forgotten: its words were removed from the store for good" in shown
    assert "back" not in shown.replace("nothing brings them back", "")


def test_hostile_words_do_nothing_to_the_terminal(store: Store, why: Run) -> None:
    add_session(store, [user("port 8443 \x1b[2J\x1b]0;owned\x07 end")], "a\x1b[2Jb")
    assert "\x1b" not in why("port 8443").out


@pytest.mark.usefixtures("store")
def test_an_empty_store_says_how_conversations_come_in(why: Run) -> None:
    nothing = why("the", "port")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no conversations yet; `everlong sessions import" in nothing.err


def test_a_list_that_was_stored_without_a_session_was_not_taken_back(store: Store, why: Run) -> None:
    store.record(TALK)
    assert {state for _, state in states(store, "port 8443")} == {"outside"}
    assert "in the store, and in no conversation" in why("port", "8443").out


def test_a_conversation_without_a_title_is_named_by_its_id(store: Store, why: Run) -> None:
    at = store.record(TALK)
    session = store.sessions.start(at, from_depth=0)
    assert why("port", "8443").out.startswith(f"  1  {session.id}, message ")
