"""Each client works through a session of three times the window, and still knows what was said at its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.clients.script import KNOWN, expected_files, long_plan, plan_of_one_prompt, plan_of_pastes
from bench.clients.session import play

if TYPE_CHECKING:
    from bench.clients.programs import Program

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
