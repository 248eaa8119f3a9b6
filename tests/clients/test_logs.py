"""The log that each real client writes is imported with the messages and tokens that the model's server counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.clients.script import short_plan
from bench.clients.session import bill_of, open_desk

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
