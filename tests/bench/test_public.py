"""The public benchmark: adapters speak one protocol, the stub invents nothing, and the page has the stored figures."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from bench.public import page
from bench.public.protocol import Job, Messages, serve
from bench.public.stub import StubModel, lines_of, rough_tokens

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


# -- sizes -------------------------------------------------------------------------------------------------------------


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


def test_a_figure_that_changes_shows_on_the_page_and_among_what_others_do_better(results: dict[str, Any]) -> None:
    changed = copy.deepcopy(results)
    for row in changed["keeping"]["rows"]:
        if row["method"] == "OpenHands" and row["turns"] is not None:
            row["turns"]["value"] = 1.25
    line = "OpenHands 1.25, Everlong"
    assert line in page.render(changed)
    assert line not in page.render(results)
