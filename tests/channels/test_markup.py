from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from everlong.channels.markup import Block, parse, split
from everlong.channels.telegram_markup import read_piece, utf16_length, write_pieces

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


def test_entities_count_utf_16_units() -> None:
    assert styles("😀😀 **fett 😀**") == {"bold": ["fett 😀"]}


def test_html_in_an_answer_is_shown_as_it_stands() -> None:
    assert shown("<b>x</b> &amp;lt; <script>") == ["<b>x</b> &lt; <script>"]
    assert styles("<b>x</b>") == {}


def test_text_that_never_was_a_piece_loses_nothing() -> None:
    assert read_piece("a < b & c > d <x> </b>")[0] == "a < b & c > d <x> "


def test_links_that_telegram_would_not_open_are_written_out() -> None:
    assert shown("see [the file](docs/a.md)") == ["see the file (docs/a.md)"]
    assert "text_link" not in styles("[x](javascript:alert(1))")


def test_small_tables_are_aligned_and_wide_ones_become_lists() -> None:
    assert shown("| a | b |\n|---|---|\n| 漢字 | 2 |") == ["a     b\n────  ─\n漢字  2"]
    wide = f"| name | about |\n|---|---|\n| x | {'long ' * 20}|"
    assert shown(wide)[0].startswith("• x\nabout: long long")


def test_code_that_is_still_being_written_is_code() -> None:
    assert styles("so:\n\n```sh\nls -l") == {"pre": ["ls -l"]}


def test_nothing_to_see_is_no_message() -> None:
    assert write_pieces("", 4096) == write_pieces(" \n\u200b\n", 4096) == write_pieces("\x00\x01", 4096) == []


def test_halves_of_surrogate_pairs_do_not_go_out() -> None:
    assert shown("a\ud83d b") == ["a� b"]


def test_a_message_ends_between_paragraphs() -> None:
    pieces = shown("\n\n".join(["word " * 200] * 10))
    assert [len(piece) for piece in pieces] == [3 * 999 + 2 * 2 + 999 + 2] * 2 + [1999 + 1]
    assert all(piece.startswith("word") and piece.endswith("word") for piece in pieces)


def test_a_heading_goes_with_what_follows() -> None:
    pieces = shown(f"{'a' * 3000}\n\n## Next\n\n{'b' * 3000}")
    assert [piece[:6] for piece in pieces] == ["aaaaaa", "Next\n\n"]


def test_long_code_is_opened_again_in_the_same_language() -> None:
    code = "\n".join(f"line {number} <&> 😀" for number in range(1000))
    pieces = write_pieces(f"```python\n{code}\n```", 4096)
    assert len(pieces) > 3
    assert all(piece.startswith('<pre lang="python">') and piece.endswith("</pre>") for piece in pieces)
    assert "\n".join(read_piece(piece)[0] for piece in pieces) == code


def test_long_paragraphs_end_after_a_sentence() -> None:
    text = " ".join(f"This is sentence number {number}." for number in range(400))
    pieces = shown(text)
    assert all(piece.endswith(".") for piece in pieces)
    assert " ".join(pieces) == text


def test_arabic_and_hebrew_end_after_words_and_stay_as_they_are() -> None:
    text = " ".join(["שלום", "مرحبا"] * 900)
    pieces = shown(text)
    assert len(pieces) == 3
    assert " ".join(pieces) == text


def test_a_family_is_not_torn_apart() -> None:
    family = "👨‍👩‍👧‍👦"
    for piece in shown(family * 900):
        assert piece.replace(family, "") == ""


def test_exactly_the_limit_is_one_message() -> None:
    assert [len(piece) for piece in shown("x" * 4096)] == [4096]
    assert [len(piece) for piece in shown("x" * 4097)] == [4096, 1]
    assert [utf16_length(piece) for piece in shown("😀" * 2049)] == [4096, 2]


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "*a " * 10_000, ">" * 20_000, "- " * 5000, "|a" * 3000 + "\n" + "|-" * 3000]
)
def test_hostile_text_is_shown_too(text: str) -> None:
    assert all(utf16_length(piece) <= 4096 for piece in shown(text))


def test_a_novel_is_split_too() -> None:
    text = "\n\n".join(f"Paragraph {number} {'of words ' * 40}".strip() for number in range(1000))
    assert "\n\n".join(shown(text)) == text


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


@settings(max_examples=300, deadline=None)
@given(MARKDOWN, st.sampled_from([20, 50, 300]))
def test_no_piece_is_longer_than_the_limit_or_invisible(markdown: str, limit: int) -> None:
    for piece in write_pieces(markdown, limit):
        text, entities = read_piece(piece)
        assert 0 < utf16_length(text) <= limit
        assert text.strip()
        assert all(one.offset + one.length <= utf16_length(text) for one in entities)


@settings(max_examples=200, deadline=None)
@given(MARKDOWN, st.integers(8, 200))
def test_splitting_loses_no_letter(markdown: str, limit: int) -> None:
    def letters(blocks: list[Block]) -> str:
        return "".join("".join(block.text.split()) for block in blocks)

    blocks = parse(markdown)
    pieces = split(blocks, limit, lambda block: len(block.text))
    assert letters([block for piece in pieces for block in piece]) == letters(blocks)
