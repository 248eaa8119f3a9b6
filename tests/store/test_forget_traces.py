"""Forgotten words leave no trace beside the content: no title, no log, no report of a compaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from everlong.config.paths import data_home
from everlong.context.report import Boundaries, CompactionReport, SummarizerInput
from everlong.model import Message, title_from
from everlong.store import Store
from everlong.store.content import value_of
from everlong.store.schema import content
from everlong.store.session_log import write_session_log
from everlong.store.store import redacted_message
from everlong.store.turns import FinishedTurn
from everlong.store.upkeep.forget import find_prompts, forget_prompts, forget_titles
from tests.store.engines import ScriptedEngine, summarizing

pytestmark = pytest.mark.spec("12.8")

ASKED: Message = {"role": "user", "content": "My vault opens with pelican-4711, remember"}
TALK: list[Message] = [
    ASKED,
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "And now?"},
    {"role": "assistant", "content": "Nothing is left to do."},
]


def logged(store: Store, *idents: str) -> dict[str, Path]:
    return {ident: write_session_log(store, ident, data_home() / "logs") for ident in idents}


def begun(store: Store, talk: list[Message] = TALK) -> str:
    """A conversation as a host begins it, in two parts."""
    at = store.record(talk, conversation=str(talk[0]["content"]))
    return store.sessions.attach(store.sessions.start(title=title_from(talk[:1])).id, at).id


def first_of(store: Store, ident: str) -> bytes:
    """The id of the first message of a conversation."""
    node = store.entries(store.branch(store.sessions.get(ident).branch or 0))[0].id
    assert node is not None
    return node


def test_titles_and_logs_go_with_a_conversation(store: Store) -> None:
    ident = begun(store)
    child = store.sessions.roll_over(ident, store.branch(store.sessions.get(ident).branch or 0))
    logs = logged(store, ident, child.id)
    assert all("pelican" in path.read_text() for path in logs.values())
    assert "pelican" in str(store.sessions.get(child.id).title)
    store.conversations.forget(ident)
    assert [store.sessions.get(one).title for one in (ident, child.id)] == [None, None]
    assert not any(path.exists() for path in logs.values())


def test_a_title_and_a_log_lose_a_message_that_is_forgotten_and_keep_the_rest(store: Store) -> None:
    ident, other = begun(store), begun(store, [{"role": "user", "content": "Another matter"}, TALK[1]])
    child = store.sessions.roll_over(ident, store.branch(store.sessions.get(ident).branch or 0))
    logs = logged(store, ident, other, child.id)
    before = logs[other].read_bytes()
    store.forget([first_of(store, ident)])
    assert [store.sessions.get(one).title for one in (ident, child.id)] == [None, None]
    assert store.sessions.get(other).title == "Another matter"
    assert not any("pelican" in path.read_text() for path in logs.values())
    told = json.loads(logs[ident].read_text())["messages"]
    assert [one["content"] for one in told][1:] == [one["content"] for one in TALK][1:]
    assert logs[other].read_bytes() == before


def test_a_report_that_may_quote_them_goes_with_the_view(store: Store) -> None:
    ident = begun(store)
    engine = ScriptedEngine(summarizing(0, 3))
    engine.last_fault = "was told that a pelican is too long"  # type: ignore[attr-defined]
    given = SummarizerInput(4, 40, previous_summary=False, budget_tokens=10, focus_topic="the pelican")
    engine.last_report = CompactionReport(  # type: ignore[attr-defined]
        outcome="summarized",
        tokens_before=40,
        tokens_after=10,
        reported_tokens=None,
        messages_before=4,
        messages_after=2,
        results_cleared=0,
        results_shortened=0,
        latest_user_repeated=False,
        boundaries=Boundaries(0, 3, (0, 3)),
        counter="made-up",
        summarizer_input=given,
    )
    store.compact(store.branch(store.sessions.get(ident).branch or 0), engine)
    (compaction,) = store.compactions()
    assert "pelican" in str(compaction.report)
    assert "pelican" in str(compaction.fallback)
    store.forget([first_of(store, ident)])
    (compaction,) = store.compactions()
    assert (compaction.report, compaction.fallback) == (None, None)


def test_titles_that_people_gave_go_with_a_text(store: Store) -> None:
    kept = begun(store, [{"role": "user", "content": "Another matter"}, TALK[1]])
    ident = begun(store)
    store.conversations.rename(ident, "All about Pelicans")
    assert forget_titles(store, "pelican") == 1
    assert store.sessions.get(ident).title is None
    assert store.sessions.get(kept).title == "Another matter"


def live_words(store: Store) -> str:
    live = select(content.c.bytes, content.c.codec).where(content.c.tenant == store.tenant, content.c.state == "live")
    with store.database.read() as connection:
        return "\n".join(str(value_of(row.bytes, row.codec)).lower() for row in connection.execute(live))


def test_what_stands_beside_the_messages_goes_with_their_conversation(store: Store) -> None:
    common: Message = {"role": "user", "content": "<system-reminder>Mind the tide.</system-reminder>"}
    beside: list[Message] = [
        {"role": "user", "content": "<system-reminder>The pelican is home.</system-reminder>"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "A pelican?", "signature": "c2ln"}]},
        {"role": "system", "content": "Speak of the pelican only."},
    ]
    prompt: Message = {"role": "system", "content": "You serve the owner of the pelican."}
    ident = begun(store, [ASKED, common, *beside, *TALK[1:]])
    own = store.record([prompt, common, ASKED, common, *beside, *TALK[1:]], conversation="own")
    store.sessions.attach(store.sessions.start(system_prompt=str(prompt["content"])).id, own)
    other = store.record([{"role": "system", "content": "Another"}, common, {"role": "user", "content": "Hello"}])
    for one in (ident, store.sessions.newest(limit=1)[0].id):
        store.conversations.forget(one)
    assert "pelican" not in live_words(store)
    assert "Mind the tide." in str(store.context(other))
    assert "Another" in str(store.context(other))
    assert store.verify().problems == []
    store.record([prompt, {"role": "user", "content": "Something else"}])  # it belongs to many, and is no message
    assert "pelican" in live_words(store)


def test_system_prompts_and_tools_with_the_words_go_too_and_do_not_come_back(store: Store) -> None:
    prompt = "You serve the owner of PELICAN-4711."
    tool = {"type": "function", "function": {"name": "open", "description": "Opens pelican-4711", "parameters": {}}}
    reminder: Message = {"role": "user", "content": "<system-reminder>It is pelican-4711.</system-reminder>"}
    said: list[Message] = [{"role": "system", "content": prompt}, {"role": "user", "content": "Hello"}, reminder]
    store.record(said, tools=[tool], conversation="one")
    other = store.record([{"role": "system", "content": "Another prompt"}, {"role": "user", "content": "Hello"}])
    ident = store.sessions.start(system_prompt=prompt).id
    log = logged(store, ident)[ident]
    assert "PELICAN" in log.read_text()
    found = find_prompts(store, "Pelican-4711")
    assert len(found) == 3
    forget_prompts(store, found)
    assert find_prompts(store, "Pelican-4711") == []
    assert not log.exists() or "PELICAN" not in log.read_text()
    store.record(said, tools=[tool], conversation="one")
    assert "pelican" not in live_words(store)
    assert store.sessions.system_prompt(ident) is None
    assert "Another prompt" in str(store.context(other))
    assert list(store.verify().problems) == []


def test_what_an_upstream_quoted_in_an_error_goes_with_the_message(store: Store) -> None:
    at, other = store.record(TALK[:1]), store.record([{"role": "user", "content": "Another matter"}])
    ended = [
        store.turns.finish(store.turns.begin(one).id, status="failed", error=f"no such value: {word}").id
        for one, word in ((at, "pelican-4711"), (other, "matter"))
    ]
    store.forget([at.head])
    assert [store.turns.get(one).error for one in ended] == [None, "no such value: matter"]


def test_an_error_is_stored_without_secrets_where_the_store_redacts(store: Store) -> None:
    careful = Store(store.database, store.tenant, redact=redacted_message)
    at, said = careful.record(TALK[:1]), "Incorrect API key provided: sk-proj-Ab3dEf6hIj9kLm2nOp5q"
    ended = careful.turns.finish(careful.turns.begin(at).id, status="failed", error=said)
    past = careful.turns.add_finished(at, FinishedTurn(status="failed", error=said))
    for one in (ended, careful.turns.get(past)):
        assert one.error == "Incorrect API key provided: [redacted:api_key]"


SECRET = "The harbour's vault opens with pelican-4711"  # noqa: S105 - made up


def index_all(store: Store) -> None:
    while store.searcher.index_pending(5_000):
        pass


def test_a_reply_that_the_client_rewrote_is_forgotten_with_the_message(store: Store) -> None:
    ask: Message = {"role": "user", "content": "Where?"}
    turn = store.turns.begin(store.record([ask]))
    call = {"id": "c1", "type": "function", "function": {"name": "open", "arguments": "{}"}}
    store.turns.finish(turn.id, {"role": "assistant", "content": SECRET, "tool_calls": [call]})
    at = store.record([ask, {"role": "assistant", "content": "It is written down.", "tool_calls": [call]}])
    on = store.append(at, [{"role": "tool", "tool_call_id": "c1", "content": "opened"}])
    store.turns.begin(on)
    store.forget([at.head])
    assert "pelican" not in str(store.turns.reply(turn.id))
    assert store.verify().problems == []


def test_a_forgotten_session_takes_its_replies_along_and_spares_those_that_others_use(store: Store) -> None:
    shared: Message = {"role": "assistant", "content": "Yes, of course."}
    at = store.record([{"role": "user", "content": "Where?"}])
    made = store.sessions.start(at, from_depth=0)
    turns = [store.turns.begin(at, session=made.id) for _ in range(2)]
    store.turns.finish(turns[0].id, {"role": "assistant", "content": SECRET})
    store.turns.finish(turns[1].id, shared)
    other = store.record([{"role": "user", "content": "May I?"}, shared])
    store.conversations.forget(made.id)
    assert "pelican" not in str(store.turns.reply(turns[0].id))
    assert store.turns.reply(turns[1].id) is None
    assert store.context(other)[1] == shared
    assert store.verify().problems == []


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ('{"path": "pelican-4711", "_note": "albatross"}', '{"path": "pelican-4711"}'),
        ('{"path": "pelican-4711", "rate": NaN}', '{"rate": NaN, "path": "pelican-4711"}'),
        ("pelican-4711 albatross", '{"INVALID_JSON": "pelican-4711 albatross"}'),
        ('{"path": "la\\nchalupa", "n": Infinity}', '{"n": Infinity, "path": "la\\u000achalupa"}'),
    ],
)
def test_a_call_is_found_however_its_arguments_are_written(store: Store, arguments: str, same: str) -> None:
    def call(text: str) -> Message:
        made = {"id": "c1", "type": "function", "function": {"name": "open", "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [made]}

    at = store.record([{"role": "user", "content": "one"}, call(arguments)])
    told: Message = call(same)
    if same.startswith('{"INVALID_JSON"'):
        told = {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "open", "input": json.loads(same)}],
        }
    store.record([{"role": "user", "content": "two"}, told])
    index_all(store)
    assert store.forget([at.head]).messages == 2
