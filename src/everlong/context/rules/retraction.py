"""The end of standing rules: taken back by name, or replaced by a rule that contradicts them.

Rules are compared by the words that carry meaning. Prohibitions add up ("never touch legacy/", "never touch vendor/"),
and so do tools ("use pnpm", "use ruff"). A rule replaces another if both fill the same slot: the opposite of the same
words, another number of the same thing, another language or unit, or a turn of phrase that says so ("actually").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from everlong.context.text import one_line

_WORD = re.compile(r"[\w$€£%][\w.+#/'’$€£%-]*", re.UNICODE)
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EMPTY_WORDS = _words(
    """
    a an the this that these those it its of to in on at by for from with and or but so as is are be was were
    been am i me my we us our you your please always never ever not don't dont do does no only just also now
    then again anymore more any all every each when whenever if must should shall may can could would will
    have has need needs want like make sure here point future forward going moving instead stop avoid keep
    use using used rule rules instruction instructions about said told thing things ok okay fine actually
    really still rest session until unless otherwise say says there than rather over into out up time times
    go let lets let's i'd i'm i'll we're you're longer anything everything something nothing after before
    first one ones way same new old under below exceed exceeds above most least max maximum minimum limit
    limited limits fewer less stay within own
    """
)
_EMPTY_HAN = _words(
    """
    以后 今后 从现 现在 在开 开始 不要 不能 必须 禁止 一律 永远 请用 每次 所有 都要 务必 一定 统一 始终 以前
    之前 再用 用了 可以 不用 不必 不需 需要 规则 要求 取消 的要 的规 了吧 请记 记住 绝对 对不 不得 不许 不准
    只能 从今 往后 起请 始请 请一 后请 后不 后都 还是
    """
)
_ACTIONS = _words(
    """
    touch edit modify modifi modifying chang change alter run execut write writ answer add delet remov creat
    commit updat read call send put open alon fil code leav
    """
)
"""Verbs of many rules, which do not tell rules apart."""
_SYNONYMS = {
    "reply": "answer", "respond": "answer", "speak": "answer", "talk": "answer",
    "response": "answer", "replies": "answer",
    "edit": "touch", "modify": "touch", "change": "touch", "alter": "touch",
    "forbidden": "", "allowed": "", "prefer": "", "indentation": "indent", "comments": "comment",
}  # fmt: skip
_SLOTS = tuple(
    frozenset(words.split())
    for words in (
        "english german french spanish italian portuguese dutch polish russian chinese japanese korean turkish"
        " arabic swedish danish"
        " czech greek british american 中文 英文 英语 德语 法语 日语 西班牙语 韩语 俄语",
        "tab tabs space spaces 空格",
        "metric imperial",
        "celsius fahrenheit kelvin",
        "upper lower uppercase lowercase",
        "snake_case camelcase pascalcase kebab-case snake camel pascal kebab 驼峰 下划线",
        "formal informal casual",
        "short long brief detailed concise verbose",
        "utc local",
        "npm pnpm yarn bun",
        "single double",
    )
)
_HAN_NAMES = tuple(sorted(name for slot in _SLOTS for name in slot if not name.isascii()))
_NUMBER = re.compile(
    r"[$€£]?\d[\d.,]*\s?[a-z%$€£]*|[一二两三四五六七八九十百千]+(?=[句个字行条秒块天])|(?:one|two|three|four|five|six|seven|eight"
    r"|nine|ten|twelve|twenty|thirty|fifty|hundred)",
    re.IGNORECASE,
)
_NEGATIVE = re.compile(
    r"\b(?:never|don['’]?t|do not|not|no|avoid|stop|without|cannot|can['’]t|mustn['’]t|shouldn['’]t"
    r"|off[- ]limits|forbidden|refrain)\b|不要|别(?!的|人)|不能|不得|不准|不许|禁止|严禁|绝不|勿|不可以",
    re.IGNORECASE,
)
_TURNS = re.compile(
    r"\b(?:actually|instead(?! of)|on second thoughts?|change of (?:plan|mind)|changed my mind|scratch that"
    r"|correction|no longer|i was wrong|new rule|as of now)\b|改成|改用|换成|改为|还是用|更正",
    re.IGNORECASE,
)
_INSTEAD_OF = re.compile(
    r"(?:\binstead of\b|\brather than\b|,\s*not\b|\bno longer\b|\band not\b|而不是|不要再?用|不再用|别再?用)"
    r"\s*(?P<old>[^,.;:，。；]+)",
    re.IGNORECASE,
)

_LIFTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:forget|drop|ignore|scrap|disregard|remove|lift|cancel|undo|revoke|scratch|withdraw|take back"
        r"|never ?mind|abandon|skip)\b(?: about)?\s+(?:(?:the|my|that|this|our|your|what i (?:said|told you"
        r"|asked)|all)\s*)*(?:(?:earlier|old|previous|last|standing)\s+)?(?P<named>(?:rules?|instructions?"
        r"|requirements?|constraints?|requests?|restrictions?|limits?|preferences?)?)\s*(?:about|on|for|that"
        r"|to|with|regarding|of|concerning)?\s*(?P<what>.*)",
        r"\byou (?:do not|don['’]?t|no longer) (?:have|need) to (?P<what>.+?)(?: any ?(?:more|longer))?[.!]*$",
        r"\b(?:no need|not necessary|no longer necessary|isn['’]t necessary) to (?P<what>.+?)(?: any ?(?:more"
        r"|longer))?[.!]*$",
        r"\byou (?:can|may|are allowed to|are free to) (?P<again>now "
        r"|again )?(?:stop )?(?P<what>.+?)(?P<after>\s(?:again|now|after all|from now on|if you (?:want|like)"
        r"|any ?more))[.!]*$",
        r"\byou (?:can|may) (?:now|again) (?P<what>.+?)[.!]*$",
        r"\byou (?:can|may) stop (?P<what>.+?)[.!]*$",
        r"^(?:(?:ok|okay|so|and|actually|well)[, ]+)*(?P<what>.+?) (?:is|are) (?:fine|ok|okay|allowed"
        r"|permitted|no longer (?:needed|required|necessary|forbidden|off[- ]limits)|not (?:needed|required"
        r"|necessary) any ?more)(?: (?:now|again|after all))?[.!]*$",
        r"\b(?:the |my |that )?(?:rule|instruction|restriction|requirement|limit|preference) (?:about|on|for"
        r"|that|to|regarding|of) (?P<what>.+?) (?:no longer (?:applies|holds|counts)|is (?:off|gone|lifted"
        r"|cancelled|void|over)|does(?:n['’]t| not) (?:apply|hold|count))",
        r"\bstop (?P<what>\w+ing\b.*)",
        r"\bi take back (?:what i said about |the rule (?:about|on) |that )?(?P<what>.+)",
    )
)
_LIFTING_WORDS = (
    (
        *("forget", "drop", "ignore", "scrap", "disregard", "remove", "lift", "cancel", "undo", "revoke", "scratch"),
        *("withdraw", "take back", "never mind", "nevermind", "abandon", "skip"),
    ),
    ("you do", "you no longer"),
    ("no need", "necessary"),
    ("you can", "you may", "you are"),
    ("you can", "you may"),
    ("you can stop", "you may stop"),
    (" is ", " are "),
    ("applies", "apply", "hold", "count", " is "),
    ("stop ",),
    ("i take back",),
)
"""Plain words, one of which each expression of `_LIFTS` has; searching for them first is much faster."""
_LIFTS_ZH = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:不用|不必|不需要|无需)再?(?P<what>[^，。；]+?)了",
        r"(?:现在)?(?:又)?可以(?P<what>[^，。；]+?)了",
        r"(?:取消|撤销|撤回|作废|忘掉|忘了|不用管|别管|收回)(?:之前|刚才|我)?(?:说过?的?|关于)?(?P<what>[^，。；]*?)(?:的)?(?:规则|要求|规定|限制|约定|话)",
        # Anchored at the beginning of a clause, where such a match begins anyway, so that it is searched once.
        r"(?<![^，。；])(?P<what>[^，。；]+?)(?:的|这条)?(?:规则|要求|规定|限制)(?:作废|取消|不算|不再有效|解除)",
        r"之前说的?(?P<what>[^，。；]+?)(?:不算了?|作废|取消)",
    )
)
_PRONOUN = re.compile(
    r"^(?:it|that|this|them|those|these|that one|the last one|the previous one|last one|one|which)?\s*(?:then"
    r"|please|now|again|anymore|after all)?[.!\s]*$",
    re.IGNORECASE,
)
_LOOK_AT = 2_000
"""Characters of a sentence that are searched for words of retraction."""
_MOST_REMEMBERED = 4_096
_ENOUGH = 0.6
_SAME_WORDS = 0.7
_FEW = 2
_NEARLY_ALL = 0.8
_WISHING = _words(
    "prefer preferr preferenc lik lov valu favor favour wish really much would rather strongly remember not know"
)
"""Words that only express the wish, not its object."""


@lru_cache(maxsize=_MOST_REMEMBERED)
def meaning(text: str) -> frozenset[str]:
    """Return the words of a rule that carry its meaning: stems, names, numbers, pairs of Han characters."""
    words: set[str] = set()
    for found in _WORD.findall(text.lower().replace("’", "'")):
        if _HAN_RUN.search(found):
            found = _HAN_RUN.sub(" ", found)  # noqa: PLW2901 - the Latin rest of it
        for word in found.split():
            stem = _stem(word.strip(".'-/"))
            stem = _SYNONYMS.get(stem, stem)
            if stem and stem not in _EMPTY_WORDS and word not in _EMPTY_WORDS:
                words.add(stem)
    if "回答" in text or "回复" in text:
        words.add("answer")
    for run in _HAN_RUN.findall(text):
        pairs = (run[at : at + 2] for at in range(len(run) - 1))
        words.update(pair for pair in pairs if pair not in _EMPTY_HAN)
    return frozenset(words)


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss") and word.isalpha():
            base = word[: -len(ending)]
            base = f"{base}y" if ending == "ies" else base
            return (
                base[:-1]
                if len(base) > 3 and base[-1] == base[-2]
                else base.rstrip("e")
                if ending in ("ing", "ed", "es")
                else base
            )
    return word[:-1] if word.endswith("e") and len(word) > 4 and word.isalpha() else word


def lifted_by(sentence: str, rules: Sequence[str]) -> list[int]:
    """Return the indices of the rules that a sentence takes back; for "forget that rule", the newest."""
    if not rules:
        return []
    for named in _retracted_things(sentence):
        if named.is_newest:
            return [len(rules) - 1]
        found = _best_matches(meaning(named.what), rules, is_named=named.is_rule)
        if found:
            return found
    return []


class _Named(NamedTuple):
    """A thing that a sentence may take back."""

    what: str
    is_rule: bool
    """True if the sentence calls it a rule."""
    is_newest: bool
    """True if the sentence only points at it; then it is the newest rule."""


@lru_cache(maxsize=_MOST_REMEMBERED)
def _retracted_things(sentence: str) -> tuple[_Named, ...]:
    """Return the things that a sentence names in words of retraction; most sentences have none of these words."""
    if sentence.rstrip().endswith(("?", "？")):
        return ()
    said, lowered = sentence[:_LOOK_AT], sentence[:_LOOK_AT].lower()
    english = (
        lifts for lifts, words in zip(_LIFTS, _LIFTING_WORDS, strict=True) if any(word in lowered for word in words)
    )
    chinese = () if said.isascii() or not _HAN_RUN.search(said) else _LIFTS_ZH
    named: list[_Named] = []
    for pattern in (*english, *chinese):
        match = pattern.search(said)
        if match is None:
            continue
        groups = match.groupdict()
        what, is_rule = one_line(groups["what"] or ""), bool(groups.get("named"))
        is_newest = _PRONOUN.match(what) is not None
        if is_rule or not is_newest:
            named.append(_Named(what, is_rule, is_newest))
    return tuple(named)


def _best_matches(named: frozenset[str], rules: Sequence[str], *, is_named: bool) -> list[int]:
    """Return the indices of the rules that share most words with a named thing; none if they share too few."""
    telling = named - _ACTIONS
    latin = frozenset(word for word in telling if word.isascii())
    wanted = latin or telling or named
    if not wanted:
        return []
    shares = [len(wanted & meaning(rule)) / len(wanted) for rule in rules]
    best = max(shares)
    least = _ENOUGH if len(wanted) > 1 or is_named else 1.0
    return [place for place, share in enumerate(shares) if share == best] if best >= least else []


def replaces(new: str, old: str) -> bool:
    """Return whether a new rule ends an older one: it repeats it, contradicts it, or fills the same slot."""
    ours, theirs = meaning(new), meaning(old)
    if one_line(new).casefold() == one_line(old).casefold():
        return True
    if not ours or not theirs:
        return False
    is_opposite = bool(_NEGATIVE.search(new)) != bool(_NEGATIVE.search(old))
    if _gives_up(new, old, ours, theirs) or _sets_another_number(ours, theirs):
        return True
    if is_opposite:
        return len(ours & theirs) >= _SAME_WORDS * len(ours | theirs)
    return _fills_same_slot(new, old, ours, theirs)


def says_as_much(text: str, other: str) -> bool:
    """Return whether a wish says nearly everything that another says."""
    mine, others = (frozenset(word for word in meaning(wish) if word not in _WISHING) for wish in (text, other))
    if bool(_NEGATIVE.search(text)) != bool(_NEGATIVE.search(other)) or not others:
        return False
    return len(others) >= _FEW and len(mine & others) >= _NEARLY_ALL * len(others)


def _gives_up(new: str, old: str, ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Return whether a rule gives up the object of an older one ("use X instead of Y")."""
    given_up = _INSTEAD_OF.search(new)
    if given_up is None or _NEGATIVE.search(_INSTEAD_OF.sub("", old)):
        return False
    named, asked_for = meaning(given_up["old"]), meaning(_INSTEAD_OF.sub("", old))
    latin = frozenset(word for word in asked_for if word.isascii())
    is_kept = named <= meaning(_INSTEAD_OF.sub("", new))
    return bool(named) and named <= (asked_for & theirs) and not is_kept and len(latin - named - ours) <= _FEW


def _sets_another_number(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Return whether two rules set different numbers for the same thing."""
    mine, yours = ({word for word in words if _is_number(word)} for words in (ours, theirs))
    if not mine or not yours or mine & yours:
        return False
    about, before = (frozenset(word for word in words if not _is_number(word)) for words in (ours, theirs))
    if all(map(str.isascii, about)) != all(map(str.isascii, before)):  # across two languages, only names compare
        about, before = (frozenset(filter(str.isascii, words)) for words in (about, before))
        return len(about & before) >= max(1, len(before) - _FEW + 1)
    return bool(about & before) and len(about & before) >= _SAME_WORDS * min(len(about), len(before))


def _fills_same_slot(new: str, old: str, ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Return whether two rules choose different values of a few that exclude each other."""
    our_words, their_words = _tokens(new), _tokens(old)
    for slot in _SLOTS:
        mine, yours = slot & our_words, slot & their_words
        if mine and yours and not mine & yours:
            values = mine | yours
            about, before = ours - values, theirs - values
            if about & before or not about or not before:
                return not (_NEGATIVE.search(new) and _NEGATIVE.search(old))
    gained, lost = ours - theirs, theirs - ours
    if not gained or not lost or (_NEGATIVE.search(new) and _NEGATIVE.search(old)):
        return False
    is_small = len(gained) <= _FEW and len(lost) <= _FEW and len(ours & theirs) >= _FEW
    return is_small and _TURNS.search(new) is not None


@lru_cache(maxsize=_MOST_REMEMBERED)
def _tokens(text: str) -> frozenset[str]:
    """Return every word of a text and every Han name of a slot in it."""
    words = {word.strip(".'-/") for word in _WORD.findall(text.lower())}
    return frozenset(words if text.isascii() else words | {name for name in _HAN_NAMES if name in text})


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None
