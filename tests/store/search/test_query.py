"""What a person typed, read."""

from __future__ import annotations

import pytest

from everlong.errors import QueryError
from everlong.store.search.query import beginnings, read_query, required_literals
from everlong.store.search.text import folded, terms_of_word


def test_a_broken_pattern_is_named_in_the_error() -> None:
    with pytest.raises(QueryError, match=r"'a\(b' is no regular expression"):
        read_query("a(b", "regex")


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("foo.*bar", ("foo", "bar")),
        ("(?:abc|def)xyz", ("xyz",)),
        ("(abc)+d?efg", ("abc", "efg")),
        ("(abc)?def", ("def",)),
        ("abc|def", ()),
        ("[abc]de", ()),
        ("(?x) a b c", ()),
        ("(?=look)ahead", ("ahead",)),
    ],
)
def test_only_what_every_match_contains_is_taken_from_a_pattern(pattern: str, literals: tuple[str, ...]) -> None:
    assert required_literals(pattern) == literals


_FORMS_OF_WORDS = (  # noqa: SIM905 - words read better without their quotes
    "happy happily hoping hoped dying lies tied possibility ability operational relational readily skies sky news "
    "stopping generously traditional electricity formalize authorization usefulness bought went children uglier "
    "readFile HTTPServer 1,000 12,345,678 3rd Größe naïve responsible sensibly apologies crises tenancy rationally"
).split()


@pytest.mark.parametrize("word", _FORMS_OF_WORDS)
def test_a_word_has_a_piece_that_stands_for_each_of_its_terms(word: str) -> None:
    for term in terms_of_word(word.replace(",", "")):
        assert any(piece in folded(word) for piece in beginnings({term: 1.0}))
