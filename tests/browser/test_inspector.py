"""One look at every view of the inspector in a real browser, its keyboard, its live list, and a new user's walk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Tab
from tests.context.builders import assistant, user
from tests.inspector.making import Ferry

VIEWS = (
    "now",
    "timeline",
    "transcript",
    "compactions",
    "compaction",
    "cache",
    "tree",
    "list",
    "search",
    "cost",
    "message",
)
AXE = os.environ.get("INSPECTOR_AXE", "")
"""The file of axe-core, which looks for what keeps people from using a page."""
SERIOUS = {"serious", "critical"}
DARK: dict[str, Any] = {"color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 780}}


def path_of(view: str, ferry: Ferry) -> str:
    node = ferry.store.conversations.node_at(ferry.ident, 4)
    assert node is not None
    special = {
        "now": ferry.link,
        "compaction": f"{ferry.link}/compactions/1",
        "list": "/inspector/",
        "search": "/inspector/search?q=port",
        "cost": "/inspector/cost?age=all",
        "message": f"/inspector/m/{node.hex()}",
    }
    return special.get(view, f"{ferry.link}/{view}")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_itself_without_a_complaint(tab: Tab, ferry: Ferry, view: str) -> None:
    page = tab.go(path_of(view, ferry), view)
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.skipif(not AXE, reason="needs axe-core: INSPECTOR_AXE=…/axe.min.js")
@pytest.mark.parametrize("tab", [{}, DARK], ids=["light", "dark"], indirect=True)
def test_axe_finds_nothing_serious(tab: Tab, ferry: Ferry) -> None:
    for view in VIEWS:
        page = tab.go(path_of(view, ferry))
        page.evaluate(Path(AXE).read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        serious = [
            (one["id"], [node["html"] for node in one["nodes"][:3]]) for one in found if one["impact"] in SERIOUS
        ]
        assert not serious, view


@pytest.mark.parametrize("tab", [DARK], ids=["dark"], indirect=True)
def test_dark_is_dark(tab: Tab, ferry: Ferry) -> None:
    page = tab.go(ferry.link, "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"


@pytest.mark.parametrize("tab", [PHONE], ids=["phone"], indirect=True)
def test_nothing_is_wider_than_a_phone(tab: Tab, ferry: Ferry) -> None:
    for view in VIEWS:
        page = tab.go(path_of(view, ferry), f"phone-{view}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


@pytest.mark.parametrize("tab", [{"java_script_enabled": False}], ids=["without script"], indirect=True)
def test_reading_works_without_script(tab: Tab, ferry: Ferry) -> None:
    page = tab.go(f"{ferry.link}/compactions/1")
    page.locator("details.line summary", has_text="timeout = 4711").click()
    page.locator("details.line[open] .sources a").click()
    assert "exact" in page.locator("main").inner_text()
    page = tab.go(f"{ferry.link}/timeline")
    assert page.locator("table tbody tr").count() == 8


def test_the_chart_is_drawn(tab: Tab, ferry: Ferry) -> None:
    page = tab.go(f"{ferry.link}/timeline")
    page.locator("#chart canvas").wait_for()
    page.locator("#chart .u-over").hover()
    page.wait_for_function("document.getElementById('chart-note').textContent.includes('Request')")


def test_a_line_of_a_summary_opens_to_its_source(tab: Tab, ferry: Ferry) -> None:
    page = tab.go(f"{ferry.link}/compactions/1")
    page.locator("details.line summary", has_text="timeout = 4711").click()
    page.locator("details.line[open] .tag.exact").wait_for()


def test_the_keyboard_goes_everywhere(tab: Tab, ferry: Ferry) -> None:
    page = tab.go("/inspector/")
    page.keyboard.press("j")
    assert page.locator("tr.current").count() == 1
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{ferry.link}")
    page.keyboard.press("3")
    page.wait_for_url("**/transcript")
    page.keyboard.press("/")
    page.keyboard.type("port")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=port")


def test_why_did_the_agent_forget_the_port_number(tab: Tab, ferry: Ferry) -> None:
    """Three actions: search, open the message in which it was said, open the compaction that dropped it."""
    page = tab.go("/inspector/")
    page.locator("#find").fill("port number")
    page.locator("#find").press("Enter")
    page.locator(".hits a.title").first.click()
    page.wait_for_url("**/m/*")
    assert "48213" in page.locator("article").inner_text()
    assert "Summarized away" in page.locator(".fate").inner_text()
    page.locator(".fate a", has_text="compaction 1").click()
    page.wait_for_url(f"**{ferry.link}/compactions/1")


def test_a_new_conversation_appears_by_itself(tab: Tab, ferry: Ferry) -> None:
    page = tab.go("/inspector/")
    page.locator("[data-live-note]:visible").wait_for()
    page.wait_for_timeout(1_200)  # until the stream has had its first look
    one = ferry.store.sessions.start(title="A ferry that just came in")
    at = ferry.store.record([user("hello"), assistant("hello")], conversation=one.id)
    ferry.store.sessions.attach(one.id, at)
    page.locator("a", has_text="A ferry that just came in").wait_for()


def test_undo_asks_the_server_and_says_so(tab: Tab, ferry: Ferry) -> None:
    before = len(ferry.store.context(ferry.at))
    page = tab.go(f"{ferry.link}/compactions/2")
    page.locator("form.action button").click()
    page.wait_for_url("**/compactions?result=undone")
    assert "undone" in page.locator("[role=status]").inner_text()
    assert len(ferry.store.context(ferry.at)) > before
