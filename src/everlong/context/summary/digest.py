"""The digest: what a summarizing model reads of a conversation, redacted and made harmless.

Spoken text is given whole, in pieces. A long tool output is reduced to its beginning, its end and the lines that
matter. Marks between pieces carry a boundary that occurs nowhere in the material, so no message can close the
transcript or pose as another turn or as instructions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from everlong.context.summary.actions import outcome_of
from everlong.context.summary.entities import KnownNames
from everlong.context.text import TextCount, clip, one_line, shorten_text
from everlong.model import Message, calls_of, is_image, parts_of, readable_text
from everlong.redaction import redact

SPOKEN_TOKENS = 2_000
"""The most tokens of one piece."""
_RESULT_TOKENS = 400
_ARGUMENT_TOKENS = 300
_KEY_LINE_SHARE = 0.35
_LOOK_AT = 24_000
_LONGEST_LINE = 200
_MOST_MISSES = 8
"""Lines that do not fit any more are looked at up to this number."""
_MARK_TOKENS = 14
"""The most tokens that the mark before a piece costs."""

_TAG = re.compile(
    r"<(?=\s*/?\s*(?:turn|transcript|previous_summary|summary|memory|draft|missing|template|instructions|system)\b)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\n[ \t>*-]*(?=#{1,6}[ \t])")
"""The place before a heading; it begins with a character that can be searched for at once."""
_LINE_ENDS = re.compile("\r\n?|[\u2028\u2029\x85\x0b\x0c\x1c-\x1e]")
# Zero-width characters, direction marks and tag characters: what a person cannot see, a model should not read.
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
# Control words of chat templates, and the words that announce a summary of ours.
_SPECIAL = re.compile(r"<\|(?=\w)|(?<=\w)\|(?=>)")
_ANNOUNCING = re.compile(r"\[(?=CONTEXT (?:COMPACTION|SUMMARY))")
_ODD_LINE_ENDS = ("\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e")
_TROUBLE_WORDS = ("error", "exception", "fail", "fatal", "warn", "denied", "refused", "not found", "assert")
_PASSED = re.compile(r"\bpassed\b")
_TROUBLE = re.compile(
    r"error|exception|fail|fatal|warn|denied|refused|not found|assert|\bpassed\b|错误|失败|异常", re.IGNORECASE
)


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
        text = _LINE_ENDS.sub("\n", _INVISIBLE.sub("", text))
    elif any(map(text.__contains__, _ODD_LINE_ENDS)):
        text = _LINE_ENDS.sub("\n", text)
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


class TurnPieces(NamedTuple):
    """A turn as a summarizing model reads it, and the title of each of its calls by the call's id."""

    pieces: tuple[DigestPiece, ...]
    ran: tuple[tuple[str, str], ...] = ()


def turn_pieces(turns: Sequence[Message], room: int, count: TextCount) -> Iterator[DigestPiece]:
    """Yield every turn in pieces of at most ``room`` tokens, none left out."""
    ran: dict[str, str] = {}
    for message in turns:
        title = ran.pop(str(message.get("tool_call_id") or ""), "") if message["role"] == "tool" else ""
        turn = read_turn(message, title, room, count)
        ran.update(turn.ran)
        yield from turn.pieces


def read_turn(message: Message, title: str, room: int, count: TextCount, names: KnownNames | None = None) -> TurnPieces:
    """Return a message in pieces of at most ``room`` tokens; ``title`` names the call that a result answers."""
    role = str(message["role"])
    text = outgoing(readable_text(message))
    images = sum(map(is_image, parts_of(message)))
    extras = [f"[{images} image(s)]"] if images else []
    ran: list[tuple[str, str]] = []
    for call in calls_of(message):
        arguments = outgoing(call.arguments)
        name = clip(one_line(outgoing(call.name)), 60)
        extras.append(f"[calls {name} with {shorten_text(arguments, _ARGUMENT_TOKENS, count)}]")
        ran.append((call.id, f"{name} {clip(one_line(arguments), 80)}"))
    label = clip(one_line(escaped(role)), 20)
    if role == "tool":
        told = _digest(text, count, names or KnownNames())
        text = f"(result of {title})\n{told}" if title else told
    pieces: list[DigestPiece] = []
    for body in split("\n".join(part for part in [text, *extras] if part), min(room, SPOKEN_TOKENS), count):
        pieces.append(DigestPiece(label, body, count(body) + _MARK_TOKENS))
        label = label if label.endswith("continued") else f"{label}, continued"
    return TurnPieces(tuple(pieces), tuple(ran))


def _digest(text: str, count: TextCount, names: KnownNames) -> str:
    """Return the beginning, the end and the lines that matter of a tool output."""
    if len(text) <= _RESULT_TOKENS or count(text) <= _RESULT_TOKENS:
        return text
    ends = shorten_text(text, int(_RESULT_TOKENS * (1 - _KEY_LINE_SHARE)), count)
    outcome = outcome_of(text)
    lines = [outcome.line] if outcome.line and outcome.line.removesuffix(" ...") not in ends else []
    spent, most = sum(map(count, lines)), int(_RESULT_TOKENS * _KEY_LINE_SHARE)
    misses = 0
    for line in _ranked(text, ends, names):
        tokens = count(line) + 1
        if spent + tokens <= most:
            lines.append(line)
            spent += tokens
        else:
            misses += 1
        if spent >= most * 0.9 or misses >= _MOST_MISSES:
            break
    return "\n".join([ends, *(["(lines from the part left out:)", *lines] if lines else [])])


def _ranked(text: str, ends: str, names: KnownNames) -> list[str]:
    """Return lines that the ends lack, by importance: those that tell of trouble, then those with the most names."""
    looked_at = text if len(text) <= _LOOK_AT else text[: _LOOK_AT // 2] + "\n" + text[-_LOOK_AT // 2 :]
    lines = [line.strip() for line in looked_at.splitlines() if len(line) > 3]
    if max(map(len, lines), default=0) > _LONGEST_LINE:
        lines = [clip(line, _LONGEST_LINE) for line in lines]
    whole = set(map(str.strip, ends.splitlines()))  # most of the lines that stand in the ends stand there as such
    lines = [line for line in dict.fromkeys(lines) if line not in whole and line not in ends]
    if not lines:
        return []
    troubled = _find_trouble(lines)
    worth = [
        3.0 * is_troubled + 40 * len(found) / (len(line) + 40)
        for line, is_troubled, found in zip(lines, troubled, names(lines), strict=True)
    ]
    return [lines[place] for place in sorted(range(len(lines)), key=worth.__getitem__, reverse=True)[:40]]


def _find_trouble(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether it tells of trouble."""
    together = "\n".join(lines)
    if not together.isascii():
        return [_TROUBLE.search(line) is not None for line in lines]
    # Plain words are found far faster than by the expression, which means the same.
    lowered = together.lower()
    words = [word for word in _TROUBLE_WORDS if word in lowered]
    has_passed = "passed" in lowered
    if not words and not has_passed:
        return [False] * len(lines)
    return [
        any(map(line.__contains__, words)) or (has_passed and _PASSED.search(line) is not None)
        for line in map(str.lower, lines)
    ]


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
