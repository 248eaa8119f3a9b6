"""A log with values of the wrong kind costs a line, or itself; it never stops the import of the others."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from everlong.cli.archive.formats import LogFormat, format_of_log, read_log_file
from everlong.cli.archive.log_import import AIDER, LogImport
from everlong.cli.sessions_transfer import import_files
from everlong.errors import EverlongError, TranscriptError
from everlong.store import Store
from tests.archive import samples

STRANGE: tuple[Any, ...] = (None, -1, True, 10**30, float("inf"), float("nan"), "", "x", [], {}, [[]], [{}], [1])


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*place, name))


def with_value(value: Any, place: tuple[Any, ...], strange: Any) -> Any:
    if not place:
        return strange
    made = value.copy()
    made[place[0]] = with_value(value[place[0]], place[1:], strange)
    return made


def variants(value: Any) -> Iterator[Any]:
    """Yield a value with something strange at each of its places, one at a time."""
    strange = cycle(STRANGE)
    for place in places(value):
        yield with_value(value, place, next(strange))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("claude-code", samples.claude_log().text()),
        ("codex", samples.codex_rollout()),
        ("pi", samples.pi_session()),
    ],
)
def test_a_line_with_strange_values_stops_nothing(tmp_path: Path, form: LogFormat, text: str) -> None:
    lines = [json.loads(line) for line in text.splitlines()]
    path = tmp_path / "log.jsonl"
    for made in variants(lines):
        path.write_text(samples.lines(made))
        with suppress(EverlongError):
            format_of_log(path)
            read_log_file(path, form)


def test_a_database_of_another_version_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    samples.write_opencode(path)
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE session RENAME COLUMN revert TO went_back")
    with Store.open(tmp_path / "store.db") as store, pytest.raises(TranscriptError, match="version that is not known"):
        samples.OwnLogs(store).add(path)


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+00:00", 9e14, -9e14]
)
def test_a_moment_that_no_calendar_has_is_left_out(tmp_path: Path, moment: object) -> None:
    lines = [json.loads(line) for line in samples.pi_session().splitlines()]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({**line, "timestamp": moment}) for line in lines))
    told = tmp_path / "told.jsonl"
    said = {"role": "user", "content": "Which port?", "timestamp": moment}
    told.write_text(json.dumps({"messages": [said, {"role": "assistant", "content": "8080"}]}))
    skipped: list[dict[str, str]] = []
    with Store.open(tmp_path / "store.db") as store:
        files = {str(log): True, str(told): True}
        results = [outcomes for _, outcomes in import_files(LogImport(store), files, skipped)]
        assert [outcomes["new"] for outcomes in results] == [1, 1]
        assert all(1e9 < one.started <= one.active < 1e10 for one in store.conversations.newest())
    assert skipped == []


HISTORY = "# aider chat started at 2026-01-01 10:00:00\n\n#### Go  \n\nI do.\n"


@pytest.mark.parametrize(
    "remark", ["Tokens: {}M sent, {}k received.", "Tokens: 1k sent, 1 received. Cost: ${} message"]
)
@pytest.mark.parametrize("digits", [30, 400])
def test_figures_that_no_model_used_count_nothing(tmp_path: Path, remark: str, digits: int) -> None:
    (tmp_path / AIDER).write_text(f"{HISTORY}> {remark.replace('{}', '9' * digits)}\n")
    with Store.open(tmp_path / "store.db") as store:
        list(import_files(LogImport(store), {str(tmp_path / AIDER): True}, []))
        assert [(one.cost, one.output_tokens) for one in store.conversations.newest()] in ([(0.0, 0)], [(0.0, 1)], [])


def test_odd_figures_take_no_square_of_time_and_cost_no_log(tmp_path: Path) -> None:
    (tmp_path / AIDER).write_text(f"{HISTORY}> Tokens: 1k sent, {'9' * 400_000} taken.\n")
    with Store.open(tmp_path / "store.db") as store:
        list(import_files(LogImport(store), {str(tmp_path / AIDER): True}, []))
        assert [one.output_tokens for one in store.conversations.newest()] == [0]


def test_figures_that_no_database_can_add_up_cost_only_their_own_log(tmp_path: Path) -> None:
    (tmp_path / AIDER).write_text(HISTORY + "> Tokens: 999000000M sent, 1 received.\n" * 10_000)
    (tmp_path / "b.jsonl").write_text(samples.claude_log().text())
    skipped: list[dict[str, str]] = []
    names = {str(tmp_path / name): True for name in (AIDER, "b.jsonl")}
    with Store.open(tmp_path / "store.db") as store:
        assert [result for _, result in import_files(LogImport(store), names, skipped)][-1]["new"] > 0
    assert [Path(one["file"]).name for one in skipped] == [AIDER]


@pytest.mark.parametrize("value", ["'soon'", "x'00ff'", "9e999"])
def test_a_database_with_a_time_that_is_none_stops_no_other_log(tmp_path: Path, value: str) -> None:
    samples.write_opencode(tmp_path / "opencode.db")
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute(f"UPDATE session SET time_updated = {value}")  # noqa: S608 - ours
        connection.commit()
    (tmp_path / "b.jsonl").write_text(samples.claude_log().text())
    skipped: list[dict[str, str]] = []
    names = {str(tmp_path / name): True for name in ("opencode.db", "b.jsonl")}
    with Store.open(tmp_path / "store.db") as store:
        assert [result for _, result in import_files(LogImport(store), names, skipped)][-1]["new"] > 0
    assert [Path(one["file"]).name for one in skipped] == ["opencode.db"]


def test_half_a_letter_among_its_facts_and_deep_values_cost_no_other_log(tmp_path: Path) -> None:
    """Clients cut their titles in the middle of a letter."""
    session, *rest = samples.pi_session().splitlines()
    facts = json.dumps({**json.loads(session), "id": "a\ud83d\0"})
    (tmp_path / "a.jsonl").write_text("\n".join([facts, *rest, ""]))
    deep = '{"type":"function_call","call_id":"c","name":"n","arguments":' + "[" * 960 + "]" * 960 + "}"
    line = json.dumps({**json.loads(samples.codex_rollout().splitlines()[-1]), "type": "response_item", "payload": 0})
    (tmp_path / "b.jsonl").write_text(
        samples.codex_rollout() + line.replace('"payload": 0', f'"payload": {deep}') + "\n"
    )
    (tmp_path / "c.jsonl").write_text(samples.claude_log().text())
    skipped: list[dict[str, str]] = []
    names = {str(tmp_path / name): True for name in ("a.jsonl", "b.jsonl", "c.jsonl")}
    with Store.open(tmp_path / "store.db") as store:
        outcomes = [result for _, result in import_files(samples.OwnLogs(store), names, skipped)]
    assert (outcomes[0]["new"], outcomes[-1]["new"] > 0) == (1, True)
    assert [Path(one["file"]).name for one in skipped] == ["b.jsonl"]


def test_a_database_whose_columns_are_computed_is_no_log(tmp_path: Path) -> None:
    """Such a file of 16 KB took five gigabytes and a minute."""
    samples.write_opencode(tmp_path / "opencode.db")
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute("ALTER TABLE session ADD COLUMN long TEXT AS (hex(zeroblob(400000000)))")
    assert format_of_log(tmp_path / "opencode.db") is None
