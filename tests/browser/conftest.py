"""A real Chromium over a real inspector; skipped where either is missing, which CI does not allow."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench.inspector_story import Story, make_story

from everlong.inspector.security import Watch
from everlong.store import Store
from tests.inspector.conftest import Site, run_site
from tests.inspector.making import Ferry, make_ferry, make_long
from tests.waiting import PATIENCE

DARK: dict[str, Any] = {"color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 780}}
_TELL = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make browser")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page of the browser that notes every complaint of its console, every dialog and every request to elsewhere."""

    def __init__(self, context: Any, base: str) -> None:
        context.set_default_timeout(1_000 * PATIENCE)
        context.add_init_script(_TELL)
        self.context, self.base = context, base
        self.page = context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        self.page.on("dialog", self._dismiss)
        self.page.on("request", self._watch)

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _watch(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:")):
            self.problems.append(f"asked for {request.url}")

    def go(self, path: str) -> Any:
        """Open an address; return the page."""
        self.page.goto(self.base + path)
        self.page.wait_for_load_state("load")
        return self.page


Browse = Callable[..., Tab]


@pytest.fixture
def browse(chromium: Any) -> Iterator[Browse]:
    """Opens a tab on a host, with the options of a browser context; in the end nothing may have complained."""
    tabs: list[Tab] = []

    def open_tab(base: str, **options: Any) -> Tab:
        usual = {"viewport": {"width": 1200, "height": 800}, "locale": "en-GB"}
        tabs.append(Tab(chromium.new_context(**{**usual, **options}), base))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.context.close()
    assert [problem for tab in tabs for problem in tab.problems] == []


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The story of the forgotten port, and a long conversation beside it; nobody changes it."""
    with Store.open(tmp_path_factory.mktemp("story") / "store.db") as store:
        made = make_story(store)
        make_long(store, 1_000)
        yield made


@pytest.fixture(scope="session")
def story_host(story: Story) -> Iterator[str]:
    for site in run_site(story.store, Watch()):
        yield f"http://{site.host}"


@pytest.fixture
def reading(browse: Browse, story_host: str) -> Tab:
    """A tab on the story."""
    return browse(story_host)


@pytest.fixture
def ferry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ferry]:
    """A conversation that a test may change."""
    with Store.open(tmp_path_factory.mktemp("ferry") / "store.db") as store:
        yield make_ferry(store)


@pytest.fixture
def changing(browse: Browse, ferry: Ferry) -> Iterator[Tab]:
    """A tab on the conversation that a test may change."""
    for site in run_site(ferry.store, Watch()):
        yield browse(f"http://{site.host}")


@pytest.fixture
def empty_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An inspector over a store without a conversation."""
    with Store.open(tmp_path_factory.mktemp("empty") / "store.db") as store:
        yield from run_site(store, Watch())
