"""What installed packages offer by entry points: engines, listed from metadata."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from tests.plugins.making import ENGINE, engine_in
from tests.plugins.test_choosing import chosen

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one module, as pip leaves it behind."""
    site = tmp_path / "site"

    def put(name: str, code: str, **entries: str) -> None:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(code, encoding="utf-8")
        about = site / f"{name}-3.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.1\nSummary: About {name}.\n")
        lines = [f"[everlong.{group}]\n{entry}\n" for group, entry in entries.items()]
        (about / "entry_points.txt").write_text("".join(lines))
        invalidate_caches()

    monkeypatch.syspath_prepend(site)
    yield put
    for name in [one for one in sys.modules if one.startswith("pkg_")]:
        del sys.modules[name]


@pytest.mark.spec("2.2")
def test_engines_of_packages_are_found_after_folders(install: Install, home: Path) -> None:
    install("pkg_tide", ENGINE.format(name="tide"), engines="tide = pkg_tide:Engine")
    engine, said = chosen("tide")
    assert (engine.name, engine.context_length, said) == ("tide", 50_000, [])
    engine_in(home / "plugins" / "tide", name="nearer")
    assert chosen("tide")[0].name == "nearer"
