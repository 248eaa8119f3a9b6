"""A fast estimate of the tokens of a text, in any script, without a vocabulary.

Tokenizers cut text at the edges of words, numbers and punctuation before they look anything up, so the number of such
edges says most of what a vocabulary would. They are counted for all positions of a text at once: each byte is mapped
to a byte of class bits, the whole becomes one large integer, shifting it by a byte lays every byte beside its
neighbour, and ``int.bit_count`` counts the hits. The weights are a linear fit against ``o200k_base``.

Knows bytes and weights only: no model, no message, no vocabulary. Models with another vocabulary differ by a factor
that `everlong.tokens.calibration` learns.
"""

from __future__ import annotations

import re
from operator import mul

from everlong.tokens._weights import ASCII_WEIGHTS, WIDE_WEIGHTS

__all__ = [
    "ASCII_FEATURES",
    "CHARS_PER_TOKEN",
    "PAIRS",
    "WIDE_FEATURES",
    "EstimatingCounter",
    "features",
    "rough_tokens",
]

CHARS_PER_TOKEN = 4
"""Characters per token of English prose, for rough counts."""


def rough_tokens(chars: int) -> int:
    """Return the rough number of tokens in so many characters, rounded up."""
    return -(-chars // CHARS_PER_TOKEN)


ASCII_FEATURES = (
    "runs",  # words, line breaks and gaps of two and more spaces that begin
    "numbers",  # runs of digits that begin
    "spaced_numbers",  # numbers after a space, which cannot take it in as words do
    "long_numbers",  # digits after the third of a number
    "punctuation",
    "long_punctuation",  # rulers: punctuation after the seventh of a run
    "closers",  # punctuation with a letter or a space after it
    "joins",  # letter or digit, one punctuation mark, letter; letter and digit: these often share a token
    "capitals",
    "long_words",  # letters after the seventh of a word
    "clusters",  # three consonants in a row: abbreviations and random letters
    "long_clusters",  # four
    "rare_letters",
    "escapes",  # colours of a terminal: short, but several tokens each
)
"""Features that are counted in every text, in the order of the weights."""

_SCRIPTS = (
    ("latin", range(0xC3, 0xCB)),
    ("greek", range(0xCD, 0xD0)),
    ("cyrillic", range(0xD0, 0xD5)),
    ("hebrew", range(0xD5, 0xD8)),
    ("arabic", range(0xD8, 0xE0)),
    ("indic", range(0xE0, 0xE1)),
    ("southeast", range(0xE1, 0xE2)),
    ("hangul", range(0xEA, 0xEE)),
    # Scripts below are written without spaces, or are no letters; where their runs begin does not matter.
    ("sign", range(0xC2, 0xC3)),
    ("mark", range(0xCB, 0xCD)),
    ("symbol", range(0xE2, 0xE3)),
    ("kana", range(0xE3, 0xE4)),
    ("ideograph", range(0xE4, 0xEA)),
    ("fullwidth", range(0xEE, 0xF0)),
    ("emoji", range(0xF0, 0xF8)),
)
_SPACED = 8  # how many of them, from the top, write words with spaces between

# Parts of a script that differ much from the rest of it, told by the two bytes they begin with.
PAIRS = (
    ("ukrainian", (b"\xd1\x94", b"\xd1\x96", b"\xd1\x98")),
    ("devanagari", (b"\xe0\xa4", b"\xe0\xa5")),
    ("tamil", (b"\xe0\xae", b"\xe0\xaf")),
    ("thai", (b"\xe0\xb8", b"\xe0\xb9")),
    ("vietnamese", (b"\xe1\xba", b"\xe1\xbb")),
    ("georgian", (b"\xe1\x83",)),
    ("typographic", (b"\xe2\x80",)),
    ("box", (b"\xe2\x94", b"\xe2\x95")),
    ("cjk_punctuation", (b"\xe3\x80",)),
    ("katakana", (b"\xe3\x83",)),
)

WIDE_FEATURES = (
    *(f"{name}_letters" for name, _ in _SCRIPTS),
    *(f"{name}_words" for name, _ in _SCRIPTS[:_SPACED]),
    *(name for name, _ in PAIRS),
    "long_wide_words",  # bytes after the 15th of an unbroken run in a script with spaces
    "letter_to_wide",
    "wide_to_letter",
)
"""Further features of text that is not ASCII, in the order of the weights."""

_LETTER, _UPPER, _DIGIT, _SPACE, _BREAK, _MARK, _CONSONANT, _RARE = (1 << bit for bit in range(8))
_WIDE = _RARE  # the last bit says "rare" of a letter and "not ASCII" of any other byte

_LONG_MARKS = ASCII_FEATURES.index("long_punctuation")
_LONG_WORDS = ASCII_FEATURES.index("long_words")
_CHUNK = 1 << 14  # bytes worked on at once: small enough for the processor's cache


def _class_of(byte: int) -> int:
    char = chr(byte)
    if byte > 0x7F:
        return _WIDE
    if char.isalpha():
        upper = _UPPER if char.isupper() else 0
        consonant = 0 if char in "aeiouyAEIOUY" else _CONSONANT
        return _LETTER | upper | consonant | (_RARE if char in "jkqvwxzJKQVWXZ" else 0)
    if char.isdigit():
        return _DIGIT
    if char in " \t":
        return _SPACE
    return _BREAK if char in "\r\n" else _MARK


def _everywhere(bits: int) -> int:
    return int.from_bytes(bytes([bits]) * _CHUNK, "little")


_CLASSES = bytes(map(_class_of, range(256)))
_LETTERS, _UPPERS, _DIGITS, _SPACES, _BREAKS, _MARKS, _CONSONANTS, _RARES = (_everywhere(1 << bit) for bit in range(8))
_WORDS_AND_BREAKS = _LETTERS | _BREAKS
_SPACED_BITS = tuple(_everywhere(1 << bit) for bit in range(_SPACED))

_SCRIPT_OF_LEAD = {lead: index for index, (_, leads) in enumerate(_SCRIPTS) for lead in leads}
_SCRIPT_CODES = bytes(_SCRIPT_OF_LEAD.get(byte, 0) for byte in range(256))
_NOT_A_LEAD = bytes(byte for byte in range(256) if byte not in _SCRIPT_OF_LEAD)
_SPACED_CLASSES = bytes(
    1 << _SCRIPT_OF_LEAD[byte] if _SCRIPT_OF_LEAD.get(byte, _SPACED) < _SPACED else 0 for byte in range(256)
)
_NO_SCRIPTS, _NO_WORDS = [0] * len(_SCRIPTS), [0] * _SPACED
_PAIR_SCRIPTS = tuple((name, _SCRIPT_OF_LEAD[pairs[0][0]], pairs) for name, pairs in PAIRS)
_REPEATED = re.compile(rb"([\x00-\x7f])\1{15,}", re.DOTALL)
_PER_REPEATED = {_DIGIT: 1 / 3, _SPACE: 1 / 64, _BREAK: 1 / 12, _MARK: 1 / 32}
_TOKENS_PER_REPEATED = [
    1 / 2 if byte < 0x09 else 1 / 12 if byte < 0x20 else _PER_REPEATED.get(_CLASSES[byte], 1 / 5) for byte in range(128)
]
_SPACE_RUN, _BREAK_RUN, _TAB_RUN = b" " * 256, b"\n" * 64, b"\t" * 64
"""Longer than any layout; finding one is cheaper than counting."""
_SHORTEST_BLANK = 64


class EstimatingCounter:
    """A counter that estimates in one pass over a text's bytes; rather too many tokens than too few."""

    name = "estimate"
    exact = False

    def count_text(self, text: str) -> int:
        """Return the estimated number of tokens of a text; 0 for the empty one, at least 1 for any other."""
        if not text:
            return 0
        repeated, ascii_counts, wide_counts = features(text)
        tokens: float = repeated + sum(map(mul, ASCII_WEIGHTS, ascii_counts))
        if wide_counts:
            tokens += sum(map(mul, WIDE_WEIGHTS, wide_counts))
        return max(1, round(tokens))


def features(text: str) -> tuple[float, list[int], list[int]]:
    """Return the tokens of repeated characters, and the counts of `ASCII_FEATURES` and of `WIDE_FEATURES`, if any."""
    ascii_only = text.isascii()
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= _CHUNK:
        return _chunk_features(data, ascii_only)
    repeated = 0.0
    ascii_counts = [0] * len(ASCII_FEATURES)
    wide_counts: list[int] = []
    for start in range(0, len(data), _CHUNK):
        more, ascii_more, wide_more = _chunk_features(data[start : start + _CHUNK], ascii_only)
        repeated += more
        ascii_counts = [a + b for a, b in zip(ascii_counts, ascii_more, strict=True)]
        if wide_more:
            wide_counts = [a + b for a, b in zip(wide_counts or [0] * len(wide_more), wide_more, strict=True)]
    return repeated, ascii_counts, wide_counts


def _chunk_features(data: bytes, ascii_only: bool) -> tuple[float, list[int], list[int]]:
    x = int.from_bytes(data.translate(_CLASSES), "little")
    counts = _ascii_counts(data, x)
    repeated = 0.0
    # Each test by itself: a loop over them costs as much as counting a short text.
    has_blanks = len(data) >= _SHORTEST_BLANK and (_SPACE_RUN in data or _BREAK_RUN in data or _TAB_RUN in data)
    if has_blanks or (counts[_LONG_MARKS] + counts[_LONG_WORDS]) * 4 > len(data):
        repeated, data = _collapse_repetitions(data)
        x = int.from_bytes(data.translate(_CLASSES), "little")
        counts = _ascii_counts(data, x)
        counts[_LONG_MARKS] = 0  # long punctuation without repetition is no ruler
    return repeated, counts, [] if ascii_only else _wide_counts(data, x)


def _collapse_repetitions(data: bytes) -> tuple[float, bytes]:
    """Return the tokens of long repetitions, which have far fewer than varied text, and the rest of the data."""
    tokens = 0.0

    def weigh(found: re.Match[bytes]) -> bytes:
        nonlocal tokens
        char = found[1]
        tokens += (len(found[0]) - 1) * _TOKENS_PER_REPEATED[char[0]]
        return char

    rest = _REPEATED.sub(weigh, data)
    return tokens, rest


def _ascii_counts(data: bytes, x: int) -> list[int]:
    """Return the counts of `ASCII_FEATURES`; ``x`` has the class bits of each byte."""
    # Earlier bytes are lower bits: ``x >> 8`` lays over each byte the one that follows. All classes go at once, as
    # each has a bit of its own: ``twos`` has a bit where a class goes on for one byte more, ``fours`` for three.
    following = x >> 8
    twos = x & following
    fours = twos & (twos >> 16)
    eights = fours & (fours >> 32)
    begins = x ^ (twos << 8)
    gaps = twos & _SPACES
    letters = x & _LETTERS
    marks = x & _MARKS
    mark = marks >> 5
    wordlike = letters | ((x & _DIGITS) >> 2)
    return [
        ((begins & _WORDS_AND_BREAKS) | (gaps ^ (gaps & (gaps << 8)))).bit_count(),
        (begins & _DIGITS).bit_count(),
        (((x & _SPACES) >> 1) & following).bit_count(),
        (fours & _DIGITS).bit_count(),
        marks.bit_count(),
        (eights & _MARKS).bit_count(),
        (((mark << 3) | mark) & following).bit_count(),
        (((wordlike << 8) & mark & following) | ((letters << 2) & following)).bit_count(),
        (x & _UPPERS).bit_count(),
        (eights & _LETTERS).bit_count(),
        (twos & (twos >> 8) & _CONSONANTS).bit_count(),
        (fours & _CONSONANTS).bit_count(),
        (x & (letters << 7)).bit_count(),
        data.count(b"\x1b"),
    ]


def _wide_counts(data: bytes, x: int) -> list[int]:
    """Return the counts of `WIDE_FEATURES`; ``x`` has the class bits of each byte."""
    codes = data.translate(_SCRIPT_CODES, _NOT_A_LEAD)
    by_script = [codes.count(index) for index in range(len(_SCRIPTS))] if codes else _NO_SCRIPTS
    letters = x & _LETTERS
    wide = ((x & _RARES) ^ (x & (letters << 7))) >> 7
    beside = [(letters & (wide >> 8)).bit_count(), (wide & (letters >> 8)).bit_count()]
    pairs = [sum(map(data.count, pairs)) if by_script[script] else 0 for _, script, pairs in _PAIR_SCRIPTS]
    if not any(by_script[:_SPACED]):  # a few signs or ideographs, which have no words to find
        return [*by_script, *_NO_WORDS, *pairs, 0, *beside]
    starts = wide ^ (wide & (wide << 8))
    spaced = int.from_bytes(data.translate(_SPACED_CLASSES), "little")
    word_starts = spaced & ((starts << 8) - starts)  # each start spread over all bits of its byte
    long_runs = wide
    for shift in (8, 16, 32, 64):
        long_runs &= long_runs >> shift
    long_runs &= (spaced >> 2) | (spaced >> 1) | spaced
    return [
        *by_script,
        *((word_starts & _SPACED_BITS[index]).bit_count() if by_script[index] else 0 for index in range(_SPACED)),
        *pairs,
        long_runs.bit_count(),
        *beside,
    ]
