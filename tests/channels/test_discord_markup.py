"""Answers in Discord's dialect of Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies

from everlong.channels.discord_markup import discord_pieces
from everlong.channels.markup import utf16_length
from tests.examples import examples


def written(markdown: str) -> str:
    (piece,) = discord_pieces(markdown, 2000)
    return piece


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** and *italic*", "**bold** and *italic*"),
        ("**bold *both* bold**", "**bold _both_ bold**"),
        ("***both***", "**_both_**"),
        ("~~gone~~", "~~gone~~"),
        ("`code`", "`code`"),
        ("`` a`b ``", "`` a`b ``"),
        ("# Title\n\ntext", "# Title\n\ntext"),
        ("##### Deep", "**Deep**"),
        ("> said\n> twice", "> said\n> twice"),
        ("- one\n- two\n  - inner", "- one\n- two\n  - inner"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("[words](https://example.org/a_b)", "[words](<https://example.org/a_b>)"),
        ("<https://example.org/a_b>", "https://example.org/a_b"),
        ("![a bird](https://example.org/b.png)", "[a bird](<https://example.org/b.png>)"),
        ("[mail](mailto:ada@example.org)", "mail (mailto:ada@example.org)"),
        ("see https://example.org/a_b_c now", "see https://example.org/a_b_c now"),
        ("```py\nx = 1\n```", "```py\nx = 1\n```"),
    ],
)
def test_markdown_keeps_its_look(markdown: str, shown: str) -> None:
    assert written(markdown) == shown


@settings(max_examples=examples(150), deadline=None)
@given(strategies.text(alphabet="ab _*~`|#>-[]()<@\n1.😀ש\\", max_size=300), strategies.integers(60, 200))
def test_no_message_is_too_long_and_no_letter_is_lost(text: str, limit: int) -> None:
    pieces = discord_pieces(text, limit)
    assert all(0 < utf16_length(piece) <= limit for piece in pieces)
    for letter in "😀ש":
        assert sum(piece.count(letter) for piece in pieces) >= text.count(letter) * (letter in "".join(pieces))
