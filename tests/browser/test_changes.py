"""What changes: a conversation that runs through a gateway, an undo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everlong.store import Occasion, Store
from everlong.testing import ModelServer
from tests.browser.conftest import Browse, Tab
from tests.gateway.served import Program, program
from tests.gateway.test_inspector import Talk, wait_for
from tests.inspector.making import Ferry
from tests.store.engines import ScriptedEngine, summarizing


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(model: ModelServer, tmp_path: Path) -> Iterator[Program]:
    """``everlong serve`` as a program."""
    with program("--port", "0", "--upstream", model.url, "--store", str(tmp_path / "s.db")) as served:
        assert served.address, served.first
        yield served


def test_pages_follow_a_conversation_that_runs_through_a_gateway(
    gateway: Program, browse: Browse, model: ModelServer, tmp_path: Path
) -> None:
    talk = Talk(gateway.address, model)
    talk.say("Where are the ferries?")
    with Store.open(tmp_path / "s.db") as store:
        ident = wait_for(store, 2)
    listed, opened = browse(gateway.address), browse(gateway.address)
    page, head = listed.go("/inspector/"), opened.go(f"/inspector/c/{ident}/timeline")
    page.locator("[data-live-note]:visible").wait_for()
    row = page.locator("tr", has_text="Where are the ferries?")
    row.locator("td[data-label=Messages]", has_text="2").wait_for()
    page.wait_for_timeout(1_500)  # until both pages have had their first look at the store
    talk.say("And when do they go?")
    row.locator("td[data-label=Messages]", has_text="4").wait_for()
    head.locator("#head b", has_text="4").first.wait_for()
    Talk(gateway.address, model).say("Another conversation begins.")
    page.locator("a", has_text="Another conversation begins.").wait_for()


def test_an_undo_in_the_page_changes_what_the_next_request_sends(
    gateway: Program, browse: Browse, model: ModelServer, tmp_path: Path
) -> None:
    talk = Talk(gateway.address, model)
    talk.say("The first words.")
    talk.say("The second words.")
    with Store.open(tmp_path / "s.db") as store:
        ident = wait_for(store, 4)
        part = store.conversations.parts(ident)[-1]
        assert part.branch is not None
        engine = ScriptedEngine(summarizing(0, 3, "what was said"))
        store.compact(store.branch(part.branch), engine, Occasion("manual", part.id), roll_over=part.id)
        talk.say("The third words.")
        wait_for(store, 6)
    assert "The first words." not in talk.say("The fourth words.")
    page = browse(gateway.address).go(f"/inspector/c/{ident}/compactions/1")
    page.get_by_role("button", name="Undo this compaction").click()
    page.wait_for_url("**/compactions?result=undone")
    assert "was undone" in page.get_by_role("status").inner_text()
    assert "The first words." in talk.say("The fifth words.")


def test_an_undo_in_an_old_page_undoes_nothing_else(changing: Tab, ferry: Ferry) -> None:
    page = changing.go(f"{ferry.link}/compactions/2")
    last = ferry.store.conversations.path(ferry.ident).runs[-1]
    assert ferry.store.undo(ferry.store.branch(last.branch, last.high))
    before = ferry.store.context(ferry.at)
    page.get_by_role("button", name="Undo this compaction").click()
    page.wait_for_url("**/compactions?result=kept")
    assert "nothing to undo" in page.get_by_role("status").inner_text()
    assert ferry.store.context(ferry.at) == before
