"""The public benchmark: adapters speak one protocol, the stub invents nothing, and the page has the stored figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench.public import page

# -- page --------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="results", scope="module")
def stored_results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.RESULTS.read_text("utf-8"))
    return found


def test_the_page_and_its_pictures_are_those_of_the_stored_results(results: dict[str, Any]) -> None:
    assert page.PAGE.read_text("utf-8") == page.render(results), "run: python -m bench.public --page"
    for name, picture in page.pictures(results).items():
        assert (page.PICTURES / name).read_text("utf-8") == picture, (
            f"{name} is stale; run: python -m bench.public --page"
        )
