"""Takes the pictures of the inspector that the documentation shows: ``python -m bench.inspector_pictures``.

They are made from two conversations, that of a forgotten port number and the session of ``everlong demo``, in a real
Chromium. ``--all`` takes every view besides, wide, narrow, dark and in Chinese, for somebody to look at.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.inspector.conftest import run_site

from bench.inspector_story import Story, make_story
from everlong.cli.demo import MODEL, PRICES, load_session, play
from everlong.config import ModelSettings, Settings
from everlong.inspector.security import Watch
from everlong.store import Store, open_store

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
LARGEST = 160_000
"""The bytes that a picture may have."""
SIZE = {"width": 1000, "height": 640}
PHONE = {"width": 390, "height": 780}


def main() -> int:
    """Take the pictures; return 1 if one is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=FOLDER, help="the folder for them")
    parser.add_argument("--all", action="store_true", help="every view besides, in every form")
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    with (
        tempfile.TemporaryDirectory(prefix="everlong-pictures-") as folder,
        open_sites(Path(folder)) as (host, places),
        browser() as chromium,
    ):
        camera = Camera(chromium, f"http://{host}", asked.into, made)
        for name, (path, prepare) in shots(places).items():
            camera.take(f"inspector-{name}", path, prepare)
        if asked.all:
            take_all(camera, places)
    too_large = [path.name for path in made if path.stat().st_size > LARGEST]
    print(f"{len(made)} pictures in {asked.into}; the largest has {max(one.stat().st_size for one in made):,} bytes")
    if too_large:
        print(f"larger than {LARGEST:,} bytes: {', '.join(too_large)}", file=sys.stderr)
    return 1 if too_large and not asked.all else 0


@contextmanager
def browser() -> Iterator[Any]:
    """Start the system's Chromium."""
    playwright = importlib.import_module("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        sys.exit("there is no Chromium; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def open_sites(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the host of an inspector over both conversations, and where their pages are."""
    with open_store(folder / "store.db", waits_for_disk=False) as store:
        session, _ = load_session()
        demo = play(session, 32_768, store)[-1].conversation
        story = make_story(store, now=time.time() - 600)
        while store.searcher.index_pending(2_000):
            pass
        settings = Settings(models={MODEL: ModelSettings(context_length=32_768, **PRICES)})
        for site in run_site(store, Watch(), settings):
            yield site.host, _places(store, story, demo)


def _places(store: Store, story: Story, demo: str) -> dict[str, str]:
    node = store.conversations.node_at(story.ident, story.said_turn)
    if node is None:
        raise LookupError("the message is not there")
    return {
        "list": "/inspector/",
        "search": "/inspector/search?q=port+number",
        "message": f"/inspector/m/{node.hex()}",
        "story": story.link,
        "dropped": f"{story.link}/compactions/1",
        "demo": f"/inspector/c/{demo}",
        "cost": "/inspector/cost?age=all",
    }


Prepare = Callable[[Any], None]


def shots(places: dict[str, str]) -> dict[str, tuple[str, Prepare | None]]:
    """Return the pictures that the documentation shows: the address of each, and what is done before it is taken."""

    def drawn(page: Any) -> None:
        page.locator("#chart canvas").wait_for()
        page.locator("#chart .u-over").hover(position={"x": 420, "y": 120})

    return {
        "now": (places["demo"], None),
        "search": (places["search"], None),
        "message": (places["message"], None),
        "compaction": (places["dropped"], None),
        "timeline": (f"{places['demo']}/timeline", drawn),
    }


def take_all(camera: Camera, places: dict[str, str]) -> None:
    """Take every view in every form."""
    demo, story = places["demo"], places["story"]
    views = {
        **{name: places[name] for name in ("list", "search", "message", "cost", "dropped")},
        **{tab: f"{demo}/{tab}" for tab in ("timeline", "transcript", "compactions", "tree")},
        "now": demo,
        "compaction": f"{demo}/compactions/3",
        "story": f"{story}/transcript",
    }
    for name, path in views.items():
        camera.take(f"all-{name}", path, full_page=True)
        camera.take(f"dark-{name}", path, color_scheme="dark")
        camera.take(f"phone-{name}", path, viewport=PHONE)
        camera.take(f"zh-{name}", path, locale="zh-CN")


class Camera:
    """Takes pictures of pages."""

    def __init__(self, chromium: Any, base: str, into: Path, made: list[Path]) -> None:
        self._chromium, self._base, self._into, self._made = chromium, base, into, made

    def take(
        self, name: str, path: str, prepare: Prepare | None = None, *, full_page: bool = False, **context: Any
    ) -> None:
        """Open an address in a browser of its own, and keep a picture of it."""
        opened = self._chromium.new_context(**{"viewport": SIZE, "locale": "en-GB", **context})
        try:
            page = opened.new_page()
            page.goto(self._base + path)
            page.wait_for_load_state("load")
            page.wait_for_timeout(300)  # until scripts have drawn
            if prepare is not None:
                prepare(page)
            file = self._into / f"{name}.png"
            page.screenshot(path=str(file), full_page=full_page, animations="disabled", caret="hide")
            self._made.append(file)
        finally:
            opened.close()


if __name__ == "__main__":
    sys.exit(main())
