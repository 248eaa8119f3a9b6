"""The graph of the lossless engine in ``everlong sessions``: drawn, opened, built and checked in a real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong import Message, Session, Store
from everlong.lossless import LosslessEngine
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, long_session, user

WINDOW = 16_000
TALK: list[Message] = [
    *long_session(60)[1:],
    user("Use port 8437, we agreed on it."),
    assistant("Port 8437 it is."),
]


@pytest.fixture
def talk(store_file: Path) -> Session:
    """A conversation without a graph."""
    with Store.open(store_file) as store:
        return add_session(store, TALK, "The importer", 1_790_000_000.0)


@pytest.fixture
def built(talk: Session, store_file: Path) -> Session:
    """The same conversation with a graph, which its context does not show."""
    with Store.open(store_file) as store:
        store.build_graph(store.branch(talk.branch or 0), LosslessEngine(WINDOW))
    return talk


# -- showing -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("built")
def test_the_graph_is_drawn_with_each_summary_on_a_line(sessions: Run) -> None:
    ran = sessions("show", "The importer", "--graph")
    lines = ran.out.splitlines()
    assert lines[0] == f"The importer  {len(TALK)} messages"
    assert lines[1].startswith("├─ s-")
    assert lines[2].startswith("│  ├─ s-")
    assert "level 1" in lines[1]
    assert "leaf" in lines[2]
    assert lines[-1].startswith("└─ s-")
    assert f"{len(TALK)} of {len(TALK)} messages under summaries; writers: built-in rules (10)" in ran.err
    assert "the context shows no summary of this graph" in ran.err
    told = sessions("show", "The importer", "--graph", "--json").json
    assert [len(one.get("under_it", [])) for one in told["summaries"]][:2] == [4, 0]
    assert [(one["level"], one["good"]) for one in told["levels"]] == [(1, 1), (0, 9)]
    assert told["messages_under_summaries"] == told["messages"] == len(TALK)


# -- building ----------------------------------------------------------------------------------------------------------


def test_an_interrupted_build_goes_on_where_it_stopped(talk: Session, store_file: Path) -> None:
    with Store.open(store_file) as store:
        at, leaves = store.branch(talk.branch or 0), []

        def stop(node: object) -> None:
            leaves.append(node)
            if len(leaves) == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.build_graph(at, LosslessEngine(WINDOW), stop)
        kept = {node.id for node in store.graph(at).all()}
        whole = store.build_graph(at, LosslessEngine(WINDOW))
        assert len(kept) == 3
        assert kept <= {node.id for node in store.graph(at).all()}
    assert sum(node.made.messages for node in whole) == len(TALK)


# -- forgetting and forks ----------------------------------------------------------------------------------------------


def test_forgotten_messages_take_their_summaries_along_until_a_build_writes_new_ones(
    sessions: Run, built: Session
) -> None:
    assert sessions("forget", "8437", "--yes").code == 0
    assert sessions("show", built.id, "--graph", "--json").json["levels"][-1]["void"] == 1
    (done,) = sessions("maintain", "--graph", built.id, "--json").json
    assert done["covered"] == len(TALK)
    assert "8437" not in sessions("show", built.id, "--graph").out
