"""Every view of the inspector: without a complaint, for eyes that need contrast, dark, on a phone, in Chinese."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from bench.inspector_story import PORT, TITLE

from tests.browser.conftest import DARK, PHONE, Browse, Tab
from tests.inspector.conftest import Site

if TYPE_CHECKING:
    from bench.inspector_story import Story


class View(NamedTuple):
    """A view; ``{c}`` in its path is the conversation, ``{m}`` the message in which the port was named."""

    path: str
    shows: str


VIEWS: dict[str, View] = {
    "list": View("/inspector/", TITLE),
    "search": View("/inspector/search?q=port+number", "Summarized away"),
    "message": View("/inspector/m/{m}", PORT),
    "now": View("{c}", "What the model gets now"),
    "timeline": View("{c}/timeline", "Requests, newest first"),
    "transcript": View("{c}/transcript?page=1", PORT),
    "compactions": View("{c}/compactions", "Compaction 2"),
    "compaction": View("{c}/compactions/1", "Compaction 1 of"),
    "tree": View("{c}/tree", "Sub-agents and forks"),
    "cost": View("/inspector/cost?age=all", "Provider caching"),
    "problem": View("/inspector/c/nobody", "Back to all conversations"),
}


def path_of(view: str, story: Story) -> str:
    """Return the address of a view of the story."""
    node = story.store.conversations.node_at(story.ident, story.said_turn)
    assert node is not None
    return VIEWS[view].path.format(c=story.link, m=node.hex())


SERIOUS = {"serious", "critical"}
NOT_FOUND = "the server responded with a status of 404"


def fits(page: Any) -> bool:
    """Return whether nothing is wider than the page."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def forgive_not_found(tab: Tab) -> None:
    """The browser itself complains about a page that is not there."""
    tab.problems[:] = [one for one in tab.problems if NOT_FOUND not in one]


@pytest.mark.smoke
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_itself_without_a_complaint(reading: Tab, story: Story, view: str) -> None:
    page = reading.go(path_of(view, story))
    assert page.locator("h1").count() == 1
    assert VIEWS[view].shows in page.locator("main").inner_text()
    assert fits(page)
    if view == "problem":
        forgive_not_found(reading)


@pytest.mark.smoke
def test_an_empty_store_says_how_to_begin_and_copies_the_commands(browse: Browse, empty_host: Site) -> None:
    tab = browse(f"http://{empty_host.host}", permissions=["clipboard-read", "clipboard-write"])
    page = tab.go("/inspector/")
    commands = page.locator(".command code").all_inner_texts()
    assert len(commands) == 4
    for place, command in enumerate(commands):
        page.locator("[data-copy]").nth(place).click()
        page.wait_for_function("(at) => document.querySelectorAll('[data-copy]')[at].innerText === 'Copied'", arg=place)
        assert page.evaluate("navigator.clipboard.readText()") == command


@pytest.mark.parametrize("view", [*VIEWS, "empty"])
@pytest.mark.parametrize("colours", [{}, DARK], ids=["light", "dark"])
def test_axe_finds_nothing_serious(
    browse: Browse, story: Story, story_host: str, empty_host: Site, colours: dict[str, Any], view: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="needs axe-core: make browser")
    tab = browse(f"http://{empty_host.host}" if view == "empty" else story_host, **colours)
    page = tab.go("/inspector/" if view == "empty" else path_of(view, story))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    told = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in told if one["impact"] in SERIOUS] == []
    if view == "problem":
        forgive_not_found(tab)


def test_dark_is_dark(browse: Browse, story: Story, story_host: str) -> None:
    page = browse(story_host, **DARK).go(story.link)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    page.emulate_media(color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_nothing_is_wider_than_a_phone(browse: Browse, story: Story, story_host: str) -> None:
    tab = browse(story_host, **PHONE)
    for view in VIEWS:
        page = tab.go(path_of(view, story))
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert fits(page), view
    forgive_not_found(tab)


def test_every_view_speaks_chinese(browse: Browse, story: Story, story_host: str) -> None:
    tab = browse(story_host, locale="zh-CN")
    for view in VIEWS:
        page = tab.go(path_of(view, story))
        assert page.locator("html").get_attribute("lang") == "zh"
        assert any("\u4e00" <= letter <= "\u9fff" for letter in page.locator("nav").first.inner_text())
    forgive_not_found(tab)


def test_reading_works_without_script(browse: Browse, story: Story, story_host: str) -> None:
    tab = browse(story_host, java_script_enabled=False)
    for view, told in VIEWS.items():
        page = tab.go(path_of(view, story))
        assert told.shows in page.locator("main").inner_text(), view
    page = tab.go(f"{story.link}/timeline")
    assert page.locator("table tbody tr").count() > 20
    forgive_not_found(tab)


@pytest.mark.smoke
def test_the_chart_is_drawn_and_tells_and_jumps(reading: Tab, story: Story) -> None:
    page = reading.go(f"{story.link}/timeline")
    page.locator("#chart canvas").wait_for()
    page.locator("#chart .u-over").hover()
    page.wait_for_function("document.getElementById('chart-note').textContent.includes('Request')")
    page.locator("#chart .u-over").click()
    page.wait_for_url("**/transcript?page=1#t*")


def test_a_part_of_the_bar_leads_to_its_words(reading: Tab, story: Story) -> None:
    page = reading.go(story.link)
    page.get_by_role("link", name="Summary:").click()
    assert page.evaluate("document.querySelector(location.hash).innerText.includes('Move the weather service')")
    page.locator("main a[download]", has_text="Markdown").click(trial=True)


def test_the_policy_stops_scripts_that_are_not_ours(browse: Browse, story: Story, story_host: str) -> None:
    """The other tests would prove nothing if the browser did not enforce the policy."""
    tab = browse(story_host)
    page = tab.go(story.link)
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = 1";
      document.body.append(script);
      document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.ran = 2'><p style='color:red'>x</p>");
      setTimeout("window.ran = 3", 0);
    }""")
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert {one.split()[1] for one in tab.problems if one.startswith("policy:")} >= {
        "script-src-elem",
        "script-src-attr",
    }
    tab.problems.clear()


def test_htmx_may_neither_evaluate_nor_bring_styles(reading: Tab, story: Story) -> None:
    page = reading.go(story.link)
    config = page.evaluate("({...htmx.config})")
    assert (config["allowEval"], config["includeIndicatorStyles"], config["allowScriptTags"]) == (False, False, False)
    assert config["selfRequestsOnly"] is True
    assert page.evaluate("htmx.version") == "2.0.11"
    assert page.locator("style").count() == 0
