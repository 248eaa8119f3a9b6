from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st

from everlong.channels.markup import discord_pieces, split_markdown, telegram_pieces, utf16_length, visible_text
from tests.channels.telegram_stand_in import read_html
from tests.examples import examples

ANSWER = """\
# Report

All **good**, see `log.txt` and [the page](https://example.org/?a=1&b=2).

- first
- second
  1. inner

```python
if a < b:
    print("&")
```

> quoted
"""
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"


def test_an_answer_becomes_html_that_telegram_knows() -> None:
    assert telegram_pieces(ANSWER, 4096) == [
        "<b>Report</b>\n\nAll <strong>good</strong>, see <code>log.txt</code> and "
        '<a href="https://example.org/?a=1&amp;b=2">the page</a>.\n\n• first\n• second\n   1. inner\n\n'
        '<pre><code class="language-python">if a &lt; b:\n    print(&quot;&amp;&quot;)\n</code></pre>\n\n'
        "<blockquote>quoted</blockquote>"
    ]


def test_discord_gets_markdown_as_it_stands() -> None:
    assert discord_pieces(ANSWER, 2000) == [ANSWER]


def test_links_that_telegram_would_not_open_are_written_out() -> None:
    assert telegram_pieces("see [the file](docs/a.md)", 4096) == ["see the file (docs/a.md)"]
    assert "<a" not in telegram_pieces("[x](javascript:alert(1))", 4096)[0]


def test_tables_stand_as_code() -> None:
    assert discord_pieces(f"See:\n\n{TABLE}\n\nDone.", 2000) == [f"See:\n\n```\n{TABLE}\n```\n\nDone."]
    assert discord_pieces(f"```\n{TABLE}\n```", 2000) == [f"```\n{TABLE}\n```"]


def test_code_that_is_cut_goes_on_as_code_in_the_same_language() -> None:
    code = "\n".join(f"print({number})" for number in range(40))
    pieces = discord_pieces(f"```py\n{code}\n```", 100)
    assert all(piece.startswith("```py\n") and piece.endswith("\n```") for piece in pieces)
    assert "\n".join(piece[6:-4] for piece in pieces) == code


def test_text_is_cut_after_a_paragraph_or_a_sentence() -> None:
    assert discord_pieces(f"{'a' * 60}\n\n{'b' * 60}", 100) == ["a" * 60, "b" * 60]
    assert discord_pieces(f"{'a' * 60}. {'b ' * 30}", 100)[0] == f"{'a' * 60}."


@pytest.mark.parametrize("text", ["[" * 20_000, "*a " * 10_000, ">" * 20_000, "- " * 5000, "|a" * 3000 + "\n|-\n|a"])
def test_hostile_text_is_shown_too(text: str) -> None:
    assert all(utf16_length(visible_text(piece)) <= 4096 for piece in telegram_pieces(text, 4096))


PARTS = [
    "# ",
    "**",
    "*",
    "`",
    "```\n",
    "```py\n",
    "- ",
    "1. ",
    "> ",
    "\n",
    "\n\n",
    "[a](http://b)",
    "| a | b |\n|-|-|\n",
]
WORDS = ["word ", "😀", "ש", "e\u0301", "&lt;", "<b>", "~~", "    ", "\\", "x" * 40, "。"]
MARKDOWN = st.lists(st.sampled_from([*PARTS, *WORDS]), max_size=120).map("".join)


@settings(max_examples=examples(300), deadline=None)
@given(MARKDOWN, st.sampled_from([40, 50, 300]))
def test_no_piece_is_longer_than_the_limit_or_invisible_and_no_letter_is_lost(markdown: str, limit: int) -> None:
    shown = [read_html(piece) for piece in telegram_pieces(markdown, limit)]
    written = discord_pieces(markdown, limit)
    assert all(0 < utf16_length(piece) <= limit and piece.strip() for piece in [*shown, *written])
    for pieces in (shown, written):
        assert len(re.findall("[wש😀]", "".join(pieces))) >= len(re.findall("[wש😀]", markdown))


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("> > hi", "<blockquote>hi</blockquote>"),
        ("> > hi\n>\n> there\n\nx", "<blockquote>hi\n\nthere</blockquote>\n\nx"),
        (">\n> >\n\nx", "x"),
        ("x\n\n> -\n", "x"),
    ],
)
def test_quotes_in_quotes_and_empty_ones_leave_no_tag_open(markdown: str, shown: str) -> None:
    assert telegram_pieces(markdown, 4096) == [shown]


@pytest.mark.parametrize("unit", ["hello world. ", " ", "x\n", "```\nx\n```\n\n", "```py\nx"])
def test_an_answer_of_many_pieces_takes_no_square_of_time(unit: str) -> None:
    assert len(split_markdown(unit * (4_000_000 // len(unit)), 2_000)) > 1_500
