"""Conversations: all parts of a lineage as one, from the first word to the newest, by any of their ids."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest

from everlong.errors import AmbiguousName, NotStored
from everlong.model import Message
from everlong.store import Branch, Session, Store
from everlong.store.conversations import CompactionMark, ConversationLine
from everlong.store.database import Database
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.store import redacted_message
from everlong.wire import TranscriptConversation
from tests.context.builders import assistant, user
from tests.store.engines import ScriptedEngine, summarizing
from tests.waiting import PATIENCE


class Talk:
    """A conversation that a host has: it says something, compacts, goes back and is answered."""

    def __init__(self, store: Store, name: str, *, title: str | None = None, folder: str | None = None) -> None:
        self.store = store
        self.session: Session = store.sessions.start(title=title, folder=folder)
        self.first = self.session.id
        self.name = name
        self.at: Branch | None = None

    def say(self, *words: str) -> None:
        for text in words:
            role = assistant if text.endswith(".") else user
            if self.at is None:
                self._go(self.store.record([role(text)], conversation=self.session.id))
            else:
                self._go(self.store.append(self.at, [role(text)]))

    def _go(self, at: Branch) -> None:
        if self.at is None or at.id != self.at.id:
            self.session = self.store.sessions.attach(self.session.id, at)
        elif self.session.to_depth is not None:
            self.session = self.store.sessions.rewind(self.session.id, at.depth)
        self.at = at

    def compact(self) -> None:
        assert self.at is not None
        engine = ScriptedEngine(summarizing(0, 2, "what was said"))
        done = self.store.compact(self.at, engine, roll_over=self.session.id)
        assert done.child is not None
        self.session = self.store.sessions.get(done.child)

    def go_back(self, depth: int) -> None:
        assert self.at is not None
        self.session = self.store.sessions.rewind(self.session.id, depth)
        self.at = self.store.branch(self.at.id, depth)

    def break_off(self, words: str, status: str = "cancelled") -> None:
        assert self.at is not None
        turn = self.store.turns.begin(self.at, model="m", session=self.session.id)
        self.store.turns.finish(turn.id, assistant(words), status=status, usage={"output_tokens": 7}, cost=0.5)  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        return transcript(self.store, self.first)


def transcript(store: Store, ident: str) -> list[str]:
    """Return a conversation as short texts: words, words with their status, and --- for a compaction."""
    told = []
    for one in store.conversations.entries(ident):
        if isinstance(one, CompactionMark):
            told.append("---")
        else:
            status = "" if one.status is None else f" ({one.status})"
            told.append(f"{one.entry.message['content']}{status}")
    return told


def turns(store: Store, ident: str) -> list[int | None]:
    return [one.turn for one in store.conversations.entries(ident) if isinstance(one, ConversationLine)]


@pytest.fixture
def ferry(store: Store) -> Talk:
    """Four words, a compaction, two words, a compaction, two words."""
    talk = Talk(store, "ferry", title="Ferry", folder="/home/ada/ferry")
    talk.say("one?", "one.", "two?", "two.")
    talk.compact()
    talk.say("three?", "three.")
    talk.compact()
    talk.say("four?", "four.")
    return talk


WHOLE = ["one?", "one.", "two?", "two.", "---", "three?", "three.", "---", "four?", "four."]


# -- one conversation ----------------------------------------------------------------------------------------------


@pytest.mark.spec("7.10")
def test_a_lineage_is_one_conversation_from_the_first_word_by_any_of_its_ids(store: Store, ferry: Talk) -> None:
    (one,) = store.conversations.newest()
    assert (one.id, one.title, len(one.parts), one.messages, one.compactions) == (ferry.first, "Ferry", 3, 8, 2)
    for part in one.parts:
        assert store.conversations.get(part) == store.conversations.find(part) == one
        assert transcript(store, part) == WHOLE
    assert turns(store, ferry.first) == [1, 2, 3, 4, 5, 6, 7, 8]


# -- going back ----------------------------------------------------------------------------------------------------


def test_a_conversation_that_went_back_shows_the_way_it_is_on_now(store: Store, ferry: Talk) -> None:
    ferry.go_back(6)
    assert ferry.texts() == WHOLE[:8]
    ferry.say("five?", "five.")
    assert ferry.texts() == [*WHOLE[:8], "five?", "five."]
    assert [one.messages for one in store.conversations.newest()] == [8]


# -- clients that leave out old results ----------------------------------------------------------------------------


def test_a_client_that_leaves_out_old_results_goes_on_in_the_same_conversation(store: Store) -> None:
    call: Message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "ls"}}]}
    long: Message = {"role": "tool", "tool_call_id": "c", "content": "a very long listing"}
    short: Message = {"role": "tool", "tool_call_id": "c", "content": "[cleared]"}
    first = store.record([user("look"), call, long, assistant("seen")], conversation="cleared")
    made = store.sessions.start(first, from_depth=0, title="Look")
    other = store.append(store.branch(first.id, 2), [short, assistant("seen"), user("more?"), assistant("more")])

    def work(connection: object) -> str:
        store.sessions.end_in(connection, made.id, "cleared", first.depth)  # type: ignore[arg-type]
        return store.sessions.continue_in(connection, made.id, other, 4)  # type: ignore[arg-type]

    store.database.write(work)
    assert [text for text in transcript(store, made.id) if text != "None"] == [
        "look", "a very long listing", "seen", "more?", "more",
    ]  # fmt: skip
    assert turns(store, made.id) == [1, 2, 3, 4, 5, 6]
    assert store.conversations.get(made.id).messages == 6
    (hit,) = store.search("more?", mode="substring").hits
    assert (hit.session, hit.turn) == (made.id, 5)


# -- replies that broke off ----------------------------------------------------------------------------------------


@pytest.mark.spec("7.9")
def test_a_broken_reply_stands_after_its_request_and_is_marked(store: Store, ferry: Talk) -> None:
    ferry.say("five?")
    ferry.break_off("I was about")
    ferry.break_off("I was", "failed")
    ferry.say("five.")
    assert ferry.texts()[-4:] == ["five?", "I was about (cancelled)", "I was (failed)", "five."]
    assert turns(store, ferry.first)[-4:] == [9, 9, 9, 10]
    one = store.conversations.get(ferry.first)
    assert (one.messages, one.api_calls, one.cost) == (12, 2, 1.0)


# -- names ---------------------------------------------------------------------------------------------------------


def test_a_conversation_is_found_by_the_beginning_of_an_id_and_by_any_title_of_its_parts(
    store: Store, ferry: Talk
) -> None:
    for name in (ferry.first[:-1], "Ferry", "Ferry #3", " Ferry  #3 "):
        assert store.conversations.find(name).id == ferry.first
    with pytest.raises(NotStored, match="'Gull'"):
        store.conversations.find("Gull")
    with pytest.raises(NotStored):
        store.conversations.find("")


def test_a_title_that_several_have_lists_them_with_folder_and_time(store: Store, ferry: Talk) -> None:
    other = store.sessions.start(title="Ferry", client="claude-code", folder="/srv/ferry")
    with pytest.raises(AmbiguousName) as raised:
        store.conversations.find("Ferry")
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert {other.id, ferry.first} == {line.split()[0] for line in lines[1:]}
    assert "/home/ada/ferry" in str(raised.value)
    assert "claude-code, /srv/ferry" in str(raised.value)


# -- lists ---------------------------------------------------------------------------------------------------------


def test_a_list_can_be_filtered_by_source_time_title_and_folder(store: Store) -> None:
    old = store.sessions.start(title="Old Harbour", started=1_000.0, platform="telegram")
    new = store.sessions.start(title="New", started=2_000.0, folder="/srv")

    def found(**options: object) -> list[str]:
        return [one.id for one in store.conversations.newest(**options)]  # type: ignore[arg-type]

    assert found() == [new.id, old.id]
    assert found(source="telegram") == found(before=1_500.0) == found(title="harb") == [old.id]
    assert found(since=1_500.0) == found(folder="/srv") == [new.id]
    assert found(kinds=("side", "agent")) == []
    assert store.conversations.count() == 2


# -- taking out ----------------------------------------------------------------------------------------------------


def test_forgetting_a_conversation_takes_all_its_words_and_its_broken_replies(store: Store, ferry: Talk) -> None:
    ferry.go_back(3)
    ferry.say("other.", "other?")
    ferry.break_off("half of it")
    gone = store.conversations.forget(ferry.first)
    assert gone.spared == 0
    assert not any("?" in text or "half" in text or "." in text[:-1] for text in ferry.texts())
    for words in ("one?", "half of it", "other."):
        assert store.search(words, mode="substring").hits == ()
    assert store.verify().problems == []


def test_messages_are_numbered_one_by_one_however_many_blocks_they_have(store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": "A heron."}, {"type": "text", "text": "Here is more."}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call, {**call, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "A pelican."},
        {"role": "tool", "tool_call_id": "c2", "content": "A gull."},
        {"role": "assistant", "content": "A pelican and a gull."},
    ]
    made = store.sessions.start(store.record(said, conversation="numbers"), from_depth=0)
    (one,) = store.conversations.newest()
    assert one.messages == 5
    assert turns(store, made.id) == [1, 2, 3, 4, 5]
    third = [line for line in store.conversations.entries(made.id, after=2, to=3) if isinstance(line, ConversationLine)]
    assert [(line.turn, line.entry.message["content"]) for line in third] == [(3, "A pelican.")]
    assert store.conversations.node_at(made.id, 3) == third[0].entry.id
    (hit,) = store.search("heron").hits
    assert hit.turn == 1


FILE = ImportOrigin("/tmp/talks.jsonl", 1_000.0)  # noqa: S108 - a name, no file
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"  # made up


def talk(number: int, length: int = 4) -> TranscriptConversation:
    roles = ("user", "assistant")
    messages: list[Message] = [{"role": roles[n % 2], "content": f"word {n} of talk {number}"} for n in range(length)]
    return TranscriptConversation(messages, {"id": f"talk-{number}", "messages": messages})


def test_a_store_that_redacts_takes_no_secret_over_with_a_system_prompt(database: Database) -> None:
    store = Store(database, uuid.uuid4().hex, redact=redacted_message)
    prompt: Message = {"role": "system", "content": f"Use {KEY}"}
    done = Importer(store).add(TranscriptConversation([prompt, *talk(1).messages]), FILE)
    assert done.session is not None
    assert store.sessions.system_prompt(done.session) == "Use [redacted:api_key]"


@pytest.mark.parametrize("in_batches", [False, True])
def test_two_imports_at_once_list_each_conversation_once(store: Store, url: str, in_batches: bool) -> None:
    talks = [talk(number) for number in range(12)]
    outcomes: Counter[str] = Counter()
    ready = threading.Barrier(3)

    def work(order: list[TranscriptConversation]) -> None:
        with Store.open(url, store.tenant) as own:
            importer = Importer(own)
            ready.wait()
            if in_batches:
                with own.batch():
                    found = [importer.add(one, FILE).outcome for one in order]
            else:
                found = [importer.add(one, FILE).outcome for one in order]
            outcomes.update(found)

    orders = (talks, talks, talks[::-1])
    threads = [threading.Thread(target=work, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert outcomes == {"new": 12, "known": 24}
    assert len(store.sessions.newest()) == 12
    assert store.verify().problems == []
