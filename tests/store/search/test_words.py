"""Text as the index knows it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from everlong.store.search import text as text_module
from everlong.store.search.text import passage_terms, required_terms, terms_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Running", "runs"),
        ("went", "go"),
        ("children", "kid"),
        ("Café", "cafe"),
        ("Straße", "STRASSE"),
        ("ﬁle", "file"),
        ("ＡＢＣ", "abc"),
        ("photos", "picture"),
        ("22nd", "22"),
        ("1,400", "1400"),
        ("e\u0301tude", "étude"),
    ],
)
def test_forms_of_a_word_have_the_same_terms(one: str, other: str) -> None:
    assert terms_of(one) == terms_of(other) != []


@given(st.text())
def test_any_text_can_be_indexed_and_stored(text: str) -> None:
    whole = " ".join(passage_terms(text))
    whole.encode()
    assert "\0" not in whole


def test_a_text_with_no_place_to_cut_is_searched_for_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []

    class Counting:
        def search(self, text: str, start: int) -> None:
            searches.append(start)
            assert text

    monkeypatch.setattr(text_module, "_FORCED", Counting())
    spans = text_module.passage_spans("\x01ELF" * 5_000)
    assert len(searches) == 1
    assert spans[0] == (0, 20_000)
    assert {span.start for span in spans[1:]} == {20_000}


def test_a_long_text_is_not_copied_for_each_of_its_words() -> None:
    copied: list[int] = []

    class Copied(str):
        __slots__ = ()

        def __getitem__(self, place: object) -> str:
            found = str.__getitem__(self, place)  # type: ignore[index]
            copied.append(len(found))
            return found

    assert required_terms(Copied("a line of the file " * 500), is_whole=True) == ["line", "file"]
    assert sum(copied) < 6_000


def test_a_name_is_found_by_its_parts_and_a_very_long_word_is_not_taken_apart() -> None:
    assert terms_of("readHarbourFile") == [*terms_of("readharbourfile"), *terms_of("read harbour file")]
    assert len(terms_of("aB" * 10_000)) == 1  # a hostile message of megabytes would make as many terms
