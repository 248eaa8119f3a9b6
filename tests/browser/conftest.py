"""A real Chromium over a real inspector; skipped where either is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.inspector.security import Watch
from everlong.store import Store
from tests.inspector.conftest import Site, run_site
from tests.inspector.making import Ferry, make_ferry

SHOTS = os.environ.get("INSPECTOR_SHOTS", "")
"""A folder for screenshots; none are kept without it."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install --group browser")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def ferry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ferry]:
    with Store.open(tmp_path_factory.mktemp("browser") / "store.db") as store:
        yield make_ferry(store)


@pytest.fixture(scope="module")
def site(ferry: Ferry) -> Iterator[Site]:
    yield from run_site(ferry.store, Watch())


class Tab:
    """A page of the browser that notes every complaint of its console."""

    def __init__(self, page: Any, site: Site) -> None:
        self.page = page
        self.site = site
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)

    def go(self, path: str, shot: str = "") -> Any:
        """Open an address; keep a picture of it if pictures are wanted."""
        self.page.goto(f"http://{self.site.host}{path}")
        self.page.wait_for_load_state("load")
        if shot and SHOTS:
            self.page.wait_for_timeout(300)
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(SHOTS) / f"{shot}.png"))
        return self.page


@pytest.fixture(params=[{}], ids=["wide"])
def tab(chromium: Any, site: Site, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A tab; parameters are those of a browser context. Nothing may complain in it."""
    context = chromium.new_context(**{"viewport": {"width": 1200, "height": 800}, "locale": "en-GB", **request.param})
    context.set_default_timeout(15_000)
    opened = Tab(context.new_page(), site)
    yield opened
    context.close()
    assert opened.problems == []
