"""``everlong demo``: three ways to deal with a full window, and figures that are measured in the run."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from everlong.cli import demo
from everlong.cli.demo import Contender, Source, load_session, play, sources_of
from everlong.cli.main import cli
from everlong.store import Store


class Played(NamedTuple):
    """What the command printed, and what it played and measured for that."""

    printed: str
    done: list[Contender]
    known: list[list[Source]]


@pytest.fixture(scope="module")
def played() -> Played:
    done: list[Contender] = []
    known: list[list[Source]] = []

    def playing(*given: Any) -> list[Contender]:
        done.extend(play(*given))
        return done

    def knowing(*given: Any) -> list[Source]:
        known.append(sources_of(*given))
        return known[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "play", playing)
        patch.setattr(demo, "sources_of", knowing)
        ran = CliRunner().invoke(cli, ["demo"], catch_exceptions=False)
    assert ran.exit_code == 0
    return Played(ran.stdout, done, known)


def test_everlong_knows_most_and_recalls_what_is_out_of_sight(played: Played) -> None:
    _, facts = load_session()
    cut, listed, sources = played.known
    assert sources.count("context") >= len(facts) * 0.5
    assert sources.count("lost") <= len(facts) * 0.2
    assert {*cut, *listed} == {"context", "lost"}


def test_the_readme_tells_the_figures_of_this_run(played: Played) -> None:
    done, (cut, listed, ours) = played.done, played.known
    _, facts = load_session()
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


def test_the_demo_tells_all_of_it_on_45_lines(played: Played) -> None:
    lines = played.printed.splitlines()
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
        assert said in played.printed


def test_its_compactions_stand_at_the_times_of_the_session(tmp_path: Path) -> None:
    session, _ = load_session()
    with Store.open(tmp_path / "store.db") as store:
        ident = play(session[:300], 32_768, store)[-1].conversation
        times = [one.at for one in store.conversations.compactions(ident)]
        assert len(times) > 1
        assert min(later - earlier for earlier, later in pairwise(times)) > 60
