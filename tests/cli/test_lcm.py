"""``everlong lcm``: the graph of a conversation from the command line, on small conversations in a real store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import update

from everlong import Message, Session, Store
from everlong.lossless import LosslessEngine
from everlong.store import schema
from everlong.testing import Ask, ModelServer
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, long_session, user

WINDOW = 32_000
TALK: list[Message] = [
    *long_session(60)[1:],
    user("Use port 8437, we agreed on it."),
    assistant("Port 8437 it is."),
]


@pytest.fixture
def lcm(run: Run, store_file: Path) -> Run:
    """``everlong lcm`` on a store of its own."""
    return lambda *arguments, **more: run("lcm", "--store", str(store_file), *arguments, **more)


@pytest.fixture
def talk(store_file: Path) -> Session:
    """A conversation without a graph."""
    with Store.open(store_file) as store:
        return add_session(store, TALK, "The importer", 1_790_000_000.0)


@pytest.fixture
def built(talk: Session, lcm: Run) -> Session:
    """The same conversation with a graph, which its context does not show."""
    assert lcm("build", talk.id, "--context-length", str(WINDOW)).code == 0
    return talk


@pytest.fixture
def compacted(talk: Session, store_file: Path) -> Session:
    """The same conversation after a compaction by the engine."""
    with Store.open(store_file) as store:
        at = store.branch(talk.branch or 0)
        assert store.compact(at, LosslessEngine(WINDOW)).outcome == "compacted"
    return talk


# -- nothing there -----------------------------------------------------------------------------------------------------


def test_help_loads_no_database() -> None:
    code = (
        "import sys\nfrom everlong.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print('sqlalchemy' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code, "lcm", "--help"], capture_output=True, text=True, check=True)
    assert "tree" in ran.stdout
    assert ran.stderr.strip() == "False"


@pytest.mark.parametrize("arguments", [["show"], ["tree"], ["stats"], ["build"], ["grep", "port"]])
def test_an_empty_store_is_told_in_a_line(run: Run, arguments: list[str]) -> None:
    ran = run("lcm", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "everlong: there is no conversation yet; `everlong sessions import FILE` adds some\n"


def test_an_empty_store_has_no_problems(run: Run) -> None:
    assert run("lcm", "doctor").code == 0
    assert run("lcm", "doctor", "--json").json == {"graphs": 0, "problems": [], "remarks": []}


@pytest.mark.parametrize("name", ["show", "tree", "stats", "doctor"])
def test_a_conversation_without_a_graph_is_told_how_to_get_one(lcm: Run, talk: Session, name: str) -> None:
    ran = lcm(name, talk.id)
    assert (ran.code, ran.out) == (1, "")
    assert f"has no graph; `everlong lcm build {talk.id}` makes one" in ran.err


@pytest.mark.usefixtures("talk")
@pytest.mark.parametrize("name", ["show", "tree", "stats", "doctor", "build"])
def test_an_unknown_conversation_is_an_error_that_names_similar_ones(lcm: Run, name: str) -> None:
    ran = lcm(name, "The importre")
    assert (ran.code, ran.out) == (1, "")
    assert "did you mean 'The importer'?" in ran.err


# -- build -------------------------------------------------------------------------------------------------------------


def test_building_covers_every_message_and_leaves_the_context_as_it_is(
    lcm: Run, talk: Session, store_file: Path
) -> None:
    with Store.open(store_file) as store:
        before = store.context(store.branch(talk.branch or 0))
    (done,) = lcm("build", talk.id, "--context-length", str(WINDOW), "--json").json
    assert done["covered"] == done["messages"] == len(TALK)
    assert done["leaves"] > 5
    with Store.open(store_file) as store:
        assert store.context(store.branch(talk.branch or 0)) == before
        assert store.verify().problems == []


def test_building_again_adds_nothing_and_a_grown_conversation_is_built_on(
    lcm: Run, built: Session, store_file: Path
) -> None:
    assert lcm("build", "--json").json[0]["leaves"] == 0
    with Store.open(store_file) as store:
        at = store.branch(built.branch or 0)
        store.append(at, [user("And the lamps?"), assistant("They burn oil from the harbour shop.")])
    (done,) = lcm("build", "--json").json
    assert (done["leaves"], done["covered"]) == (1, len(TALK) + 2)
    assert "the lamps?" in lcm("show").out


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


def test_a_compaction_takes_the_summaries_that_were_built(lcm: Run, built: Session, store_file: Path) -> None:
    with Store.open(store_file) as store:
        at = store.branch(built.branch or 0)
        there = {node.id for node in store.graph(at).all()}
        store.compact(at, LosslessEngine(WINDOW))
    shown = [one["id"] for one in lcm("show", "--json").json["summaries"]]
    assert len([ident for ident in shown if ident in there]) >= len(shown) - 1


def test_a_model_writes_summaries_again_that_it_has_not_written(
    lcm: Run, built: Session, store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_: Ask) -> str:
        return "## Progress\n### Done\n- Ran the build step by step.\n"

    with ModelServer(write, dialect="openai") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("EVERLONG_PROVIDERS__OPENAI__BASE_URL", server.openai_url)
        (done,) = lcm("build", built.id, "--summarizer", "openai:gpt-4o", "--json").json
    figures = lcm("stats", "--json").json
    assert done["rewritten"] == 10
    with Store.open(store_file) as store:
        assert len(store.receipts.of_session(built.id)) >= 10
    assert figures["models"] == {"openai:gpt-4o": 10}
    assert sum(level.get("replaced", 0) for level in figures["levels"]) == 10


# -- show, tree, stats -------------------------------------------------------------------------------------------------


def test_show_lists_the_summaries_of_the_context(lcm: Run, compacted: Session) -> None:
    ran = lcm("show")
    lines = ran.out.splitlines()
    assert lines[0].split()[:4] == ["summary", "level", "messages", "tokens"]
    assert lines[1].startswith("s-")
    assert "stands on" in ran.err
    told = lcm("show", compacted.id, "--json").json
    assert told["in_context"]
    assert len(told["summaries"]) == len(lines) - 1
    assert sum(one["messages"] for one in told["summaries"]) + told["newer_messages"] == len(TALK)
    assert {"id", "level", "messages", "tokens", "from", "to", "state", "quality", "text"} <= set(told["summaries"][0])


@pytest.mark.usefixtures("built")
def test_show_says_that_the_context_does_not_show_a_built_graph(lcm: Run) -> None:
    ran = lcm("show")
    assert ran.out.startswith("summary")
    assert "shows no summary of its graph; these are the highest" in ran.err
    assert lcm("show", "--json").json["in_context"] is False


@pytest.mark.usefixtures("built")
def test_tree_draws_each_summary_on_a_line_down_to_a_depth(lcm: Run) -> None:
    lines = lcm("tree").out.splitlines()
    assert lines[0] == f"The importer  {len(TALK)} messages"
    assert lines[1].startswith("├─ s-")
    assert lines[2].startswith("│  ├─ s-")
    assert "level 1" in lines[1]
    assert "leaf" in lines[2]
    assert lines[-1].startswith("└─ s-")
    short = lcm("tree", "--depth", "1").out.splitlines()
    assert short[2] == "│  └─ … 4 summaries under it; --depth shows more"
    told = lcm("tree", "--json").json
    assert [len(one.get("under_it", [])) for one in told["summaries"]][:2] == [4, 0]
    assert told["uncovered"] == 0


@pytest.mark.usefixtures("compacted")
def test_tree_marks_the_summaries_of_the_context_and_counts_messages_under_none(lcm: Run) -> None:
    lines = lcm("tree").out.splitlines()
    assert "*  " in lines[1]
    assert lines[-1].endswith("messages under no summary")
    assert all(one["in_context"] for one in lcm("tree", "--json").json["summaries"])


@pytest.mark.usefixtures("built")
def test_stats_count_summaries_by_level_and_state(lcm: Run) -> None:
    told = lcm("stats", "--json").json
    assert [(one["level"], one["good"]) for one in told["levels"]] == [(1, 1), (0, 9)]
    assert told["messages_under_summaries"] == told["messages"] == len(TALK)
    assert told["ratio"] > 5
    assert told["models"] == {"extractive": 10}
    out = lcm("stats").out
    assert "124 of 124 under summaries (100%)".replace("124", str(len(TALK))) in out
    assert "to 1)" in out


# -- grep and expand ---------------------------------------------------------------------------------------------------


def test_grep_finds_messages_with_their_ids_and_expand_opens_them(lcm: Run, talk: Session) -> None:
    ran = lcm("grep", "which", "port")
    assert "Use port 8437, we agreed on it." in ran.out
    told = lcm("grep", "8437", "--role", "user", "--json").json
    (hit,) = told["hits"]
    assert (hit["session"], hit["role"], told["more"]) == (talk.id, "user", False)
    assert "Use port 8437, we agreed on it." in lcm("expand", hit["id"]).out
    assert lcm("expand", hit["id"], "--json").json["opened"][0]["pages"] == 1


@pytest.mark.usefixtures("talk")
def test_grep_obeys_modes_filters_and_pages(lcm: Run) -> None:
    assert lcm("grep", r"step-4[12]\b", "--mode", "regex", "--tool", "bash", "--json").json["hits"]
    assert lcm("grep", "ort 84", "--mode", "substring", "--json").json["hits"]
    assert lcm("grep", "port", "--before", "2001-01-01", "--json").json["hits"] == []
    first, second = (lcm("grep", "build", "--page", page, "--json").json for page in ("1", "2"))
    assert first["more"]
    assert not {hit["id"] for hit in first["hits"]} & {hit["id"] for hit in second["hits"]}
    assert "--page 2 shows more" in lcm("grep", "build").err
    nothing = lcm("grep", "xylophone")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "everlong: nothing was found\n")


@pytest.mark.usefixtures("talk")
def test_a_bad_regular_expression_is_an_error_in_a_line(lcm: Run) -> None:
    ran = lcm("grep", "(", "--mode", "regex")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)


def test_grep_searches_one_conversation_or_all(lcm: Run, talk: Session, store_file: Path) -> None:
    with Store.open(store_file) as store:
        other = add_session(store, [user("Which roses bloom in May?"), assistant("The climbing ones.")], "Garden")
    assert lcm("grep", "roses", "--session", talk.id, "--json").json["hits"] == []
    assert lcm("grep", "roses", "--session", "Garden", "--json").json["hits"]
    assert lcm("grep", "roses", "--all", "--json").json["hits"][0]["session"] == other.id
    assert lcm("grep", "roses", "--all", "--session", "Garden").code == 2
    assert lcm("grep", "roses", "--all", "--role", "summary").code == 2


@pytest.mark.usefixtures("built")
def test_expand_opens_a_graph_down_to_the_words(lcm: Run) -> None:
    top = lcm("tree", "--json").json["summaries"][0]
    (opened,) = lcm("expand", top["id"], "--json").json["opened"]
    assert opened["summaries"] == [one["id"] for one in top["under_it"]]
    (leaf,) = lcm("expand", opened["summaries"][0], "--json").json["opened"]
    assert "Build the project and fix what is broken." in leaf["messages"][0]["text"]
    assert "Build the project" in lcm("expand", opened["summaries"][0]).out
    assert "--page 2 shows more" in lcm("expand", opened["summaries"][0]).err
    assert lcm("grep", "8437", "--role", "summary", "--json").json["hits"][0]["id"].startswith("s-")


@pytest.mark.usefixtures("built")
def test_expand_opens_what_it_knows_and_names_what_it_does_not(lcm: Run) -> None:
    known = lcm("show", "--json").json["summaries"][0]["id"]
    ran = lcm("expand", known, "s-000000000000", "nonsense")
    assert ran.code == 1
    assert known in ran.out
    assert [line.split(":")[1] for line in ran.err.splitlines() if "no summary" in line] == [
        " s-000000000000",
        " nonsense",
    ]


# -- forgetting and forks ----------------------------------------------------------------------------------------------


def test_forgotten_messages_take_their_summaries_along_until_a_build_writes_new_ones(
    lcm: Run, built: Session, sessions: Run
) -> None:
    assert lcm("grep", "8437", "--role", "summary", "--json").json["hits"]
    assert sessions("forget", "8437", "--yes").code == 0
    assert lcm("stats", "--json").json["levels"][-1]["void"] == 1
    assert lcm("grep", "8437", "--json").json["hits"] == []
    assert lcm("grep", "8437", "--role", "summary", "--json").json["hits"] == []
    checked = lcm("doctor", built.id)
    assert checked.code == 0
    assert f"`everlong lcm build {built.id}` writes new ones" in checked.err
    (done,) = lcm("build", "--context-length", str(WINDOW), "--json").json
    assert (done["leaves"], done["covered"]) == (1, len(TALK))
    assert "8437" not in lcm("tree").out
    assert lcm("doctor").err == "everlong: 1 graph checked: every message is in reach\n"


def test_a_forgotten_message_in_the_middle_costs_one_leaf(lcm: Run, built: Session, store_file: Path) -> None:
    with Store.open(store_file) as store:
        at = store.branch(built.branch or 0)
        entry = store.entries(at)[60]
        assert entry.id is not None
        store.forget([entry.id])
        before = {node.id for node in store.graph(at).all()}
    (done,) = lcm("build", "--context-length", str(WINDOW), "--json").json
    with Store.open(store_file) as store:
        after = {node.id for node in store.graph(store.branch(built.branch or 0)).all()}
        assert store.verify().problems == []
    assert done["covered"] == len(TALK)
    assert before <= after


def test_a_fork_shares_the_summaries_of_the_messages_it_shares(lcm: Run, built: Session, store_file: Path) -> None:
    with Store.open(store_file) as store:
        fork = add_session(store, [*TALK[:80], user("Take another way."), assistant("The other way.")], "Fork", 1.9e9)
        shared = {span.id for span in store.graph(store.branch(built.branch or 0)).outline()}
    told = lcm("tree", "Fork", "--json").json
    assert {one["id"] for one in told["summaries"]} <= shared
    assert told["uncovered"] > 2
    (done,) = lcm("build", "Fork", "--context-length", str(WINDOW), "--json").json
    assert done["covered"] == 82
    assert lcm("grep", "another way", "--session", "Fork", "--role", "summary", "--json").json["hits"]
    assert lcm("grep", "another way", "--session", built.id, "--role", "summary", "--json").json["hits"] == []
    assert lcm("doctor").code == 0
    assert fork.id != built.id


# -- doctor ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["built", "compacted"])
def test_doctor_finds_every_message_in_reach(lcm: Run, made: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(made)
    ran = lcm("doctor")
    assert (ran.code, ran.err) == (0, "everlong: 1 graph checked: every message is in reach\n")
    assert lcm("doctor", "--json").json == {"graphs": 1, "problems": [], "remarks": []}


def test_doctor_names_what_is_broken_and_what_to_do(lcm: Run, compacted: Session, store_file: Path) -> None:
    first = lcm("show", "--json").json["summaries"][0]["id"]
    with Store.open(store_file) as store:
        gone = update(schema.summary).where(schema.summary.c.id == first).values(state="void", digest=None)
        store.database.write(lambda connection: connection.execute(gone).rowcount)
    ran = lcm("doctor")
    assert ran.code == 1
    assert first in ran.out
    assert "`everlong sessions verify`" in ran.err
    told = lcm("doctor", compacted.id, "--json")
    assert told.code == 1
    assert any(first in problem for problem in told.json["problems"])


@pytest.mark.usefixtures("built")
def test_doctor_tells_of_degraded_summaries_without_failing(lcm: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        weak = update(schema.summary).where(schema.summary.c.level == 1).values(state="degraded")
        store.database.write(lambda connection: connection.execute(weak).rowcount)
    ran = lcm("doctor")
    assert ran.code == 0
    assert "1 summary degraded" in ran.err
    assert "--summarizer auto" in ran.err


# -- import ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(TALK), encoding="utf-8")
    return str(path)


def test_an_import_builds_the_graph_if_the_engine_is_chosen(run: Run, sessions: Run, lcm: Run, file: str) -> None:
    assert run("config", "set", "context.engine", "lcm").code == 0
    (graph,) = sessions("import", file, "--json").json["graphs"]
    assert graph["covered"] == graph["messages"] == len(TALK)
    assert lcm("doctor").err == "everlong: 1 graph checked: every message is in reach\n"
    assert sessions("import", file, "--json").json["graphs"] == []


def test_an_import_builds_no_graph_for_another_engine_unless_asked(
    run: Run, sessions: Run, lcm: Run, file: str
) -> None:
    assert "graphs" not in sessions("import", file, "--json").json
    assert lcm("show").code == 1
    run("config", "set", "context.engine", "lcm")
    Path(file).write_text(json.dumps([*TALK, user("Thanks."), assistant("You are welcome.")]), encoding="utf-8")
    assert "graphs" not in sessions("import", file, "--no-graph", "--json").json
    Path(file).write_text(json.dumps([user("Hello there."), assistant("Hello.")]), encoding="utf-8")
    ran = sessions("import", file, "--graph")
    assert "built 1 graph of summaries" in ran.err


def test_a_model_that_fails_is_told_and_the_graph_is_built_all_the_same(
    lcm: Run, talk: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer("<think>Hm.</think>", dialect="openai") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("EVERLONG_PROVIDERS__OPENAI__BASE_URL", server.openai_url)
        ran = lcm("build", talk.id, "--context-length", str(WINDOW), "--summarizer", "openai:gpt-4o")
    assert ran.code == 1
    assert "openai:gpt-4o writes the summaries" in ran.err
    assert "the built-in summarizer took over; build again to ask the model" in ran.err
    assert f"{len(TALK)} of {len(TALK)} messages under summaries" in ran.err
    assert "degraded" in lcm("doctor").err
