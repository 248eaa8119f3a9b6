"""The log that each real client writes is imported with the messages and tokens that the model's server counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.clients.script import KNOWN, expected_files, long_plan, plan_of_one_prompt, plan_of_pastes, short_plan
from bench.clients.session import bill_of, open_desk, play

from everlong.cli.archive.log_import import LogFolder, log_folders
from everlong.store import Store
from tests.archive.samples import scan

if TYPE_CHECKING:
    from bench.clients.programs import Place, Program
MATRIX = pytest.mark.matrix
ROUNDED = {"aider"}
"""Clients that state their tokens only roughly."""


def _folders(place: Place) -> list[LogFolder]:
    return [*log_folders({}, place.home), LogFolder("aider", place.folder, (".aider.chat.history.md",))]


@pytest.mark.parametrize(
    "program",
    [
        "claude-code",
        pytest.param("opencode", marks=MATRIX),
        "pi",
        "cline",
        "codex",
        pytest.param("aider", marks=MATRIX),
    ],
    indirect=True,
)
def test_the_log_of_a_session(program: Program, tmp_path: Path) -> None:
    plan = short_plan()
    with open_desk(program, [plan], through_gateway=False, window=200_000) as desk:
        place = desk.place(plan)
        prompts = [plan.prompt(number) for number in range(len(plan.tasks) if program.resumes else 1)]
        program.talk(place, prompts, 240)
        bill = bill_of(desk.server.requests)
        with Store.open(tmp_path / "store.db") as store:
            first = scan(store, _folders(place))
            again = scan(store, _folders(place))
            (found,) = store.conversations.newest()
            assert (first.outcomes["new"], again.changed, first.skipped) == (1, 0, {})
            assert (found.client, Path(found.folder or "")) == (program.name, place.folder)
            assert store.verify().problems == []
            if program.name not in ROUNDED:
                aside = 4 if program.name == "opencode" else 0  # the title, which is no part of the conversation
                assert found.output_tokens == bill.output - aside
                assert (found.cache_read_tokens, found.cache_write_tokens) == (bill.read, bill.written)
            if program.name in {"claude-code", "pi"}:
                assert found.cost == pytest.approx(float(bill.dollars), rel=1e-6)


@pytest.mark.parametrize("program", [pytest.param("claude-code", marks=MATRIX)], indirect=True)
@pytest.mark.parametrize("prompts", [1, 2])
def test_the_log_of_a_session_through_the_gateway_adds_nothing(program: Program, prompts: int) -> None:
    plan = short_plan()
    with open_desk(program, [plan], through_gateway=True, window=200_000) as desk:
        place = desk.place(plan)
        program.talk(place, [plan.prompt(number) for number in range(prompts)], 240)
        with desk.store() as store:
            before = [(one.id, one.messages) for one in store.conversations.newest()]
            found = scan(store, _folders(place))
            assert [(one.id, one.messages) for one in store.conversations.newest()] == before
            assert (len(before), dict(found.outcomes)) == (1, {"known": 1})


RECALL = {"gateway": {"routes": {"*": {"recall": True}}}}
WINDOWS = {"claude-code": 64_000, "aider": 16_000}
"""Claude Code's system prompt and tools alone have 25,000 tokens; aider never sends more than 15,000."""
WINDOW = 32_000
SIZES = {"claude-code": 5_000, "aider": 2_000}
SIZE = 3_000
"""Tokens of each tool result, or of what the person pastes."""
TOLD = 200_000
"""The window that the clients are told, so that they leave compaction to the gateway."""


@pytest.mark.parametrize(
    "program",
    [
        "claude-code",
        pytest.param("opencode", marks=pytest.mark.matrix),
        "pi",
        "cline",
        "codex",
        pytest.param("pi-openai", marks=pytest.mark.matrix),
        pytest.param("opencode-openai", marks=pytest.mark.matrix),
        pytest.param("aider", marks=pytest.mark.matrix),
    ],
    indirect=True,
)
def test_a_session_of_three_windows_loses_nothing(program: Program) -> None:
    window = WINDOWS.get(program.name, WINDOW)
    size = SIZES.get(program.name, SIZE)
    steps = 3 * window // size
    make = plan_of_pastes if not program.has_tools else long_plan if program.resumes else plan_of_one_prompt
    plan = make(steps, size)
    played = play(program, plan, through_gateway=True, window=window, told_window=TOLD, settings=RECALL)
    assert played.bill.refused == []
    assert played.files == expected_files(plan)
    assert [fact.words for fact in KNOWN if fact.words not in " ".join(played.answers[-1].split())] == []
    assert played.problems == []
    assert sum(played.compactions.values()) >= 2
    assert played.bill.largest <= window
