"""Reading: the keyboard, links to a message, and pages of a transcript in both directions."""

from __future__ import annotations

from typing import Any

from bench.inspector_story import PORT, SAID, Story

from tests.browser.conftest import Browse, Tab


def pages_in(page: Any) -> list[int]:
    """Return the pages of a transcript that are in the document."""
    return [int(one.get_attribute("data-page")) for one in page.locator("section.page").all()]


def long_link(story: Story) -> str:
    found = next(one for one in story.store.conversations.newest(10) if one.title == "A long one")
    return f"/inspector/c/{found.id}"


def test_the_keyboard_goes_everywhere(reading: Tab, story: Story) -> None:
    page = reading.go("/inspector/")
    page.keyboard.press("j")
    first = page.locator("tr.current").inner_text()
    page.keyboard.press("j")
    assert page.locator("tr.current").inner_text() != first
    page.keyboard.press("k")
    assert page.locator("tr.current").inner_text() == first
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.wait_for_url("**/inspector/c/*")
    page.goto(f"{reading.base}{story.link}")
    for key, place in zip("2345", ("timeline", "transcript", "compactions", "tree"), strict=True):
        page.keyboard.press(key)
        page.wait_for_url(f"**/{place}")
    page.keyboard.press("/")
    page.keyboard.type("port number")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=port+number")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/m/*")
    page.keyboard.press("g")
    page.wait_for_url("**/inspector/")


def test_a_link_to_a_message_shows_that_message(reading: Tab, story: Story) -> None:
    page = reading.go(f"{story.link}/transcript?turn={story.said_turn}")
    assert page.url.endswith(f"/transcript?page=1#t{story.said_turn}")
    message = page.locator(f"#t{story.said_turn}")
    assert PORT in message.inner_text()
    is_shown = "(id) => Math.abs(document.getElementById(id).getBoundingClientRect().top - 400) < 400"
    page.wait_for_function(is_shown, arg=f"t{story.said_turn}")
    message.get_by_title("About this message").click()
    page.wait_for_url("**/m/*")
    deep = page.url
    assert (
        PORT in reading.go(deep.removeprefix(reading.base)[: len("/inspector/m/") + 12]).locator("article").inner_text()
    )


def test_pages_follow_each_other_in_both_directions_and_three_stay(reading: Tab, story: Story) -> None:
    link = long_link(story)
    page = reading.go(f"{link}/transcript?page=1")
    assert page.locator("article.message").count() == 200
    for wanted in (2, 3, 4, 5):
        page.locator(f"section[data-page='{wanted - 1}'] a[rel=next]").last.click()
        page.wait_for_url(f"**/transcript?page={wanted}")
        assert pages_in(page) == list(range(max(1, wanted - 2), wanted + 1))
    assert page.locator("article.message").count() == 600
    for wanted in (2, 1):
        page.locator(f"section[data-page='{wanted + 1}'] a[rel=prev]").first.click()
        page.wait_for_url(f"**/transcript?page={wanted}")
        assert pages_in(page) == [wanted, wanted + 1, wanted + 2]
    assert page.locator("#t1").count() == 1
    page.reload()
    assert pages_in(page) == [1]
    assert "question 0" in page.locator("#t1").inner_text()


def test_the_words_of_people_and_the_model_stand_alone_and_are_copied(
    browse: Browse, story: Story, story_host: str
) -> None:
    tab = browse(story_host, permissions=["clipboard-read", "clipboard-write"])
    page = tab.go(f"{story.link}/transcript?page=1")
    assert page.locator("details.result").first.is_visible()
    page.locator("#only-words").check()
    assert not page.locator("details.result, article.tool").first.is_visible()
    said = page.locator(f"#t{story.said_turn}")
    assert said.is_visible()
    said.get_by_role("button", name="Copy").click()
    said.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == SAID


def test_pages_have_the_same_address_and_words_without_script(browse: Browse, story: Story, story_host: str) -> None:
    tab = browse(story_host, java_script_enabled=False)
    page = tab.go(f"{long_link(story)}/transcript?page=2")
    assert "question 200" in page.locator("#t201").inner_text()
    page.locator("a[rel=next]").first.click()
    page.wait_for_url("**/transcript?page=3")
    page.locator("a[rel=prev]").first.click()
    page.wait_for_url("**/transcript?page=2")
    assert pages_in(page) == [2]
    assert page.locator("article.message").count() == 200
