"""Every page of the inspector as a browser gets it, and what a person reads there."""

from __future__ import annotations

import json
import logging
import re
import socket
import struct
import threading
import time
from functools import partial

import pytest
from sqlalchemy import Connection, update

from everlong.config import Settings
from everlong.context.literals import SUMMARY_PREFIX
from everlong.inspector import app
from everlong.inspector.pages.now import read_now
from everlong.inspector.rendering import format_seconds, format_short, render_markdown
from everlong.model import Message
from everlong.store import Occasion, Store
from everlong.store.conversations import ConversationLine
from everlong.store.schema import session
from tests.context.builders import assistant, user
from tests.inspector.conftest import Site
from tests.inspector.making import MODEL, PORT_LINE, Ferry, make_long
from tests.store.engines import ScriptedEngine
from tests.waiting import PATIENCE, until


@pytest.mark.usefixtures("ferry")
def test_filters_choose_conversations(site: Site) -> None:
    there = ["client=claude-code", "model=anthropic:claude-sonnet-4-5", "folder=/home/ada/ferry", "compacted=yes"]
    there += ["cost=0.01", "cost=nan", "age=1d&client=claude-code", "age=nonsense"]
    for query in (*there, "client=codex", "folder=/elsewhere", "compacted=no", "cost=1000"):
        assert ("Harbour ferries</a>" in site.get(f"/inspector/?{query}").text) == (query in there), query


def test_the_list_goes_on_over_pages_without_a_gap(site: Site, store: Store) -> None:
    for number in range(120):
        one = store.sessions.start(title=f"talk {number:03}")
        at = store.record([user("hello"), assistant("hello")], conversation=one.id, times=[float(number)] * 2)
        store.sessions.attach(one.id, at)
    seen: list[str] = []
    path: str | None = "/inspector/"
    while path is not None:
        page = site.get(path)
        seen += re.findall(r">talk (\d+)</a>", page.text)
        following = re.search(r'rel="next" href="([^"]+)"', page.text)
        path = following[1].replace("&amp;", "&") if following else None
    assert sorted(seen) == [f"{number:03}" for number in range(120)]


def test_now_shows_every_part_of_the_context_in_order(site: Site, ferry: Ferry) -> None:
    page = site.get(ferry.link)
    kinds = re.findall(r'<rect class="part (\w+)" x=', page.text)
    assert kinds == ["tools", "system", "memory", "kept", "summary", "tail"]
    assert "read_file" in page.words
    assert "You plan ferries." in page.words
    assert "TidesReader" in page.words
    assert re.search(r"Kept messages \d+–\d+ ", page.words)
    assert len(set(re.findall(r'Summary <span class="quiet">([\d,]+)</span>', page.text))) == 1
    assert re.search(r"compacted away\. messages \d+ to \d+ in the transcript", page.words)


def test_the_tree_tells_what_each_conversation_cost_by_itself(site: Site, store: Store) -> None:
    whole, part = (
        store.sessions.start(store.record([user(title), assistant("done")]), title=title, from_depth=0).id
        for title in ("Whole", "Part")
    )
    for ident, values in ((whole, {session.c.cost: 2.5}), (part, {session.c.cost: 0.5, session.c.works_for: whole})):
        moved = update(session).where(session.c.id == ident).values(values)
        store.database.write(partial(Connection.execute, statement=moved))
    words = " ".join(site.get(f"/inspector/c/{whole}/tree").words.split())
    assert re.findall(r"Messages 2 · (\$[\d.]+)", words) == ["$2.50", "$0.5000"]
    assert re.search(r"</a> <span class=\"quiet\">fork ·", site.get(f"/inspector/c/{whole}/tree").text)


def test_names_with_underscores_are_shown_as_they_are() -> None:
    assert "src/__init__.py and <strong>this</strong>" in render_markdown("src/__init__.py and **this**")
    assert "<p>__main__.py</p>" in render_markdown("__main__.py")


def test_now_tells_the_tokens_of_each_tool_and_of_each_file(site: Site, store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "data/tides.csv"}'}}
    asked: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "high water 06:12 " * 300}
    one = store.sessions.start(title="tides")
    at = store.record([user("Read it."), asked, result], conversation=one.id)
    store.sessions.attach(one.id, at)
    words = site.get(f"/inspector/c/{one.id}").words
    for title, name in (("By tool", "read"), ("By file", "data/tides.csv")):
        heads = rf"{title[3:].title()} Tokens Share Calls"
        found = re.search(rf"{title}: calls and results\s+{heads}\s+{name}\s+([\d,]+)\s+(\d+)%\s+1", words)
        assert found is not None, title
        assert int(found[1].replace(",", "")) > 1_000
        assert int(found[2]) > 90


def test_now_tells_who_said_how_much(site: Site, store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    thinking = {"type": "thinking", "thinking": "When is the high water? " * 40}
    asked: Message = {"role": "assistant", "content": [thinking], "tool_calls": [call]}
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "high water 06:12 " * 300}
    one = store.sessions.start(title="tides")
    store.sessions.attach(one.id, store.record([user("Read it."), asked, result], conversation=one.id))
    words = site.get(f"/inspector/c/{one.id}").words
    told = dict(re.findall(r"(Tool calls and results|Thinking|What people said) ([\d,]+)", words))
    sizes = [int(told[name].replace(",", "")) for name in ("Tool calls and results", "Thinking", "What people said")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] > 100


def test_a_result_is_folded_in_the_transcript_and_open_on_its_own_page(site: Site, ferry: Ferry) -> None:
    page = site.get(f"{ferry.link}/transcript")
    assert '<details class="result"><summary>' in page.text
    link = re.search(r'id="t5".*?href="(/inspector/m/\w+)"', page.text, re.DOTALL)
    assert link is not None
    assert '<details class="result" open>' in site.get(link[1]).text


def test_a_compaction_shows_its_summary_as_it_was_written_and_no_rule_where_there_is_none(
    site: Site, ferry: Ferry
) -> None:
    text = site.get(f"{ferry.link}/compactions/1").text
    assert "<li>Plan the ferries of the harbour</li>" in text
    assert "Standing rules" not in text


@pytest.mark.parametrize(
    ("value", "shown"), [(950, "950"), (12_345, "12.3k"), (4_500_000, "4.5M"), (4_679_337_000, "4.68B")]
)
def test_large_numbers_are_written_in_few_characters(value: int, shown: str) -> None:
    assert format_short(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(None, ""), (3.21, "3.2 s"), (1_195.6, "20 min")])
def test_long_times_are_told_in_minutes(value: float | None, shown: str) -> None:
    assert format_seconds(value) == shown


def test_the_first_page_shows_on_which_days_there_were_conversations(site: Site, store: Store) -> None:
    now = time.time()
    for age in (0, 3, 3):
        one = store.sessions.start(title="talk")
        store.sessions.attach(one.id, store.record([user(f"hello {one.id}")], conversation=one.id))
        moved = update(session).where(session.c.id == one.id).values(active=now - age * 86_400)
        store.database.write(partial(Connection.execute, statement=moved))
    days = dict(re.findall(r"<title>([\d-]+): (\d+) conversations", site.get("/inspector/").text))
    assert len(days) == 84
    assert sorted(days.values())[-2:] == ["1", "2"]
    assert "<figure" not in site.get("/inspector/?age=1d").text


def test_the_transcript_shows_messages_calls_and_diffs(site: Site, ferry: Ferry) -> None:
    page = site.get(f"{ferry.link}/transcript")
    assert PORT_LINE in page.words
    assert "<strong>timetable</strong>" in page.text
    assert '<span class="removed">-x = 1' in page.text
    assert '<span class="added">+x = 2' in page.text
    assert "result of read_file" in page.words
    assert page.text.count('class="mark"') == 2


def test_pages_of_a_transcript_are_stable_and_hold_two_hundred_turns(site: Site, store: Store) -> None:
    ident = make_long(store, 1_001)
    newest = site.get(f"/inspector/c/{ident}/transcript")
    assert "Page 6 of 6" in newest.words
    assert "question 1000" in newest.words
    first = site.get(f"/inspector/c/{ident}/transcript?page=1")
    assert "question 0" in first.words
    assert first.text.count("<article") == 200
    second = site.get(f"/inspector/c/{ident}/transcript?page=2")
    assert 'rel="prev"' in second.text
    assert 'rel="next"' in second.text
    assert re.findall(r'id="t(\d+)"', second.text) == [str(turn) for turn in range(201, 401)]


def test_the_timeline_has_a_table_and_the_data_of_its_chart(site: Site, store: Store, ferry: Ferry) -> None:
    asked = store.sessions.start(store.record([user("Which pier?")]), title="Asked", from_depth=0).id
    assert "no answer has come yet" in site.get(f"/inspector/c/{asked}/timeline").words
    page = site.get(f"{ferry.link}/timeline")
    assert page.text.count("<tr data-row>") == 8
    chart = json.loads(site.get(f"{ferry.link}/timeline.json").text)
    assert len(chart["request"]) == 8
    assert chart["prompt"][0] == 100 + chart["read"][0]
    assert [mark["number"] for mark in chart["compactions"]] == [1, 2]
    assert chart["window"]
    assert chart["threshold"] < chart["window"]


@pytest.mark.usefixtures("ferry")
def test_costs_add_up_by_every_group(site: Site) -> None:
    for by in ("day", "model", "client", "session", "nonsense"):
        page = site.get(f"/inspector/cost?by={by}&age=all")
        assert page.status == 200
        assert re.search(r"In total \$[\d.]+ \$[\d.]+ 8 ", page.words)


@pytest.mark.usefixtures("ferry")
def test_the_search_highlights_and_shows_what_stands_around(site: Site) -> None:
    page = site.get("/inspector/search?q=port+48213")
    assert "<mark>48213</mark>" in page.text
    assert "assistant: Noted." in page.words
    assert "Nothing was found" in site.get("/inspector/search?q=zeppelin").words
    assert "Any of the words will do" in site.get("/inspector/search").words
    assert site.get("/inspector/search?q=%28&mode=regex").status == 200


@pytest.mark.parametrize("form", ["markdown", "json", "jsonl"])
def test_a_conversation_is_exported(site: Site, ferry: Ferry, form: str) -> None:
    got = site.get(f"{ferry.link}/export/{form}")
    assert got.status == 200
    assert PORT_LINE in got.text
    assert got.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("form", ["markdown", "json", "jsonl"])
def test_an_export_of_the_page_has_no_secret(site: Site, form: str) -> None:
    secret = "sk-ant-api03-" + "Tn5Bk3Wv8Xs2Jd7Q" * 3
    session = site.store.sessions.start(title=f"With {secret}", system_prompt=f"The key is {secret}.")
    said: list[Message] = [
        {"role": "user", "content": f"Use {secret}, please."},
        {"role": "assistant", "content": [{"type": "text", "text": f"I use {secret}."}]},
    ]
    site.store.sessions.attach(session.id, site.store.record(said, conversation=session.id))
    got = site.get(f"/inspector/c/{session.id}/export/{form}")
    assert got.status == 200
    assert secret not in got.text
    assert "please" in got.text
    if form.startswith("json"):
        json.loads(got.text)


def test_what_is_not_there_is_a_page_that_says_so(site: Site) -> None:
    for path in ("c/nobody", "nothing", "m/zz", "m/0123456789abcdef", "static/..%2Fapp.py", "static/htmx.LICENSE"):
        got = site.get(f"/inspector/{path}")
        assert (path, got.status) == (path, 404)
        assert "Back to all conversations" in got.words
    assert site.get("/elsewhere").status == 404


def test_a_page_of_a_long_conversation_reads_only_that_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ident = make_long(store, 3_000)
    read = 0
    entries = type(store.reader).entries

    def counted(*arguments: object) -> object:
        nonlocal read
        found = entries(*arguments)  # type: ignore[arg-type]
        read += len(found)
        return found

    monkeypatch.setattr(type(store.reader), "entries", counted)
    lines = [
        one for one in store.conversations.entries(ident, after=1_400, to=1_600) if isinstance(one, ConversationLine)
    ]
    assert [line.turn for line in lines] == list(range(1_401, 1_601))
    assert read == 200


def test_an_address_with_a_slash_at_its_end_leads_to_the_page(site: Site, ferry: Ferry) -> None:
    found = site.get(f"{ferry.link}/")
    assert (found.status, found.headers["Location"]) == (308, ferry.link)


def test_now_counts_what_the_model_gets_and_nothing_else(store: Store, ferry: Ferry) -> None:
    first = user("A long file, pasted. " * 3_000)
    at = store.record([first, *[assistant("Short."), user("Go on.")] * 400], conversation="pasted")
    ident = store.sessions.start(at, title="Pasted", from_depth=0).id
    for one in (ident, ferry.ident):
        page = read_now(store, Settings(), one)
        messages = [part for part in page.parts if part.kind not in {"tools", "system", "memory"}]
        assert page.shares.tokens == sum(part.tokens for part in messages)
        assert sum(one.tokens for one in page.shares.voices) == page.shares.tokens
    words = [part for part in read_now(store, Settings(), ident).parts if part.kind == "tail"]
    assert words[0].tokens > 3_000


def test_the_dearest_requests_come_first_and_say_which_compaction_they_followed(site: Site, ferry: Ferry) -> None:
    page = site.get(f"{ferry.link}/timeline?order=cost")
    costs = [float(one) for one in re.findall(r'data-label="Cost">\$([\d.]+)<', page.text)]
    assert len(costs) > 1
    assert costs == sorted(costs, reverse=True)
    assert f'{ferry.link}/compactions/1">the first after compaction 1<' in page.text


def test_a_search_lists_the_oldest_first_if_asked_to(site: Site, store: Store) -> None:
    one = store.sessions.start(title="ports")
    said = [user(f"the port is {number}") for number in range(30)]
    store.sessions.attach(one.id, store.record(said, conversation=one.id, times=[float(at) for at in range(30)]))
    first = site.get("/inspector/search?q=port&order=oldest")
    assert re.findall(r"· message (\d+) ·", first.words) == [str(number) for number in range(1, 21)]
    following = re.search(r'rel="next" href="([^"]+)"', first.text)
    assert following is not None
    second = site.get(following[1].replace("&amp;", "&"))
    assert re.findall(r"· message (\d+) ·", second.words) == [str(number) for number in range(21, 31)]


def test_a_compaction_tells_what_it_cut_itself(site: Site, ferry: Ferry) -> None:
    told: Message = {"role": "user", "content": f"{SUMMARY_PREFIX}\n\n## Goal\n- Ship the ferries"}
    engine = ScriptedEngine(lambda messages: [*messages[:2], told, *messages[-1:]])
    ferry.store.compact(ferry.at, engine, Occasion("threshold", ferry.parts[-1], MODEL), roll_over=ferry.parts[-1])
    words = site.get(f"{ferry.link}/compactions/3").words
    cut = re.search(r"messages 2–(\d+) messages: \d+ summarized by an earlier compaction messages (\d+)–", words)
    assert cut is not None
    assert int(cut[2]) == int(cut[1]) + 1
    assert re.search(r"from message \d+ on kept word for word", words)
    with ferry.store.database.read() as connection:  # what was put in between two messages stands for none
        path = ferry.store.conversations.path(ferry.ident)
        assert path.turns_within(connection, ferry.at.id, 5, 5) == (None, None)
        assert path.turns_within(connection, ferry.at.id, 4, 5) == (5, 5)


def test_a_message_leads_to_the_compaction_that_cut_it(site: Site, ferry: Ferry) -> None:
    page = site.get(f"{ferry.link}/transcript")
    for turn, number in ((3, 1), (11, 2), (16, None)):
        found = re.search(rf'href="(/inspector/m/\w+)"[^>]*>message {turn}<', page.text)
        assert found is not None
        linked = re.search(r'<p class="state.*?/compactions/(\d+)"', site.get(found[1]).text)
        assert (int(linked[1]) if linked else None) == number


def test_the_transcript_marks_a_compaction_that_was_undone(site: Site, ferry: Ferry) -> None:
    ferry.store.undo(ferry.at)
    assert re.search(r"Compaction 2 undone ·", site.get(f"{ferry.link}/transcript").words)


# -- leaving -----------------------------------------------------------------------------------------------------------


def ask(site: Site, path: str) -> socket.socket:
    """Send a request and read nothing."""
    connection = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
    return connection


def test_open_pages_take_one_thread_while_the_store_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, goes_on = list[int](), threading.Event()

    def hang(_: object) -> tuple[int, int, int]:
        looking.append(1)
        goes_on.wait(PATIENCE)
        return 1, 1, 1

    monkeypatch.setattr(app, "newest_change", hang)
    open_pages = [ask(site, "/inspector/live") for _ in range(6)]
    for page in open_pages:
        assert page.recv(12) == b"HTTP/1.1 200"
    assert site.get("/inspector/").status == 200
    assert len(looking) == 1
    goes_on.set()
    for page in open_pages:
        page.close()


@pytest.mark.parametrize("path", ["/inspector/", "/inspector/search?q=ferry", "/inspector/cost"])
def test_a_reader_who_leaves_at_once_is_no_error(site: Site, caplog: pytest.LogCaptureFixture, path: str) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            leaving = ask(site, path)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by a reset
            leaving.close()
        until(lambda: site.get("/inspector/").status == 200)
    assert caplog.records == []
