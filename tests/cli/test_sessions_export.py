"""``everlong sessions export``: files that come back as they were, and transcripts that do no harm."""

from __future__ import annotations

import json
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import pytest

from everlong import Message, Store
from everlong.store.transcripts import plain, write_transcript
from everlong.store.transcripts.markdown import fenced
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, user

PIXEL = "data:image/png;base64,iVBORw0KGgo="
EVIL = [
    user("</pre><script>alert(1)</script><img src=x onerror=alert(2)> & \x1b[31mred\x1b[0m \u202etxt"),
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "<b>hm</b>"},
            {"type": "text", "text": "![t](http://tracker.example/x.png)\n````\n# not a heading"},
            {"type": "image_url", "image_url": {"url": 'http://tracker.example/"><script>'}},
            {"type": "image_url", "image_url": {"url": PIXEL}},
            {"type": "<u>odd</u>", "data": "<s>"},
        ],
        "tool_calls": [{"id": "c1", "function": {"name": "<i>sh</i>", "arguments": '{"x": "<script>"}'}}],
    },
    {"role": "tool", "tool_call_id": '"><script>', "content": "```\n</details><iframe src=//evil.example>"},
]


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.sources: list[str | None] = []
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.sources += [value for name, value in attrs if name in {"src", "href"}]
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def evil(sessions: Run, store_file: Path) -> Run:
    with Store.open(store_file) as store:
        add_session(store, EVIL, "<script>title</script>", system_prompt="<script>prompt")
    return sessions


def test_whatever_a_message_says_the_page_has_no_tag_of_its_and_loads_nothing(evil: Run) -> None:
    page = evil("export", "--all", "--format", "html").out
    seen = Seen(page)
    assert seen.open == []
    assert not seen.tags & {"script", "iframe", "u", "s", "link", "object", "form", "a"}
    assert seen.attributes <= {"lang", "charset", "http-equiv", "content", "name", "id", "class", "alt", "src", "open"}
    assert seen.sources == [PIXEL]
    assert "default-src 'none'" in page
    assert "<script>alert(1)</script>" in seen.words
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_in_markdown_nothing_becomes_markup_of_a_page(evil: Run) -> None:
    lines = evil("export", "--all", "--format", "markdown").out.splitlines()
    fence = ""
    for line in lines:
        if not fence and line.startswith("```"):
            fence = line.removesuffix("text")
        elif fence and line == fence:
            fence = ""
        elif not fence:
            assert "<" not in line.replace("\\<", "")
            assert "![" not in line
    assert fence == ""
    assert "# not a heading" in lines


def test_a_result_is_labelled_with_the_tool_that_it_is_of(sessions: Run, store_file: Path) -> None:
    call = {"id": "call-1", "function": {"name": "weigh", "arguments": '{"what": "anchor"}'}}
    messages = [
        user("How heavy?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "90 kg"},
    ]
    with Store.open(store_file) as store:
        add_session(store, messages, "Anchor")
    assert "← weigh" in sessions("show", "Anchor").out
    assert "← weigh" in sessions("show", "Anchor", "--turn", "3").out
    assert "**result** weigh" in sessions("export", "Anchor", "--format", "markdown").out
    assert "result weigh" in sessions("export", "Anchor", "--format", "html").out


def test_a_fence_is_longer_than_any_inside_it() -> None:
    assert fenced("a ```` b").splitlines()[0] == "`````text"


def test_colours_go_and_other_controls_become_visible() -> None:
    assert plain("\x1b[1;31mred\x1b[0m\r\nnext\x00 \u2066x　é\u200d") == "red\nnext� �x　é\u200d"


def test_jsonl_comes_back_as_the_same_session_in_another_store(
    run: Run, sessions: Run, store_file: Path, tmp_path: Path
) -> None:
    messages = [user("Where to?"), {**assistant("\ud800 north"), "timestamp": "mine"}, user("Why?")]
    with Store.open(store_file) as store:
        add_session(store, messages, "Way", 5_000.0, model="m-1", user="ada", system_prompt="Be brief.")
    assert sessions("export", "Way", "-o", str(tmp_path / "way.jsonl")).code == 0
    other = ["sessions", "--store", str(tmp_path / "other.db")]
    assert run(*other, "import", str(tmp_path / "way.jsonl")).code == 0
    here, there = sessions("show", "Way", "--json").json, run(*other, "show", "Way", "--json").json
    assert here["messages"] == there["messages"]
    for name in ("id", "title", "source", "user", "model", "started", "system_prompt"):
        assert here["session"][name] == there["session"][name]
    for program in (other, ["sessions", "--store", str(store_file)]):
        again = run(*program, "import", str(tmp_path / "way.jsonl"), "--json").json
        assert (again["known"], again["new"], again["messages"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("suffix", "begin"), [("html", "<!DOCTYPE html>"), ("md", "# One"), ("json", "{\n"), ("jsonl", '{"kind"')]
)
def test_the_format_follows_from_the_name_of_the_file(
    sessions: Run, store_file: Path, tmp_path: Path, suffix: str, begin: str
) -> None:
    with Store.open(store_file) as store:
        add_session(store, [user("a"), assistant("b")], "One")
    path = tmp_path / f"one.{suffix}"
    told = sessions("export", "One", "-o", str(path), "--json").json
    assert told == [{"file": str(path), "messages": 2}]
    assert path.read_text(encoding="utf-8").startswith(begin)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.spec("7.6")
def test_a_folder_gets_a_json_log_for_each_session(sessions: Run, store_file: Path, tmp_path: Path) -> None:
    with Store.open(store_file) as store:
        idents = [add_session(store, [user(f"talk {n}"), assistant("yes")]).id for n in range(2)]
    assert sessions("export", "--all", "--format", "json", "-o", f"{tmp_path / 'logs'}/").code == 0
    for ident in idents:
        log = json.loads((tmp_path / "logs" / f"session_{ident}.json").read_text(encoding="utf-8"))
        assert (log["session_id"], len(log["messages"])) == (ident, 2)


def test_an_export_needs_to_know_what(sessions: Run, store_file: Path) -> None:
    Store.open(store_file).close()
    assert sessions("export").code == 2
    assert sessions("export", "--all", "--json").code == 2
    assert sessions("export", "nothing").code == 1


@pytest.mark.parametrize("form", ["jsonl", "markdown", "html"])
def test_ten_thousand_messages_are_written_in_little_memory(tmp_path: Path, form: str) -> None:
    messages: list[Message] = [user(f"{n} " + "words " * 300) if n % 2 else assistant(f"{n}") for n in range(10_000)]
    with Store.open(tmp_path / "store.db") as store:
        one = add_session(store, messages)
        messages.clear()
        written = 0

        def write(text: str) -> None:
            nonlocal written
            written += len(text)

        tracemalloc.start()
        try:
            assert write_transcript(store, [one], form, write) == 10_000  # type: ignore[arg-type]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert written > 9_000_000
    assert peak < written / 4
