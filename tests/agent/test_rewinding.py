"""Going back: another answer, the last exchange undone, a compaction undone; nothing is lost on the way."""

from __future__ import annotations

import pytest

from everlong.model import text_of
from everlong.store import Store
from everlong.testing import Ask
from tests.agent.conftest import APIS, Opened
from tests.agent.test_compactions import WINDOW, talk, talker
from tests.testing_server.conftest import Serve


def numbered(ask: Ask) -> str:
    return f"Answer {ask.number} to {len(ask.turns)} turns."


@pytest.mark.parametrize("api", APIS)
def test_a_retry_asks_again_and_keeps_both_answers(serve: Serve, opened: Opened, store: Store, api: str) -> None:
    server = serve(numbered)
    agent = opened(server, api)
    assert agent.retry() is None
    agent.run("First.")
    agent.run("Second.")
    session = agent.conversation.session_id
    finished = agent.retry()
    assert finished is not None
    assert finished.text in {"Answer 2 to 3 turns.", "Answer 2 to 4 turns."}  # OpenAI counts the system prompt
    assert agent.conversation.session_id == session
    said = [entry.message["content"] for entry in store.sessions.entries(session)]
    assert said == [message["content"] for message in agent.conversation.messages[1:]]
    assert [text for text in said if text.startswith("Second")] == ["Second."]
    assert [hit.snippet.text for hit in store.search("Answer 1").hits if "Answer 1" in hit.snippet.text]
    agent.run("Third.")
    assert store.context(agent.conversation.branch) == agent.conversation.messages  # type: ignore[arg-type]
    assert store.verify().problems == []
    assert server.rejections == []


def test_a_compaction_is_undone_and_done_again(serve: Serve, opened: Opened, store: Store) -> None:
    server = serve(talker, window=3 * WINDOW)
    agent = opened(server)
    talk(agent, 12)
    before = list(agent.conversation.messages)
    assert agent.compress().outcome == "compacted"
    assert len(agent.conversation.messages) < len(before)
    assert agent.conversation.undo_compaction()
    assert agent.conversation.messages == before
    assert not agent.conversation.undo_compaction()
    talk(agent, 1, 12)
    assert agent.compress().outcome == "compacted"
    assert store.verify().problems == []
    assert server.rejections == []


def test_who_resumes_a_session_finds_it_where_it_was_taken_back_to(serve: Serve, opened: Opened, store: Store) -> None:
    server = serve(numbered)
    agent = opened(server)
    for prompt in ("First.", "Second.", "Third."):
        agent.run(prompt)
    session = agent.conversation.session_id
    agent.conversation.rewind()
    kept = list(agent.conversation.messages)
    agent.close()

    again = opened(server, resume=session)
    assert again.conversation.messages == kept
    again.conversation.rewind()
    again.end()
    ended = opened(server, resume=session)  # one that has ended, too
    assert [text_of(one) for one in ended.conversation.messages[1:]] == ["First.", "Answer 0 to 1 turns."]
    ended.close()

    last = opened(server, resume=session)
    last.run("Second, in other words.")
    assert last.conversation.session_id == session
    said = [text_of(entry.message) for entry in store.sessions.entries(session)]
    assert said == ["First.", "Answer 0 to 1 turns.", "Second, in other words.", "Answer 3 to 3 turns."]
    assert store.search("Third").hits  # nothing is lost
    assert opened(server, resume=session).conversation.messages == last.conversation.messages
    assert store.verify().problems == []
    assert server.rejections == []


def test_a_conversation_that_was_taken_back_whole_is_the_same_one_when_it_is_resumed(
    serve: Serve, opened: Opened, store: Store
) -> None:
    server = serve(numbered)
    agent = opened(server)
    agent.run("First.")
    session = agent.conversation.session_id
    agent.conversation.rewind()
    agent.close()
    again = opened(server, resume=session)
    assert again.conversation.branch is None
    again.run("Another beginning.")
    assert again.conversation.session_id == session
    said = [text_of(entry.message) for entry in store.sessions.entries(again.conversation.session_id)]
    assert said[0] == "Another beginning."
    assert store.search("First").hits
