"""Every text in every language, and no text outside of the catalogue."""

from __future__ import annotations

import re
from importlib.resources import files
from string import Formatter

import pytest

from everlong.inspector.rendering import LANGUAGES, choose_language, load_texts

TEMPLATES = {one.name: one.read_text(encoding="utf-8") for one in (files("everlong.inspector") / "templates").iterdir()}


def test_a_text_is_there_in_every_language_with_the_same_names() -> None:
    for key, texts in load_texts().items():
        assert texts.keys() == LANGUAGES.keys(), key
        assert all(text.strip() for text in texts.values()), key
        names = [{name for _, name, _, _ in Formatter().parse(text) if name is not None} for text in texts.values()]
        assert all(one == names[0] for one in names), key


def test_templates_have_no_words_of_their_own() -> None:
    """Words between tags come from the catalogue; names of formats and of the program may stand."""
    for name, text in TEMPLATES.items():
        bare = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}|<[^>]*>|&\w+;", " ", text, flags=re.DOTALL)
        words = set(re.findall(r"[A-Za-z]{2,}", bare)) - {"everlong", "HTML", "Markdown", "JSON", "JSONL", "Enter"}
        assert not words, f"{name}: {words}"


@pytest.mark.parametrize(
    ("asked", "kept", "accepted", "language"),
    [
        ("zh", "en", "en", "zh"),
        (None, "zh", "en", "zh"),
        ("xx", "yy", "zh-TW,en;q=0.5", "zh"),
        (None, None, "fr,zh;q=0.7,en;q=0.3", "zh"),
        (None, None, "", "en"),
        (None, None, ";q=,;q=x,," * 50, "en"),
    ],
)
def test_the_language_of_a_reader(asked: str | None, kept: str | None, accepted: str, language: str) -> None:
    assert choose_language(asked, kept, accepted) == language
