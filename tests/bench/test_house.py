"""The picture of the house: that it is drawn from the imports of today, and how it leaves arrows out."""

from __future__ import annotations

from bench.house import PICTURE, draw, imports


def test_the_picture_in_the_documentation_shows_the_imports_of_today() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(imports()), "it is stale; run: python -m bench.house"
