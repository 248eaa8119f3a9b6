"""The public benchmark: adapters speak one protocol, the stub invents nothing, and the page has the stored figures."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

import pytest
from bench.gateway.peers import Unusable
from bench.public import page
from bench.public.__main__ import main
from bench.public.adapters.langchain_middleware import compact as compact_with_langchain
from bench.public.peers import METHODS, Adapter, Compaction, Failed, Method, adapters, method_named
from bench.public.plots import Bars, Panel, Point, draw_bars, draw_lines
from bench.public.protocol import Job, Messages, serve
from bench.public.stub import StubModel, lines_of, rough_tokens, text_of
from bench.retention.methods import body_tokens
from bench.retention.validity import pairing

TALK: Messages = [
    {"role": "system", "content": "You help with the harbour planner."},
    {"role": "user", "content": "Please mend src/berths.py, and never touch the file legacy/tides.py in any change."},
    *(
        {
            "role": role,
            "content": f"Step {number}: the berth B-{number:03d} is free at {number}:15, booked after it.",
        }
        for number in range(60)
        for role in ("assistant", "user")
    ),
]


# -- protocol ----------------------------------------------------------------------------------------------------------


def _asked(requests: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    def keep_ends(messages: Messages, model: StubModel, job: Job) -> Messages:
        if job.room == 1:
            raise ValueError("no room")
        said = model.answer(str(messages), 50)
        return [messages[0], {"role": "user", "content": said}, messages[-1]]

    serve(("pytest",), keep_ends, io.StringIO("".join(line + "\n" for line in requests)))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_an_adapter_tells_versions_results_and_errors_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    hello, made, refused, unknown, broken = _asked(
        [
            json.dumps({"op": "hello"}),
            json.dumps({"op": "compact", "messages": TALK, "room": 500, "summary": 40}),
            json.dumps({"op": "compact", "messages": TALK, "room": 1}),
            json.dumps({"op": "sing"}),
            "{",
        ],
        capsys,
    )
    assert hello == {"versions": {"pytest": pytest.__version__}}
    assert [message["role"] for message in made["messages"]] == ["system", "user", "user"]
    assert made["cpu"] >= 0
    assert len(made["calls"]) == 1
    assert refused == {"error": "ValueError: no room"}
    assert "unknown op 'sing'" in unknown["error"]
    assert "JSONDecodeError" in broken["error"]


def test_our_own_adapters_run_as_programs_and_keep_the_room() -> None:
    room = body_tokens(TALK) // 3
    names = ["Everlong", "Everlong, no model", "sliding window", "head + tail"]
    with adapters(names) as (running, missing):
        assert missing == {}
        for adapter in running:
            made = adapter.fit(TALK, room)
            assert made is not None, adapter.failures
            assert body_tokens(made.messages) <= room
            assert pairing(made.messages) == []
            assert text_of(made.messages[0]).startswith("You help with the harbour planner.")
            assert bool(made.calls) == adapter.method.uses_model


def test_langchain_is_run_as_an_agent_runs_it() -> None:
    pytest.importorskip("langchain")
    made = compact_with_langchain(TALK, StubModel(TALK, 200), Job(room=900, keep=400, summary=200))
    assert made.messages[0] == TALK[0]
    assert made.messages[-1]["content"] == TALK[-1]["content"]
    assert 3 < len(made.messages) < 30
    assert "B-0" in made.messages[1]["content"]


def test_a_process_that_ends_is_told_as_a_missing_package() -> None:
    dead = subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    dead.wait()
    with pytest.raises(Unusable, match="its process ended"):
        Adapter(method_named("Everlong"), dead).ask({"op": "hello"})
    dead.communicate()


# -- sizes -------------------------------------------------------------------------------------------------------------


class Elastic(Adapter):
    """A package that keeps what it is told and so much more, without a process."""

    def __init__(self, fixed: int, chatter: int | None = None) -> None:
        self.method, self.failures, self.fixed, self.chatter = Method("elastic", "", fits=False), [], fixed, chatter
        self.asked: list[dict[str, Any]] = []

    def compact(self, messages: Any, **job: Any) -> Compaction:
        """Return as many words as it was asked for."""
        del messages
        self.asked.append(job)
        if job["room"] < 0:
            raise Failed("a negative room")
        said = job["summary"] if self.chatter is None else min(self.chatter, job["summary"])
        words = [{"role": "user", "content": "word " * count} for count in (self.fixed, job["keep"], said) if count]
        return Compaction(words, 0.0, [])


def test_a_result_fills_the_room_and_never_exceeds_it() -> None:
    made = Elastic(fixed=100).fit(TALK, 2_000)
    assert made is not None
    assert 1_700 <= body_tokens(made.messages) <= 2_000
    assert not made.is_over


def test_room_that_the_model_does_not_need_goes_to_the_newest_messages() -> None:
    package = Elastic(fixed=100, chatter=50)
    made = package.fit(TALK, 2_000)
    assert made is not None
    assert body_tokens(made.messages) > 1_500
    assert package.asked[-1]["keep"] > package.asked[0]["keep"]


def test_a_package_that_does_not_get_small_enough_counts_as_it_is_and_is_marked() -> None:
    package = Elastic(fixed=5_000)
    made = package.fit(TALK, 2_000)
    assert made is not None
    assert made.is_over
    assert package.asked[-1]["keep"] < package.asked[0]["keep"]


def test_a_package_that_raises_is_counted_with_its_reason() -> None:
    package = Elastic(fixed=1)
    assert package.fit(TALK, -1) is None
    assert package.failures == ["a negative room"]


# -- the stub ----------------------------------------------------------------------------------------------------------


def test_the_stub_copies_lines_of_the_conversation_and_none_of_the_instructions() -> None:
    prompt = "You MUST always write src/secret_template.py first.\n" + "\n".join(
        f"[{message['role'].upper()}]: {message['content']}" for message in TALK
    )
    said = StubModel(TALK, 300).answer(prompt)
    assert "secret_template" not in said
    known = {line for message in TALK for line in lines_of(message["content"])}
    copied = [line.removeprefix("- ") for line in said.splitlines() if line.startswith("- ")]
    assert copied
    assert [line for line in copied if not any(line in one for one in known)] == []
    assert "## Constraints & Preferences\n- Please mend src/berths.py, and never touch" in said or "never touch" in said


@pytest.mark.parametrize("limit", [40, 200, 1_000])
def test_the_stub_keeps_its_limit_and_says_the_same_twice(limit: int) -> None:
    prompt = "\n".join(message["content"] for message in TALK)
    said = StubModel(TALK, 5_000).answer(prompt, limit)
    assert rough_tokens(said) <= limit + 40
    assert said == StubModel(TALK, 5_000).answer(prompt, limit)


def test_the_stub_has_nothing_to_say_without_lines_or_room() -> None:
    assert StubModel([], 100).answer("Summarize this.") == "None."
    assert StubModel(TALK, 0).answer(str(TALK)) == "None."


# -- page --------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="results", scope="module")
def stored_results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.RESULTS.read_text("utf-8"))
    return found


def test_the_page_and_its_pictures_are_those_of_the_stored_results(results: dict[str, Any]) -> None:
    assert page.PAGE.read_text("utf-8") == page.render(results), "run: python -m bench.public --page"
    for name, picture in page.pictures(results).items():
        assert (page.PICTURES / name).read_text("utf-8") == picture, (
            f"{name} is stale; run: python -m bench.public --page"
        )


def test_every_package_has_a_row_in_every_table(results: dict[str, Any]) -> None:
    names = {method.name for method in METHODS}
    measured = [part for part in ("keeping", "chats", "cpu", "cache") if part in results]
    assert measured
    for part in measured:
        assert {row["method"] for row in results[part]["rows"]} == names, part


def test_a_part_that_was_not_measured_is_named_and_has_no_section(results: dict[str, Any]) -> None:
    fewer = {name: value for name, value in results.items() if name != "keeping"}
    told = page.render(fewer)
    assert "| not measured in this run | keeping" in told
    assert "## What a compaction keeps" not in told
    assert "retention.svg" not in page.pictures(fewer)


def test_a_figure_that_changes_shows_on_the_page_and_among_what_others_do_better(results: dict[str, Any]) -> None:
    changed = copy.deepcopy(results)
    for row in changed["keeping"]["rows"]:
        if row["method"] == "OpenHands" and row["turns"] is not None:
            row["turns"]["value"] = 1.25
    line = "OpenHands 1.25, Everlong"
    assert line in page.render(changed)
    assert line not in page.render(results)


def test_pictures_are_sound_svg_with_every_name_and_a_look_for_the_dark(results: dict[str, Any]) -> None:
    for picture in page.pictures(results).values():
        ET.fromstring(picture)  # noqa: S314 - our own
        assert "prefers-color-scheme: dark" in picture
    assert all(method.name in page.pictures(results)["retention.svg"] for method in METHODS)


def test_pictures_take_hostile_names_and_missing_figures() -> None:
    bars = draw_bars("a < b & c", [Bars("group", {"<x>": 1.0, "none": None, "zero": 0.0})])
    lines = draw_lines("empty", [Panel("p", "x", {"<y>": [Point(0.1, 0.5, 0.4, 0.6)]}), Panel("q", "x", {})])
    for drawn in (bars, lines):
        ET.fromstring(drawn)  # noqa: S314 - our own
    assert "not measured" in bars


def test_the_command_refuses_unknown_parts_and_folders(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    with pytest.raises(SystemExit):
        main(["--parts", "keeping,singing"])
    assert "unknown singing; there are keeping, chats" in capsys.readouterr().err
    assert main(["--data", str(tmp_path / "nowhere"), "--parts", "cpu"]) == 2
    assert "there is no folder" in capsys.readouterr().err
