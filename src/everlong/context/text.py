"""Functions that shorten texts: the beginning and the end stay, a mark tells the size of the middle.

Cuts fall at line breaks or spaces, not inside a word or a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from everlong.context.literals import CLEARED_RESULT
from everlong.model import Message, is_reasoning, part_text, parts_of, text_of, with_content

TextCount = Callable[[str], int]

_MARK = re.compile(r"\n\[… ([\d,]+) characters left out …\]\n")
_BREAK_REACH = 80
"""The characters within which a cut looks for a place between words."""


def shorten_text(text: str, max_tokens: int, count: TextCount, otherwise: str = CLEARED_RESULT) -> str:
    """Return a text without its middle so that it fits a number of tokens; ``otherwise`` if nothing fits."""
    if count(text) <= max_tokens:
        return text
    keep = len(text)
    for _ in range(12):
        shortened = without_middle(text, keep)
        tokens = count(shortened)
        if tokens <= max_tokens:
            return shortened
        keep = int(min(keep * 0.8, keep * max_tokens / tokens))
        if keep < 16:
            break
    return otherwise


def without_middle(text: str, keep: int) -> str:
    """Return about so many characters of a text, two thirds of them from its beginning."""
    if keep >= len(text):
        return text
    front = _break_before(text, keep * 2 // 3)
    back = _break_after(text, len(text) - (keep - keep * 2 // 3))
    earlier = sum(int(mark[1].replace(",", "")) - len(mark[0]) for mark in _MARK.finditer(text, front, back))
    left_out = back - front + earlier
    return f"{text[:front].rstrip()}{gap(left_out)}{text[back:].lstrip()}"


def gap(characters: int) -> str:
    """Return the mark that stands for so many characters."""
    return f"\n[… {characters:,} characters left out …]\n"


def _break_before(text: str, index: int) -> int:
    for separator in ("\n", " "):
        found = text.rfind(separator, max(0, index - _BREAK_REACH), index)
        if found >= 0:
            return found
    return _outside_word(text, index, -1)


def _break_after(text: str, index: int) -> int:
    for separator in ("\n", " "):
        found = text.find(separator, index, index + _BREAK_REACH)
        if found >= 0:
            return found + 1
    return _outside_word(text, index, 1)


def _outside_word(text: str, index: int, step: int) -> int:
    """Return the nearest place in a direction that is not inside a word, within reach."""
    place = index
    while 0 < place < len(text) and abs(place - index) < _BREAK_REACH:
        if not (text[place - 1].isalnum() and text[place].isalnum()):
            return place
        place += step
    return index


def shorten_message(message: Message, max_tokens: int, count: TextCount) -> Message:
    """Return a copy of a message whose text fits a number of tokens and whose images and files are only named."""
    parts = parts_of(message)
    # A signed thought must stay as it is, or the provider refuses the message.
    thinking = [part for part in parts if is_reasoning(part)]
    others = sum(not part_text(part) and part.get("type", "text") != "text" for part in parts) - len(thinking)
    text = text_of(message)
    if others:
        text = (
            f"{text}\n[{others} image{'s' if others > 1 else ''} or file{'s' if others > 1 else ''} left out]".strip()
        )
    otherwise = CLEARED_RESULT if message["role"] == "tool" else f"[… {len(text):,} characters left out …]"
    shortened = shorten_text(text, max_tokens, count, otherwise)
    if shortened == message.get("content"):
        return message
    return with_content(message, [*thinking, {"type": "text", "text": shortened}] if thinking else shortened)


_ENOUGH = 4
"""The multiple of the wanted length that is read; it is nearly always enough despite white space."""


def one_line(text: str) -> str:
    """Return the text with every run of white space as one space; the very same text if nothing changes."""
    line = " ".join(text.split())
    return text if line == text else line  # the same object saves memory where lines are kept


def beginning(text: str, length: int) -> str:
    """Return the first words of a text on one line, about ``length`` characters; read no more than needed."""
    if len(text) > _ENOUGH * length:
        line = one_line(text[: _ENOUGH * length])
        if len(line) > length:
            return clip(line, length)
    return clip(one_line(text), length)


def clip(text: str, length: int) -> str:
    """Return about ``length`` characters of a text, cut at a space if there is one, never inside a name."""
    if len(text) <= length:
        return text
    cut = text.rfind(" ", length // 2, length)
    if cut < 0:
        cut = length
        # No space near: step back out of the name that the cut would halve, unless it is all one name.
        while cut > length // 2 and text[cut - 1].isascii() and text[cut - 1].isalnum() and text[cut].isalnum():
            cut -= 1
        cut = cut if cut > length // 2 else length
    return text[:cut].rstrip(" ,;:") + " ..."


_SENTENCE_END = re.compile(
    r"(?i)(?<![.!?…])[.!?…]++[\"')\]*_”’»]*+(?=\s|$)|[。！？]+[」』”）]*"
    r"|,\s+(?=(?:(?:so|and|but) )?(?:(?:can|could|would|will) (?:you|we)|how (?:can|do|should|would)|what)\b)"
)
"""The end of a sentence; in English also the comma before a question."""
_ABBREVIATIONS = frozenset(
    ("e.g", "i.e", "etc", "vs", "dr", "mr", "mrs", "ms", "z.b", "d.h", "bzw", "ca", "usw", "т.е", "т.д")
)


def sentence_ends(text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
    """Yield the ends of the sentences in a part of a text: their last signs, or the comma before a question."""
    first = start
    for found in _SENTENCE_END.finditer(text, start, stop):
        word = text[first : found.start()].rpartition(" ")[2].lower().lstrip("(")
        if found[0] == "." and found.end() < stop and (word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha())):
            continue
        yield found
        first = found.end()


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text; each line ends one."""
    found: list[str] = []
    for line in text.splitlines():
        first = len(line) - len(line.lstrip("0123456789.)-*• \t"))  # the mark of a list
        ends = [0, *(end.end() for end in sentence_ends(line, first, len(line))), len(line)]
        found += [sentence for start, end in pairwise(ends) if (sentence := line[start:end].strip())]
    return found or [text]


_CLAUSE_END = re.compile(r"(?:[.!?;:。！？；：，、…)\]]|,(?! \d))(?:\s|$)|\s[–—-]\s|[。！？；：，、]|\n")


def clause_prefixes(text: str) -> list[str]:
    """Return the beginnings of a sentence that end where a clause does, the longest first; none ends in brackets."""
    ends = [found.start() for found in _CLAUSE_END.finditer(text) if found[0][0] not in ":.)]"]
    found = (text[:end] for end in reversed(ends))
    return [prefix for prefix in found if prefix.count("(") == prefix.count(")") and prefix.count('"') % 2 == 0]


def cut_at_clause(text: str, length: int) -> str:
    """Return at most about ``length`` characters of a text, cut at the end of a clause, else between words."""
    if len(text) <= length:
        return text
    # Some characters more, so that a comma inside a number or a list is not taken for the end of a clause.
    ends = [found.end() for found in _CLAUSE_END.finditer(text[: length + 2], length // 2) if found.end() <= length]
    return f"{text[: ends[-1]].rstrip(' ,;:-–—')} …" if ends else clip(text, length).replace(" ...", " …")


_FENCED = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)


def without_fences(text: str) -> str:
    """Return a text without its fenced code."""
    return _FENCED.sub("", text) if "```" in text or "~~~" in text else text


def unwrap_fence(text: str) -> str:
    """Return the inside of a text that is one fenced block as a whole; any other text as it is."""
    first, _, rest = text.strip().partition("\n")
    inside, _, last = rest.rpartition("\n")
    is_whole = re.fullmatch(r"```\w*+\s*+", first) and last.strip() == "```"
    return inside.strip("\n") if is_whole else text
