"""What a person typed, read."""

from __future__ import annotations

import pytest

from everlong.errors import QueryError
from everlong.store.search.query import read_query, required_literals


def test_a_broken_pattern_is_named_in_the_error() -> None:
    with pytest.raises(QueryError, match=r"'a\(b' is no regular expression"):
        read_query("a(b", "regex")


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("foo.*bar", ("foo", "bar")),
        ("abcd?efg", ("abc", "efg")),
        ("abc+", ("abc",)),
        ("abc|def", ()),
        ("[abc]de", ()),
        ("(?x) a b c", ()),
        (r"\bword", ()),
    ],
)
def test_only_what_every_match_contains_is_taken_from_a_pattern(pattern: str, literals: tuple[str, ...]) -> None:
    assert required_literals(pattern) == literals
