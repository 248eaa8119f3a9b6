"""Words of a conversation that try to run in the reader's browser, in every field that can hold text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from everlong.inspector.security import Watch
from everlong.store import Store
from everlong.store.imports import Importer, ImportOrigin
from everlong.wire.transcript import TranscriptConversation
from tests.browser.conftest import Browse
from tests.context.builders import assistant, user
from tests.inspector.conftest import Site, run_site
from tests.inspector.making import PAYLOADS, Ferry, make_hostile
from tests.inspector.test_security import pages_of

HARM = """() => {
  const found = [];
  for (const one of document.querySelectorAll("*")) {
    const name = one.localName;
    if (["iframe", "object", "embed", "base", "style"].includes(name)) found.push(`<${name}>`);
    if (name === "script" && !(one.getAttribute("src") || "").startsWith("/inspector/static/")) found.push("a script");
    for (const { name: key, value } of one.attributes) {
      if (key.startsWith("on") || key === "style" || key === "srcdoc") found.push(`${name} ${key}=${value}`);
      if (["href", "src", "action", "formaction", "xlink:href"].includes(key)
        && !/^(\\/inspector|#|\\?|https?:|mailto:|data:image\\/)/.test(value)) found.push(`${name} ${key}=${value}`);
    }
  }
  return found;
}"""
"""Ours are no exception: the chart, which sets styles by script, is drawn on one page that no payload needs."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, list[Ferry]]]:
    """An inspector over a store with a conversation for each payload, and a file that is called like it."""
    with Store.open(tmp_path_factory.mktemp("hostile") / "store.db") as store:
        made = [make_hostile(store, payload) for payload in PAYLOADS]
        for number, payload in enumerate(PAYLOADS):
            said = TranscriptConversation([user(f"file {number}"), assistant("yes")])
            Importer(store).add(said, ImportOrigin(payload.replace("\x00", ""), float(number)))
        for site in run_site(store, Watch()):
            yield site, made


def check(page: Any) -> None:
    """Open all that is folded, wait for what that loads, and look for harm."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_timeout(50)
    assert page.evaluate(HARM) == []
    assert page.evaluate("document.title").strip()


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_no_payload_runs_in_any_field_of_any_page(
    browse: Browse, hostile: tuple[Site, list[Ferry]], number: int
) -> None:
    site, made = hostile
    tab = browse(f"http://{site.host}")
    paths = pages_of(made[number], site.store)
    for path in paths[4 if number else 0 :]:  # the first four are the same for all of them
        if path.endswith("/timeline"):
            page = tab.go(path)
            page.locator("#chart canvas").wait_for()
            page.locator("#chart .u-over").hover()
            page.locator("#chart").evaluate("(one) => one.remove()")
        else:
            page = tab.go(path)
        check(page)


def test_a_payload_in_the_search_is_only_words(browse: Browse, hostile: tuple[Site, list[Ferry]]) -> None:
    site, _ = hostile
    tab = browse(f"http://{site.host}")
    for payload in PAYLOADS:
        page = tab.go("/inspector/")
        page.locator("#find").fill(payload)
        page.locator("#find").press("Enter")
        page.wait_for_url("**/search?q=*")
        check(page)
