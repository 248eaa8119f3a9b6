"""The texts of the pages in every language, from ``texts.toml``: one place, so that a translation misses nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["LANGUAGES", "Translate", "choose_language", "load_texts", "translator"]

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
"""The languages, by the name that addresses and cookies use."""

Translate = Callable[..., str]


@cache
def load_texts() -> dict[str, dict[str, str]]:
    """Return all texts by ``section.name``, each in every language."""
    data = tomllib.loads((files("everlong.inspector") / "texts.toml").read_text(encoding="utf-8"))
    return {f"{section}.{name}": texts for section, entries in data.items() for name, texts in entries.items()}


def translator(language: str) -> Translate:
    """Return the function that gives a text in a language, with its names filled in."""
    texts = load_texts()

    def translate(key: str, **values: Any) -> str:
        return texts[key][language].format(**values)  # a value that is missing is an error, never `{name}` on a page

    return translate


def choose_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """Return the language for a reader: the one asked for, else the one kept, else the first that the browser wants."""
    for wanted in (asked, kept):
        if wanted is not None and wanted in LANGUAGES:
            return wanted
    ranked: list[tuple[float, int, str]] = []
    for place, item in enumerate(accepted.split(",")[:20]):
        name, _, quality = item.strip().partition(";q=")
        try:
            weight = float(quality) if quality else 1.0
        except ValueError:
            weight = 0.0
        ranked.append((-weight, place, name.strip().lower().partition("-")[0]))
    return next((name for _, _, name in sorted(ranked) if name in LANGUAGES), "en")
