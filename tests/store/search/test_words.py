"""Text as the index knows it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from everlong.store.search.snippets import passages
from everlong.store.search.text import PASSAGE, passage_spans, passage_terms, required_terms, terms_of


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


def test_a_text_with_no_place_to_cut_is_cut_anywhere() -> None:
    text = "\x01ELF" * 5_000
    assert "".join(text[span.start : span.stop] for span in passage_spans(text)) == text
    assert max(span.stop - span.start for span in passage_spans(text)) <= 2 * PASSAGE


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


LOG = "\n".join(f"step {number}: nothing to report from the quay" for number in range(500))


def test_of_a_long_text_the_lines_that_matter_come_with_their_neighbours() -> None:
    text = f"{LOG}\nsettings:\nharbour.port = 8437\nharbour.depth = 12\n{LOG}"
    assert passages(text, "which port does the harbour use?", 90) == (
        "…\nsettings:\nharbour.port = 8437\nharbour.depth = 12\n…"
    )


def test_a_long_line_is_cut_between_words_around_the_match() -> None:
    text = f"{'word ' * 2_000}the password of the vault is pelican {'word ' * 2_000}"
    found = passages(text, "vault", 1_000)
    assert "the password of the vault is pelican" in found
    assert len(found) <= 1_000


def test_paths_quotes_and_scripts_without_spaces_are_found() -> None:
    text = f"{LOG}\nsee src/quay/tide.py there\n{LOG}\n密码是鹈鹕\n{LOG}"
    assert "src/quay/tide.py" in passages(text, "src/quay/tide.py", 200)
    assert "密码是鹈鹕" in passages(text, "密码", 200)
    assert "密码是鹈鹕" in passages(text, '"是鹈鹕"', 200)


@given(st.text(st.sampled_from("ab port8 \n."), max_size=3_000), st.text(max_size=20), st.integers(50, 900))
def test_there_is_never_more_than_there_is_room_for(text: str, query: str, room: int) -> None:
    assert len(passages(text, query, room)) <= room + 4
