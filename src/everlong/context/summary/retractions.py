"""Retractions: sentences in which people take back or replace what they asked for, in English and Chinese.

Recognises phrases such as "forget the docs", "use Postgres instead", "not now". `closed_requests` finds the requests
that they close.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everlong.context.summary.language import sentences
from everlong.context.text import clip, one_line

_SAID_LENGTH = 200
_LOOK_AT = 12
"""Sentences read of each message: people begin with a change of mind."""
_LONGEST = 600
"""Characters read of each sentence."""


class Retraction(NamedTuple):
    """One thing given up."""

    what: str
    """The words that name it; empty for the latest request."""
    instead: str
    """The words that replace it; empty if nothing does."""
    soft: bool = False
    """True if the phrase is common, so that an earlier request must have every word of ``what``."""
    by_verb: str = ""
    """The verb, if only that tells what is replaced ("use Postgres instead")."""
    put_off: bool = False
    """True if it is only postponed ("do the docs first")."""


_FENCE = re.compile(r"```.*?(?:```|\Z)|^\s*>.*$", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"[\"“「『].*?[\"”」』]|`[^`]*`")

# -- English -----------------------------------------------------------------------------------------------------------

_TURN = r"on second thoughts?|actually|wait|hold on|hang on|no|nope|scratch that|sorry|hm+|oh|you know what"
_FILLER = (
    rf"(?:(?:{_TURN}|ok(?:ay)?|so|and|but|please|hey|um|uh|well|al(?:l )?right|yeah|yes|stop|then|now)\b[\s,.!:;—–-]*)*"
)
_POLITE = (
    r"(?:(?:let'?s|let us|we (?:can|should|could)|you (?:can|may|should)|i think we (?:can|should)"
    r"|i(?:'d| would)? (?:want|like) (?:you )?to|(?:can|could|would) you|please|just|simply)\s+)*"
)
_START = rf"(?:^|(?<=[,;:.!])\s+|\s[—–-]\s|\b(?:so|but|and)\s+){_FILLER}{_POLITE}"
_WHAT = r"(?P<what>[^,;:.!?—–()]*(?:\.\w[^,;:.!?—–()]*)*)"
_STRONG = re.compile(
    rf"{_START}(?:forget(?! to\b)(?: about)?|never ?mind(?: about)?|nvm|scrap|scratch|ditch|abandon"
    rf"|(?:i|we)(?:'ve| have)? (?:just )?changed (?:my|our) minds?(?: (?:about|on))?)\b{_WHAT}",
    re.IGNORECASE,
)
_SOFT = re.compile(
    rf"{_START}(?:(?P<booked>cancel)|drop(?![^,;:.!?]* here\b)|skip|shelve|leave out"
    rf"|(?:don'?t|do not) bother (?:with|about)"
    rf"|no need (?:for|to)"
    rf"|(?:i|we|you)? ?(?:don'?t|do not|no longer) (?:(?:need|want)(?! to\b)|use|add|build|write|implement|make|do)"
    rf"|stop (?:doing|working on|with|using|adding|building|writing))\b{_WHAT}",
    re.IGNORECASE,
)
_HOLD = re.compile(rf"{_START}(?:hold off (?:on|with)|postpone|put off|park|pause)\b{_WHAT}", re.IGNORECASE)
_INSTEAD_OF = re.compile(rf"\b(?:instead of|rather than|in place of)\b{_WHAT}", re.IGNORECASE)
_STOP = re.compile(
    rf"^(?:(?:{_TURN}|ok(?:ay)?|please|hey)\b[\s,.!]*)*stop\b(?:\s*$|\s*[,.!;:—–-]|\s+(?:it|that|this|everything"
    r"|right there|what you(?:'re| are) doing|for now|and)\b)",
    re.IGNORECASE,
)
_ANOTHER = re.compile(
    rf"^(?P<turn>{_FILLER}){_POLITE}(?P<verb>use|go with|switch(?: over)? to|take|try|do|work on|focus on"
    r"|look at|start with)\b(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TURNING = re.compile(r"\b(?:on second thoughts?|actually|wait|hold on|no|nope|sorry|you know what)\b", re.IGNORECASE)
_INSTEAD = re.compile(r"\binstead\b(?! of)|\brather\b(?! than)", re.IGNORECASE)
_MORE = re.compile(r"\b(?:also|too|as well|additionally|in addition|another)\b", re.IGNORECASE)
_LATER = re.compile(r"\b(?:first|for now|later|not now|not yet|for the moment)\b|先|暂|以后", re.IGNORECASE)
_DECLINES = re.compile(r"\bthanks?\b|\bthank you\b|谢谢|多谢", re.IGNORECASE)
_PRONOUN = re.compile(
    r"(?:all |about )*(?:it|that|this|them|those|these|everything|what i (?:just )?(?:said|asked|wrote)"
    r"|(?:(?:the|my|that|this|our) )?(?:(?:last|previous|earlier|old|whole|entire) )*"
    r"(?:one|thing|request|message|task|ask|idea|plan|part|question|instructions?|approach)s?)"
    r"(?: (?:then|please|for now|now|instead))*",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"\s+(?:instead|for now|any ?more|please|then|after all|entirely|completely|altogether|in favou?r of .*"
    r"|and (?:use|do|go|just|let|make|write|build|switch|start|focus|instead)\b.*)$",
    re.IGNORECASE,
)
_TELLING = re.compile(r"\b(?!(?:it|that|this|everything|whole|entire|all|my|our|the)\b)\w+", re.IGNORECASE)
_USING = {"use", "go with", "switch to", "switch over to", "take", "try"}

# -- Chinese -----------------------------------------------------------------------------------------------------------

_ZH_WHAT = r"(?P<what>[^，,。；;！!？?、了吧]*)"
_ZH_LAST = re.compile(
    r"(?<![打计预结换核估运推合划])算了(?!一下|一遍|一算|[\d一二三四五六七八九十两])|(?:我|我们)?改(?:变)?主意了"
    r"|(?:^|[，,。；;！!\s])(?:都|先|就|那)?(?:不用|不需要|不要|不做|别做|不弄|别弄)了"
    r"|(?:取消|撤回|撤销|忘掉)(?:吧|它|掉)?(?:这个|那个|之前的?|刚才的?|上一?个|上一?条)*"
    r"(?:任务|请求|要求|需求|指令|想法|计划)?(?=[，,。；;！!\s吧]|$)"
)
_ZH_STOP = re.compile(
    r"^(?:等等|等一下|好了|好|不)?[，,！!。\s]*(?:先)?(?:停|停一下|停下来?|停止|打住|暂停)(?=[，,。！!；;\s]|$)"
)
_ZH_NAMED = re.compile(
    rf"(?<![别要])忘(?:了|掉|记){_ZH_WHAT}吧|忘掉{_ZH_WHAT.replace('what', 'what2')}"
    rf"|(?:不用|不要|不需要|不做|不加|不写|别用|别做|别加|别写|别弄|取消){_ZH_WHAT.replace('what', 'what3')}"
    r"(?:了|吧|，|,|。|；|;|$)"
    rf"|(?:^|[，,。；;！!\s])(?P<what4>[^，,。；;！!？?、\s][^，,。；;！!？?、]*?)(?:就)?(?:不用|不需要|不要)(?:做|加|写|弄)?了"
    rf"|(?:而不是|而不用){_ZH_WHAT.replace('what', 'what5')}"
)
_ZH_HOLD = re.compile(rf"先(?:不要|不用|不|别)(?:做|加|写|弄|用|管)?{_ZH_WHAT}")
_ZH_ANOTHER = re.compile(
    r"(?:算了|不对|等等|不了|不|还是)[，,。！!\s]*(?:我们)?(?:还是)?(?P<verb>改成用?|换成用?|改用|换用|改为|用)(?P<rest>.*)",
    re.DOTALL,
)
_ZH_PRONOUN = re.compile(r"(?:这个|那个|它|这些|那些|刚才的?|之前的?|上面的?|的|任务|请求|要求|想法|计划)*")


_ENGLISH_TRIGGER = re.compile(
    r"\b(?:forget|never ?mind|nvm|scrap|scratch|ditch|abandon|changed|cancel|drop|skip|shelve|leave out|bother|no|nope"
    r"|don'?t|do not|stop|hold|postpone|put off|park|pause|instead|rather|in place of|second thoughts?|actually|wait"
    r"|sorry|you know what)\b"
)
_CHINESE_TRIGGER = re.compile("[算改忘不别取撤先停换打暂等还]")
"""Without one of these, no phrase of its language can match; most sentences have none."""


def find_retractions(text: str, found: Sequence[str]) -> tuple[Retraction, ...]:
    """Return everything that a message takes back, in order; ``found`` are the sentences of ``text``."""
    if "```" in text or ">" in text:
        found = sentences(_FENCE.sub("\n", text))
    told = [sentence for sentence in found[:_LOOK_AT] if not sentence.endswith(("?", "？"))]
    together = "\n".join(told).lower()
    if not (_ENGLISH_TRIGGER.search(together) or _CHINESE_TRIGGER.search(together)):
        return ()
    return tuple(dict.fromkeys(_read_sentences(told)))


def _read_sentences(told: Sequence[str]) -> Iterator[Retraction]:
    for place, sentence in enumerate(told):
        looked_at = sentence[:_LONGEST]
        is_english, is_chinese = _ENGLISH_TRIGGER.search(looked_at.lower()), _CHINESE_TRIGGER.search(looked_at)
        if not (is_english or is_chinese):
            continue
        bare = _QUOTED.sub(lambda match: match[0] if match[0].startswith("`") else " ", looked_at)
        following = " ".join(told[place + 1 : place + 3])
        if is_english:
            yield from _english(bare, following)
        if is_chinese:
            yield from _chinese(bare, following)


def _english(sentence: str, following: str) -> Iterator[Retraction]:
    put_off = bool(_LATER.search(sentence))
    stopped = _STOP.match(sentence)
    if stopped:
        yield from _latest_request(
            sentence[stopped.end() :], following, put_off=bool(_LATER.search(f"{sentence} {following}"))
        )
        return
    for pattern in (_STRONG, _SOFT, _HOLD):
        match = pattern.search(sentence)
        if match is not None:
            yield from _dropped(match, following, soft=pattern is not _STRONG, put_off=put_off or pattern is _HOLD)
            return
    replaced = _INSTEAD_OF.search(sentence)
    if replaced:
        what = _object(replaced["what"])
        if what and not _PRONOUN.fullmatch(what):
            yield Retraction(what, _clean(sentence[: replaced.start()]), soft=True)
        return
    yield from _replacement(sentence, put_off=put_off)


def _dropped(match: re.Match[str], following: str, *, soft: bool, put_off: bool) -> Iterator[Retraction]:
    """Yield something dropped by its name, or by a pronoun for the latest request."""
    what, rest = _object(match["what"]), _rest(match["what"], match.string[match.end("what") :])
    if match.groupdict().get("booked") and what and len(_TELLING.findall(what)) == 1:
        return  # "cancel the flight" is a task, not a retraction: one word does not name a request
    if what and not _PRONOUN.fullmatch(what):
        yield Retraction(what, _clean(rest) or _clean(following), soft=soft, put_off=put_off)
    elif what or not soft:
        yield from _latest_request(rest, following, put_off=put_off)


def _replacement(sentence: str, *, put_off: bool) -> Iterator[Retraction]:
    """Yield a replacement where only the verb tells what it replaces."""
    match = _ANOTHER.match(sentence)
    if match is None or _MORE.search(sentence):
        return
    is_instead = bool(_INSTEAD.search(match["rest"]))
    wanted = sentence[match.start("verb") :]
    if " ".join(match["verb"].lower().split()) in _USING:
        if is_instead or _TURNING.search(match["turn"]):
            yield Retraction("", _clean(wanted), by_verb="use")
    elif is_instead:
        yield from _latest_request(wanted, "", put_off=put_off)


def _chinese(sentence: str, following: str) -> Iterator[Retraction]:
    put_off = bool(_LATER.search(f"{sentence} {following}"))
    held = _ZH_HOLD.search(sentence)
    named = _ZH_NAMED.search(sentence)
    is_held = held is not None and named is not None and held.start() <= named.start() < held.end()
    if named and not is_held and not re.search(r"[别要]忘", sentence):
        what = next((value for value in named.groups() if value), "").strip()
        if what and not _ZH_PRONOUN.fullmatch(what):
            yield Retraction(what, _clean(sentence[named.end() :]) or _clean(following), soft=True)
            return
    if held and held["what"]:
        yield Retraction(held["what"], _clean(sentence[held.end() :]) or _clean(following), soft=True, put_off=True)
        return
    another = _ZH_ANOTHER.search(sentence)
    stopped = _ZH_STOP.match(sentence)
    last = stopped or _ZH_LAST.search(sentence)
    if last:
        yield from _latest_request(sentence[last.end() :], following, put_off=bool(stopped and put_off))
    elif another:
        yield Retraction("", _clean(another["verb"] + another["rest"]), by_verb="用")


def _latest_request(rest: str, following: str, *, put_off: bool) -> Iterator[Retraction]:
    """Yield the latest request as given up; thanks alone ("never mind, thanks") only decline an offer."""
    instead = _clean(rest) or _clean(following)
    if not _DECLINES.search(instead) or len(_DECLINES.sub("", instead).split()) > 2:
        yield Retraction("", instead, put_off=put_off)


def _object(words: str) -> str:
    """Return the name of a thing without the words around it."""
    named = _TAIL.sub("", one_line(words))
    while (shorter := _TAIL.sub("", named)) != named:
        named = shorter
    named = re.sub(
        r"^(?:about|with|on|for|the idea of|the plan to|my request (?:to|for)|to)\s+", "", named, flags=re.IGNORECASE
    )
    return re.sub(
        r"^(?:the|a|an|any|my|our|that|this|all|those|these)\s+(?=\S)", "", named, flags=re.IGNORECASE
    ).strip()


def _rest(what: str, after: str) -> str:
    """Return the words after the thing given up: the tail of its clause, and the rest of the sentence."""
    tail = _TAIL.search(one_line(what))
    return f"{tail[0].strip()} {after}" if tail and tail[0].split()[0].lower() in ("and", "in") else after


def _clean(words: str) -> str:
    said = one_line(words).strip(" ,;:.!—–-，。；：！、吧")
    said = re.sub(r"^(?:and|then|but|so|just|please|instead|now)\s+", "", said, flags=re.IGNORECASE)
    return clip(said, _SAID_LENGTH) if len(said) > 1 else ""
