"""A new user finds out why the agent forgot the port number, from ``everlong inspect --web`` on, with only the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from tests.browser.conftest import Browse
from tests.cli.test_inspect_web import inspecting
from tests.inspector.port_story import PORT, make_story

MOST_ACTIONS = 8


class Person:
    """Somebody at the page, whose every click, text and key is counted."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.actions = 0

    def click(self, target: Any) -> None:
        self.actions += 1
        target.click()

    def write(self, text: str) -> None:
        self.actions += 1
        self.page.keyboard.type(text)

    def press(self, key: str) -> None:
        self.actions += 1
        self.page.keyboard.press(key)


@pytest.mark.smoke
def test_why_did_the_agent_forget_the_port_number(browse: Browse, tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    with Store.open(path) as store:
        story = make_story(store)
    with inspecting("--store", str(path)) as address:
        base = address.removesuffix("/inspector/")
        tab = browse(base)
        person = Person(tab.go("/inspector/"))
        page = person.page

        person.click(page.get_by_role("searchbox"))
        person.write("port number")
        person.press("Enter")
        page.wait_for_url("**/search?q=port+number")

        # The hit that names it says what became of it. Its title opens the message in which it was said.
        hit = page.locator(".hits li", has_text=PORT)
        assert "Summarized away by compaction 1" in hit.inner_text()
        person.click(hit.locator("a.title"))
        page.wait_for_url("**/m/*")
        assert PORT in page.locator("article").inner_text()
        assert "Summarized away: the model no longer gets these words." in page.locator(".fate").inner_text()

        person.click(page.get_by_role("link", name="Summarized away by compaction 1"))
        page.wait_for_url(f"**{story.link}/compactions/1?turn={story.said_turn}#from")
        assert PORT in page.locator("#from").inner_text()
        assert "summarized" in page.locator("tr.here").inner_text()
        assert PORT not in page.locator(".summary").inner_text()
        tab.context.close()
    assert person.actions == 5 <= MOST_ACTIONS
