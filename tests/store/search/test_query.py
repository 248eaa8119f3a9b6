"""What a person typed, read."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

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


@given(st.from_regex(r"(ab|cd+|[ef]{2}|ghi?|\(jk\)){1,6}", fullmatch=True), st.data())
def test_a_match_contains_the_literals_of_its_pattern(pattern: str, data: st.DataObject) -> None:
    pattern = pattern.replace("(jk)", "(jkl)?")
    match = data.draw(st.from_regex(re.compile(pattern), fullmatch=True))
    assert all(literal in match for literal in required_literals(pattern))


ENDLESS = ["a" * 30_000, "漢字" * 15_000, "_" * 30_000, "a_" * 15_000, "aB" * 15_000, "a." * 15_000, '"a' * 15_000]

READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
from everlong.store.search.query import read_query
for line in sys.stdin.read().splitlines():
    read_query(line)
print("read")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the time of a process cannot be limited there")
def test_words_without_an_end_are_read_at_once() -> None:
    """Each took ten seconds and more: the square of its length."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", READ]
    ran = subprocess.run(command, input="\n".join(ENDLESS), capture_output=True, text=True, check=False, env=env)
    assert (ran.returncode, ran.stdout) == (0, "read\n")


_FORMS_OF_WORDS = (  # noqa: SIM905 - words read better without their quotes
    "happy happily hoping hoped dying lies tied possibility ability operational relational readily skies sky news "
    "stopping generously traditional electricity formalize authorization usefulness bought went children uglier "
    "readFile HTTPServer 1,000 12,345,678 3rd Größe naïve responsible sensibly apologies crises tenancy rationally"
).split()


@pytest.mark.parametrize("word", _FORMS_OF_WORDS)
def test_a_word_has_a_piece_that_stands_for_each_of_its_terms(word: str) -> None:
    for term in terms_of_word(word.replace(",", "")):
        assert any(piece in folded(word) for piece in beginnings({term: 1.0}))
