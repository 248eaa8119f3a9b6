"""The detection of rules in a person's sentences, in English and Chinese, by the shape of the sentence.

Code, quotations, questions, pasted documents and reports about others make no rule. The caller removes the text that a
client wrapped around the person's words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import ascii_letters
from typing import NamedTuple

from everlong.context.rules.chinese import chinese_rules
from everlong.context.rules.english import english_rules
from everlong.context.rules.prose import FoundRule, prose_sentences
from everlong.context.text import one_line

_LOOK_AT = 40_000
"""Characters of a message that are read."""
_END_LOOK_AT = 4_000
_FENCE = "```"
_LONGEST_READ = 4_000
"""Characters of a sentence that are searched for a rule."""
_SHORTEST_RULE = 6
_SHORTEST_CHINESE = 2
_QUOTED = re.compile(r"\"[^\"]{2,}\"|“[^”]*”|「[^」]*」|『[^』]*』|«[^»]*»")
_CODE_SIGN = re.compile(r"[{}=<>|;]")
_CODE_LIKE = re.compile(r"[{}=<>|]{2}|[;{]\s*$|\w\(\)?;")
"""Marks of code, searched in sentences with one of the signs."""
_CODE_START = re.compile(
    r"^\s*(?:import|def|class|const|let|var|return|assert|raise)\s+\w+\s*[=({:.]"
    r"|^\s*(?://|/\*|#\s)|^\S+Error\b|^\[?\d{4}-\d\d-\d\d[T ]|^(?:WARN|ERROR|INFO|DEBUG)\b"
)
_LETTERS_IN_PROSE = 0.5
_LONGEST_NAME = 12
_HAN = re.compile(r"[\u3400-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")
_ASCII_LETTERS = ascii_letters.encode()


class Sentence(NamedTuple):
    """A sentence of a person's message, and the rules in it."""

    text: str
    rules: tuple[FoundRule, ...]


def found_rules(text: str, *, of_project: bool = False) -> list[FoundRule]:
    """Return the rules in a person's message or a project's instructions, in order, each once."""
    return list(dict.fromkeys(rule for sentence in read_sentences(text, of_project) for rule in sentence.rules))


@lru_cache(maxsize=1_024)
def read_sentences(text: str, of_project: bool = False) -> tuple[Sentence, ...]:
    """Return the sentences that a person wrote, each with the rules in it."""
    return tuple(
        Sentence(sentence, _rules_in(sentence[:_LONGEST_READ]))
        for sentence in prose_sentences(_readable_part(text), of_project=of_project)
    )


def _readable_part(text: str) -> str:
    """Return the part of a message that is read: of a very long one, its beginning and its end after pasted text."""
    if len(text) <= _LOOK_AT:
        return text
    start = len(text) - _END_LOOK_AT
    is_within_code = text.count(_FENCE, 0, start) % 2 == 1
    end = text[start:].partition(_FENCE if is_within_code else "\n\n")[2]
    begin = text[: text.rfind("\n", _LOOK_AT // 2, _LOOK_AT) if "\n" in text[_LOOK_AT // 2 : _LOOK_AT] else _LOOK_AT]
    closing = f"\n{_FENCE}" if begin.count(_FENCE) % 2 == 1 else ""
    return f"{begin}{closing}\n\n{end}"


def _rules_in(sentence: str) -> tuple[FoundRule, ...]:
    """Return the rules in a sentence; a long one may have a rule and a wish."""
    if _is_code(sentence) or _letters_in(sentence) < len(sentence) * _LETTERS_IN_PROSE:
        return ()
    bare = one_line(_QUOTED.sub(_without_long_quote, sentence))
    han = 0 if bare.isascii() else len(_HAN.findall(bare))
    if han and (han * 3 > _letters_in(bare) or _HAN.match(bare)):
        return tuple(chinese_rules(sentence, bare)) if han >= _SHORTEST_CHINESE else ()
    return tuple(english_rules(sentence, bare)) if len(bare) >= _SHORTEST_RULE and " " in bare else ()


def _is_code(sentence: str) -> bool:
    if _CODE_START.match(sentence):
        return True
    return _CODE_SIGN.search(sentence) is not None and _CODE_LIKE.search(sentence) is not None


def _letters_in(text: str) -> int:
    if text.isascii():
        return len(text) - len(text.encode().translate(None, _ASCII_LETTERS))
    return len(_LETTER.findall(text))


def _without_long_quote(quoted: re.Match[str]) -> str:
    """Return a quoted word or name as it is; longer quotes are someone else's words and left out."""
    return quoted[0] if " " not in quoted[0] and len(quoted[0]) < _LONGEST_NAME else " … "
