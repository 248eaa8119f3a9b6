"""Languages of summaries: the phrases that mark sentences, and the labels that we write, in each language.

Headings are always in English; the text under them is in the language of the conversation. To add a language, add a
`Phrases`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from everlong.model import begins_with_wrapper

_HAN = re.compile(r"[\u3400-\u9fff]")
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True, slots=True)
class Phrases:
    """The patterns that mark each kind of sentence, in lower case, and the labels used in a summary."""

    constraint: re.Pattern[str]
    decision: re.Pattern[str]
    change_of_mind: re.Pattern[str]
    user_said: str
    wrote: str
    edited: str
    read: str
    ran: str
    failed: str
    closed: str
    """Label of something that the user took back."""
    put_off: str
    """Label of something that the user postponed; it begins with `closed`."""
    newest_request: str
    now: str
    """Label of what the user wants at the moment, beside the overall goal."""
    began: str
    """Label of what the user wanted first, if the work has moved on since."""
    notes: str
    """Heading of lines that an assistant said while it worked."""
    answer_to: str
    """Label of the request that an assistant's lines answered."""
    tool_result: str
    """Heading of lines of a result whose call is not known."""


ENGLISH = Phrases(
    constraint=re.compile(
        r"\b(?:never|always|must(?:n't)?|don't|do not|should(?:n't| not| always| never)?|only|prefer|avoid|make sure"
        r"|ensure|at (?:most|least)|no more than|keep|required?|not allowed|stick to|instead of|without)\b"
    ),
    decision=re.compile(
        r"\b(?:decid\w+|going with|go with|we(?:'ll| will) use|i(?:'ll| will) use|chose|choose|switch(?:ed|ing)? to"
        r"|because|root cause|turns out|the (?:problem|issue|cause|bug|fix) (?:is|was)|instead of|rather than)\b"
    ),
    change_of_mind=re.compile(
        r"\b(?:actually|instead|forget (?:about|the|that|it)|scrap|never ?mind|changed my mind|no longer"
        r"|drop (?:the|that|it)|on second thought|cancel (?:the|that)|undo|revert|any ?more|rather than)\b"
    ),
    user_said="User",
    wrote="Wrote",
    edited="Edited",
    read="Read",
    ran="Ran",
    failed="failed",
    closed="Closed by the user",
    put_off="Closed by the user for now",
    newest_request="Newest request",
    now="Now",
    began="Began with",
    notes="Assistant's notes:",
    answer_to="Answer to",
    tool_result="Tool result:",
)

CHINESE = Phrases(
    constraint=re.compile(
        r"必须|不要|不能|不得|务必|禁止|只能|只用|请用|始终|一律|统一|优先|最多|最少|至少|保持|别(?!的|人)|避免|确保|不许"
    ),
    decision=re.compile(r"决定|采用|选择|改为|改用|因为|由于|原因是|根本原因|问题在于|问题是|于是|所以"),
    change_of_mind=re.compile(r"算了|不用了|改成|换成|取消|改主意|不需要.*了|还是用|撤销|别做|先不"),
    user_said="用户",
    wrote="写入",
    edited="修改",
    read="读取",
    ran="运行",
    failed="失败",
    closed="用户已取消",
    put_off="用户已取消（暂缓）",
    newest_request="最新请求",
    now="目前",
    began="起初",
    notes="助手的说明:",
    answer_to="回答",
    tool_result="工具结果:",
)

ALL = (ENGLISH, CHINESE)
NOW_LABELS = tuple(f"- {phrases.now}: " for phrases in ALL)
"""Beginnings of the item that names the current wish, in any language; each compaction finds it anew."""


def phrases_for(texts: Iterable[str]) -> Phrases:
    """Return the phrases of the language in which most of these texts are written."""
    han = latin = 0
    for text in texts:
        sample = text[:2_000]
        han += len(_HAN.findall(sample))
        latin += len(_LATIN_WORD.findall(sample))
    # A Chinese character carries about as much as two thirds of an English word.
    return CHINESE if han * 2 > latin * 3 else ENGLISH


def marks(kind: str, sentence: str) -> bool:
    """Return whether a sentence is of a kind (``constraint``, ``decision``, …) in any language."""
    if getattr(ENGLISH, kind).search(sentence.lower()):
        return True
    return not sentence.isascii() and any(getattr(phrases, kind).search(sentence) for phrases in ALL[1:])


def is_closing(item: str) -> bool:
    """Return whether an item of a summary names something that the user took back, in any language."""
    return item.lstrip("-*• ").startswith(tuple(phrases.closed for phrases in ALL))


def changes_file(item: str) -> bool:
    """Return whether an item on a file says that it was written or edited, in any language."""
    note = item.partition(" — ")[2]
    return any(verb.lower() in note for phrases in ALL for verb in (phrases.wrote, phrases.edited))


def quotes_wrapper(item: str) -> bool:
    """Return whether an item's words begin with what a client wraps around a user's words."""
    return begins_with_wrapper(said_in(item).replace("&lt;", "<"))


def said_in(item: str) -> str:
    """Return the words of an item without the label that says whose or which they are."""
    return _USER_SAID.sub("", without_label(item).lstrip("-*• ")).strip('"“” ')


def newest_label(item: str) -> str:
    """Return the label that makes an item the newest request; empty if it has none."""
    match = _NEWEST.match(item.lstrip("-*• "))
    return match[0] if match else ""


def without_label(item: str) -> str:
    """Return an item without the label of the newest request."""
    plain = item.lstrip("-*• ")
    label = newest_label(item)
    return plain[len(label) :].strip().strip('"“”') if label else item


_USER_SAID = re.compile(rf"(?:{'|'.join(re.escape(phrases.user_said) for phrases in ALL)})\s*[:：]\s*")
_LABELS = "|".join(re.escape(phrases.newest_request) for phrases in ALL)
_NEWEST = re.compile(
    rf"\**(?:{_LABELS}|(?:latest|newest|most recent) (?:user )?request)\**\s*"
    r"(?:\([^)]*\)|（[^）]*）)?\**\s*[:：]\**\s*",
    re.IGNORECASE,
)

_AROUND = " \t\r-*•>"
"""Characters around a sentence that are no part of it."""
_WIDE_ENDS = "。！？；"
_AFTER_WIDE = re.compile(rf"\s(?<=[{_WIDE_ENDS}]\s)\s*")
# White space first: the search jumps from one to the next, and looks back only there.
_SENTENCE_END = re.compile(r"\s(?:(?<=[.!?]\s)\s*(?=[A-Z\"'`(\[*_#-]|\d)|(?<=\n)\n*)")


def sentences(text: str) -> list[str]:
    """Return a text cut into sentences and lines, without empty ones."""
    return list(_sentences(text))


@lru_cache(maxsize=4)
def _sentences(text: str) -> tuple[str, ...]:
    # Cached briefly, as several readers ask for the sentences of the same message.
    return tuple(
        [
            piece
            for raw in _SENTENCE_END.split(_with_wide_ends(text))
            if len(raw) > 1 and len(piece := raw.strip(_AROUND)) > 1
        ]
    )


def _with_wide_ends(text: str) -> str:
    """Return a text with a line break after each sentence of a script that puts no space there."""
    if not text.isascii():
        text = _AFTER_WIDE.sub("", text)
        for end in _WIDE_ENDS:
            text = text.replace(end, f"{end}\n")
    return text
