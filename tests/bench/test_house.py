"""The picture of the house: that it is drawn from the imports of today, and how it leaves arrows out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from bench.house import PICTURE, draw, imports, rows_of, shown_arrows

SMALL = {
    "cli": frozenset({"agent", "model"}),
    "agent": frozenset({"store", "model"}),
    "store": frozenset({"model"}),
    "model": frozenset[str](),
}


def test_the_picture_in_the_documentation_shows_the_imports_of_today() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(imports()), "it is stale; run: python -m bench.house"


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    assert shown_arrows(SMALL) == [("agent", "store"), ("cli", "agent"), ("store", "model")]


def test_each_package_stands_below_those_that_import_it() -> None:
    assert rows_of(SMALL) == [["cli"], ["agent"], ["store"], ["model"]]


def test_packages_that_import_each_other_are_named() -> None:
    with pytest.raises(ValueError, match="these packages import each other: agent, store"):
        rows_of(SMALL | {"store": frozenset({"agent", "model"}), "cli": frozenset({"model"})})


def test_the_title_of_a_box_lists_all_that_its_package_imports() -> None:
    titles = [element.text for element in ElementTree.fromstring(draw(SMALL)).iter() if element.tag.endswith("title")]  # noqa: S314 - our own
    assert "cli imports agent, model" in titles
    assert "model imports nothing of everlong" in titles
