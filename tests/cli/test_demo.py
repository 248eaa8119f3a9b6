"""``everlong demo``: three ways to deal with a full window, and figures that are measured in the run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from everlong import Store, open_store
from everlong.cli.demo import Contender, load_session, play, sources_of
from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sequence[Contender], Store]]:
    session, _ = load_session()
    with open_store(tmp_path_factory.mktemp("demo") / "demo.db", waits_for_disk=False) as store:
        yield play(session, 32_768, store), store


def test_everlong_knows_most_and_recalls_what_is_out_of_sight(played: tuple[Sequence[Contender], Store]) -> None:
    done, store = played
    _, facts = load_session()
    store.searcher.index_pending()
    cut, listed, sources = (sources_of(one, facts, store if one is done[-1] else None) for one in done)
    assert sources.count("context") >= len(facts) * 0.5
    assert sources.count("lost") <= len(facts) * 0.2
    assert {*cut, *listed} == {"context", "lost"}


def test_the_readme_tells_the_figures_of_this_run(played: tuple[Sequence[Contender], Store]) -> None:
    done, store = played
    _, facts = load_session()
    store.searcher.index_pending()
    cut, listed, ours = (sources_of(one, facts, store if one is done[-1] else None) for one in done)
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split())
    assert f"of {len(facts)} facts, a sliding window knew {cut.count('context')} at the end" in readme
    assert f"a plain summary {listed.count('context')}" in readme
    found = len(facts) - ours.count("lost")
    told = re.search(rf"Everlong {ours.count('context')} and with a search (\d+)", readme)
    assert told is not None
    assert abs(int(told[1]) - found) <= 1, "one fact is found or not by the order of equal hits"
    dollars = [f"${one.dollars:,.2f}" for one in done]
    assert f"{dollars[0]}, {dollars[1]} and {dollars[2]}" in readme
    times = int(done[0].dollars / done[2].dollars)
    assert f"it cost {['', '', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'][times]} times as much" in readme


def test_the_demo_tells_all_of_it_on_45_lines(run: Run) -> None:
    ran = run("demo")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) <= 45
    assert max(map(cell_len, lines)) <= 80
    assert not any(line.endswith("…") and not line.endswith(" …") for line in lines), "a word is cut"
    for said in (
        "cut off the oldest",
        "summarize the middle",
        "in context   by search   not found",
        "## Goal",
        "What to run next",
    ):
        assert said in ran.out
