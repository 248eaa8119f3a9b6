from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from everlong.channels.markup import MarkupBlock, parse, split, utf16_length
from everlong.channels.telegram_markup import read_piece, write_pieces
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


def shown(markdown: str, limit: int = 4096) -> list[str]:
    return [read_piece(piece)[0] for piece in write_pieces(markdown, limit)]


def styles(markdown: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for piece in write_pieces(markdown, 4096):
        text, entities = read_piece(piece)
        units = text.encode("utf-16-le")
        for one in entities:
            words = units[2 * one.offset : 2 * (one.offset + one.length)].decode("utf-16-le")
            found.setdefault(one.type, []).append(words)
    return found


def test_an_answer_becomes_text_and_entities() -> None:
    assert shown(ANSWER) == [
        "Report\n\nAll good, see log.txt and the page.\n\n• first\n• second\n   1. inner\n\n"
        'if a < b:\n    print("&")\n\nquoted'
    ]
    assert styles(ANSWER) == {
        "bold": ["Report", "good"],
        "underline": ["Report"],
        "code": ["log.txt"],
        "text_link": ["the page"],
        "pre": ['if a < b:\n    print("&")'],
        "blockquote": ["quoted"],
    }


def test_links_that_telegram_would_not_open_are_written_out() -> None:
    assert shown("see [the file](docs/a.md)") == ["see the file (docs/a.md)"]
    assert "text_link" not in styles("[x](javascript:alert(1))")


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "*a " * 10_000, ">" * 20_000, "- " * 5000, "|a" * 3000 + "\n" + "|-" * 3000]
)
def test_hostile_text_is_shown_too(text: str) -> None:
    assert all(utf16_length(piece) <= 4096 for piece in shown(text))


MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# ",
            "**",
            "*",
            "`",
            "```\n",
            "- ",
            "1. ",
            "> ",
            "\n",
            "\n\n",
            "[a](http://b)",
            "| a | b |\n|-|-|\n",
            "word ",
            "😀",
            "ש",
            "e\u0301",
            "&lt;",
            "<b>",
            "~~",
            "    ",
        ]
    ),
    max_size=120,
).map("".join)


@settings(max_examples=examples(300), deadline=None)
@given(MARKDOWN, st.sampled_from([20, 50, 300]))
def test_no_piece_is_longer_than_the_limit_or_invisible(markdown: str, limit: int) -> None:
    for piece in write_pieces(markdown, limit):
        text, entities = read_piece(piece)
        assert 0 < utf16_length(text) <= limit
        assert text.strip()
        assert all(one.offset + one.length <= utf16_length(text) for one in entities)


@settings(max_examples=examples(200), deadline=None)
@given(MARKDOWN, st.integers(8, 200))
def test_splitting_loses_no_letter(markdown: str, limit: int) -> None:
    def letters(blocks: list[MarkupBlock]) -> str:
        return "".join("".join(block.text.split()) for block in blocks)

    blocks = parse(markdown)
    pieces = split(blocks, limit, lambda block: len(block.text))
    assert letters([block for piece in pieces for block in piece]) == letters(blocks)
