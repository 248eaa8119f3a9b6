"""The digest: what a summarizing model reads of a conversation, redacted and made harmless.

Spoken text is given whole, in pieces. A long tool output is reduced to its beginning and its end. Marks between pieces
carry a boundary that occurs nowhere in the material, so no message can close the transcript or pose as another turn or
as instructions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from everlong.context.text import TextCount, beginning, clip, gap, one_line, shorten_text, without_middle
from everlong.model import Message, calls_of, is_image, parts_of, read_message
from everlong.model.unseen import LINE_ENDS, UNSEEN
from everlong.redaction import redact

SPOKEN_TOKENS = 2_000
"""The most tokens of one piece."""
_RESULT_TOKENS = 600
"""Of the names that later turns take from outputs alone, .79 reach the model; with 400 it is .64, with 800 .84."""
_ARGUMENT_TOKENS = 300
_LEAST_RESULT = 60
_MOST_PROMPTS = 8
"""Results get less room, down to ``_LEAST_RESULT`` tokens each, where they would fill more prompts than this."""
_MARGIN = 300
"""Characters before a cut that tell whether the next word is a secret."""
_MARK_TOKENS = 14
"""The most tokens that the mark before a piece costs."""

_TAG = re.compile(
    r"<(?=\s*+(?:/\s*+)?(?:turn|transcript|previous_summary|summary|memory|draft|missing|template|instructions|system)\b)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\n[ \t>*-]*(?=#{1,6}[ \t])")
"""The place before a heading; it begins with a character that can be searched for at once."""
# Control words of chat templates, and the words that announce a summary of ours.
_SPECIAL = re.compile(r"<\|(?=\w)|(?<=\w)\|(?=>)")
_ANNOUNCING = re.compile(r"\[(?=CONTEXT (?:COMPACTION|SUMMARY))")
_ODD_LINE_ENDS = ("\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e")


class DigestPiece(NamedTuple):
    """A piece to read, with its label and its tokens."""

    label: str
    body: str
    tokens: int


def escaped(text: str) -> str:
    """Return text in which nothing can be mistaken for the prompt's own marks or headings."""
    text = without_marks(text)
    if "# " not in text and "#\t" not in text:
        return text
    escaped, found = _HEADING.subn(r"\g<0>\\", f"\n{text}")
    return escaped[1:] if found else text


def without_marks(text: str) -> str:
    """Return text without invisible characters, and with the prompt's tags and control words defused."""
    if not text.isascii():
        text = UNSEEN.sub("", LINE_ENDS.sub("\n", text))
    elif any(map(text.__contains__, _ODD_LINE_ENDS)):
        text = LINE_ENDS.sub("\n", text)
    return without_control_words(_TAG.sub("&lt;", text) if "<" in text else text)


def without_control_words(text: str) -> str:
    """Return text that cannot pose as the beginning of a turn or of a summary."""
    if "<|" in text:
        text = _SPECIAL.sub(lambda match: match[0][:-1], text)
    return _ANNOUNCING.sub("(", text) if "[CONTEXT" in text else text


def outgoing(text: str) -> str:
    """Return text as it may leave the process inside a prompt: without secrets, without marks."""
    return escaped(redact(text))


def boundary(material: Iterable[str]) -> str:
    """Return a token that is derived from the material and occurs nowhere in it."""
    texts = list(material)
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    while True:
        token = digest.hexdigest()[:8]
        if not any(token in text for text in texts):
            return token
        digest.update(b"\1")


def turn_pieces(turns: Sequence[Message], room: int, count: TextCount) -> Iterator[DigestPiece]:
    """Yield every turn in pieces of at most ``room`` tokens, none left out; results are digested."""
    results = sum(message["role"] == "tool" for message in turns)
    shown = max(_LEAST_RESULT, min(_RESULT_TOKENS, _MOST_PROMPTS * room // max(1, results)))
    ran: dict[str, str] = {}
    for message in turns:
        role, said = str(message["role"]), read_message(message).text
        images = sum(map(is_image, parts_of(message)))
        extras = [f"[{images} image(s)]"] if images else []
        tokens = count(said) + _MARK_TOKENS  # as it came: most texts were counted before
        for call in calls_of(message):
            arguments, name = outgoing(call.arguments), _label(call.name)
            is_short = len(arguments) <= _ARGUMENT_TOKENS
            given = arguments if is_short else shorten_text(arguments, _ARGUMENT_TOKENS, count)
            extras.append(f"[calls {name} with {given}]")
            tokens += min(count(call.arguments), _ARGUMENT_TOKENS) + _MARK_TOKENS
            ran[call.id] = f"{name} {beginning(arguments, 80)}"
        label = _label(role)
        if role == "tool":
            title = ran.pop(str(message.get("tool_call_id") or ""), "")
            text = escaped(redacted_ends(said, len(said) * shown // max(shown, tokens)))
            tokens = min(tokens, shown + 2 * _MARK_TOKENS)
            text = f"(result of {title})\n{text}" if title else text
        else:
            text = outgoing(said)
        whole, most = "\n".join(filter(None, [text, *extras])), min(room, SPOKEN_TOKENS)
        if whole and tokens <= most:
            yield DigestPiece(label, whole, tokens)
            continue
        for body in split(whole, most, count):
            yield DigestPiece(label, body, count(body) + _MARK_TOKENS)
            label = label if label.endswith("continued") else f"{label}, continued"


@lru_cache
def _label(word: str) -> str:
    """Return the name of a role or a tool, which may be anything, on one short line."""
    return clip(one_line(outgoing(word)), 60)


def redacted_ends(text: str, keep: int) -> str:
    """Return about so many characters of a text, without secrets; of a longer one its beginning and its end."""
    front, back = keep * 2 // 3, keep - keep * 2 // 3
    if keep + _MARGIN < len(text) and "PRIVATE KEY" not in text:  # the one secret that may have spaces in it
        first, last = text[:front].rsplit(None, 1), text[-back:].split(None, 1)
        if len(first) == len(last) == 2:  # no word is halved
            start, end = len(text) - len(last[1]), redact(last[1])
            if redact(text[max(0, start - _MARGIN) : start] + last[1]).endswith(end):  # no name of it is cut off
                return without_middle(f"{redact(first[0])}{gap(start - len(first[0]))}{end}", keep)
    return without_middle(redact(text), keep)


def split(text: str, room: int, count: TextCount) -> Iterator[str]:
    """Yield a text in pieces of at most ``room`` tokens, cut between lines or words, nothing left out.

    A piece has at least one character.
    """
    room = max(1, room)
    start = 0
    while start < len(text):
        size = min(len(text) - start, 8 * room)
        while size > 1 and (tokens := count(text[start : start + size])) > room:
            size = max(1, min(size * 9 // 10, size * room // tokens))
        cut = end = start + size
        if end < len(text):
            cut = max(text.rfind("\n", start + size // 2, end), text.rfind(" ", start + size * 3 // 4, end)) + 1 or end
        yield text[start:cut]
        start = cut


def pack(pieces: Iterable[DigestPiece], room: int) -> Iterator[list[DigestPiece]]:
    """Yield groups of neighbouring pieces, as many as fit ``room`` tokens."""
    part: list[DigestPiece] = []
    spent = 0
    for piece in pieces:
        if part and spent + piece.tokens > room:
            yield part
            part, spent = [], 0
        part.append(piece)
        spent += piece.tokens
    if part:
        yield part


def enclosed(name: str, pieces: Iterable[DigestPiece], token: str) -> str:
    """Return pieces between marks that carry the boundary."""
    inside = "\n".join(f"[{token} {piece.label}]\n{piece.body}" for piece in pieces)
    return f"<{name} {token}>\n{inside}\n</{name} {token}>"
