"""The facts of one message: everything it contributes to a summary besides quoted lines.

From a person: clauses that ask or state, preferences, decisions, retractions. From an assistant: decisions, next steps,
the conclusion, actions. From a tool: the outcome. Each message is read by itself, so its facts can be cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from everlong.context.literals import is_summary
from everlong.context.summary.actions import Action, ActionOutcome, action_of, outcome_of
from everlong.context.summary.clauses import (
    NO_CONCLUSION,
    Clause,
    Conclusion,
    clauses,
    conclude,
    is_code,
    is_go_ahead,
    plain_line,
    prose,
)
from everlong.context.summary.language import marks, sentences
from everlong.context.summary.retractions import Retraction, find_retractions
from everlong.context.text import beginning, one_line
from everlong.model import Message, calls_of, read_message, text_of

SAID_LENGTH = 240
MOST_READ = 16_000
"""Characters read of a long text, from its beginning and its end."""
_MOST_READ_OF_REQUEST = 4_000
_MOST_READ_OF_ANSWER = 1_600
"""Characters of a person's and of an assistant's text that are cut into clauses; the rest tends to repeat them."""
_LONGEST_SENTENCE = 300
_MOST_CLAUSES = 24
_MOST_RULES = 8

_FOR_EVER = re.compile(r"(?:^|, |\b(?:please|should|must|you|will|to|we|i|code|and) )(?:always|never)\b", re.IGNORECASE)
_PREFERS = re.compile(
    r"\b(?:must(?:n't)?|prefer\w*|(?<!to )avoid\b|don't want|do not want|don't (?:use|touch|change|add|fly)|"
    r"do not (?:use|touch"
    r"|change|add)|only (?:use|want|on|in|if|one|way)\b|no (?:more|later|earlier|less) than|not allowed|"
    r"stick to|"
    r"(?:instead of|rather than)|deadline\b(?=.*\d)|due (?:on|by|date)|budget (?:of|is)|allergic|"
    r"(?:under|below|within|not (?:over|above)) \$?\d|no longer than|required? to be|needs? to be|"
    r"(?<!\bi )(?<!\bwe )(?<!\bthat )(?<!\bthis )(?<!\bthere )should(?:n't| be| always| never| not)\b|"
    r"(?:my|our) (?:goal|target|limit|aim)s? (?:\w+ )?(?:is|are|of|to|for)\b|"
    r"(?:my|our) (?:own )?(?:preference|priority|favou?rite)|"
    r"i (?:\w+ )?(?:like|love|hate|dislike|value|favou?r|prioriti[sz]ed?)\b(?! (?:her|his|their|your|that|it)\b)|"
    r"set (?:a|an|my) (?:\w+ )?(?:goal|limit|boundary|rule|budget|target)|"
    r"limit(?:ing|ed)? (?:my|our|the|work)\b|i'm (?:comfortable|interested))"
    r"|必须|不要|不能|不得|务必|禁止|只能|只用|请用|始终|一律|统一|优先|最多|最少|至少|保持|别(?!的|人)|避免|确保|不许|喜欢|截止",
    re.IGNORECASE,
)
_PREFERENCE_STARTS = (
    *("must", "prefer", "avoid", "don't ", "do not ", "only ", "no more", "no later", "no earlier", "no less"),
    *("not allowed", "stick to", "instead of", "rather than", "deadline", "due ", "budget ", "allergic", "under "),
    *("below ", "within ", "over ", "above ", "no longer", "require", "need", "should", "my goal", "my target"),
    *("my limit", "my aim", "our goal", "our target", "our limit", "our aim", "my own", "our own", "my pref"),
    *("our pref", "my prio", "our prio", "my favo", "our favo", "i ", "set a", "set my", "limit"),
    *("i'm comfortable", "i'm interested"),
)
"""The beginnings of the English phrases in `_PREFERS`; matching only at these places saves most of the work."""
ORDERS = re.compile(r"(?:please )?(?:use|name|keep|call it|stick|don't|do not|never|always|only)\b", re.IGNORECASE)
_SEEKS = re.compile(
    r"(?:understand|know|learn|figure|find|see|verify|check|calculate|solve|explain|show|tell|compare|review|confirm"
    r"|determine|identify|describe|decide)\b",
    re.IGNORECASE,
)
"""Beginnings of clauses that want to find something out, even if they mention rules."""
_NO_SUBJECT = re.compile(r"(?:should(?:n't)?|needs?|must) (?:not )?(?:be|to be)\b", re.IGNORECASE)
"""Beginnings of clauses whose subject stands in the sentence before."""
_NEVER_DID = re.compile(
    r"\b(?:i|we|has|have|had|'ve) never\b|\b(?:must|should) be (?:something|some|a|an|the)\b|\b(?:could|might) be\b"
    r"|\bshould(?:n't)? be (?:in|on|at|there|here|able|enough|okay|ok|fine|right|good|eligible|that|this|so)\b"
    r"|^(?:i think|i guess|it seems|it looks like)\b.*\b(?:doesn't|don't|isn't|aren't|fails?)\b"
    r"|\bbest practices\b|\bany (?:bugs?|errors?|mistakes?|issues?|problems?)\b"
    r"|\bi always do\b|\b(?:see|check|ask) if\b"
    r"|\byou (?:suggested|mentioned|recommended|instructed|asked|said)\b",
    re.IGNORECASE,
)
_NEVER_DID_WORDS = ("never", " be", "i think", "i guess", "it ", "practices", "any ", "always do", " if", "you ")
"""Plain text, one of which each phrase of `_NEVER_DID` has."""
_ABOUT_SELF = re.compile(
    r"\b(?:i'm|i am|we're|we are) (?:an? |the |on |based|from|using|at |in |running|working (?:at|with|in)|living|"
    r"\d|(?-i:[A-Z]))"
    r"|\b(?:my|our) (?:\w+ ){1,4}(?:is|are|=|id|number|ends? in)\b|\bi (?:live|work|use|own|"
    r"have (?:\d|my|an? (?:[\w-]+ ){0,3}(?:deadline|budget|limit|goal|target|allergy|account|subscription|membership"
    r"|degree|job|dog|cat|child|kid|son|daughter|team|meeting|appointment|interview|flight|reservation|booking|card"
    r"|condition)))\b"
    r"|我(?:是|在|用|住|的\w{1,8}是)|我们(?:是|在|用)",
    re.IGNORECASE,
)
_SELF_WORDS = ("i'm ", "i am ", "we're ", "we are ", "my ", "our ", "i live", "i work", "i use", "i own", "i have")
_DECIDES = re.compile(
    r"\b(?:(?:i|we)(?:'ve| have)? (?:decided|chosen|opted|picked|agreed|chose|settled)|(?:i|we)(?:'ll|"
    r" will) (?:go with|use|take|stick|"
    r"book|keep|choose|pick)|let's (?:go with|use|do|book|keep)|opting for|going with|go(?:ing)? ahead with|"
    r"switch(?:ed|ing)? (?:from|to)"
    r"|changed my mind|on second thought)\b|决定|采用|选择|改为|改用|换成",
    re.IGNORECASE,
)
_UNDECIDED = re.compile(
    r"\b(?:if|whether|maybe|perhaps|might|could|would|heard|wonder\w*|considering|should|torn|debating|deciding)\b"
    r"|\b(?:chos\w+|decided|opted|picked|agreed)(?: to \w+)? (?:it|this|that|them)\b"
    r"|\b(?:you|your) (?:\w+ )?(?:suggest|mention|recommend|provid|outlin|describ|gave|list|said|show|explain)"
    r"|\b(?:do|use|keep|take|book)(?: care of)? (?:it|that|this)\W*$"
    r"|\bkeep (?:an eye|in mind|you posted|\w+ing)\b",
    re.IGNORECASE,
)
"""Words of someone who weighs a choice, or follows advice that stands elsewhere."""
_REPORTS = re.compile(
    r"^(?:i|we)(?:'ve| have)? (?:\w+ly |just )?(?:(?!prefer|need|decid|prioriti|limit)\w+ed|made|got|had|found|did"
    r"|went|took|saw|ran|been)\b|\b(?:currently|recently|already|so far)\b(?! set\b)",
    re.IGNORECASE,
)
"""Words that report how things are or went, rather than how they should be."""
_REPORT_WORDS = ("currently", "recently", "already", "so far")
_BACKGROUND = re.compile(r",? (?:considering|given|especially|where|while|since|because|when)\b", re.IGNORECASE)
"""The point where a request ends and its background begins."""
_CHOICE_WORDS = (
    *("decided", "chosen", "opted", "picked", "agreed", "chose", "settled", "i'll ", "we'll ", "i will ", "we will "),
    *("let's ", "going with", "ahead with", "switch", "changed my mind", "on second thought"),
)
_AGENT_DECIDES = re.compile(
    r"\b(?:we (?:decided|keep|chose|use)\b.*\bbecause|(?:i|we)(?:'ve| have)? (?:decided|chosen|opted) (?:to|on|for|"
    r"against)|"
    r"(?:since|because|as) .{8,160}, (?:i'll|i will|we'll|we will|i'm going to)\b|going with|"
    r"(?:i'll|i will|we'll|we will) (?:use|go with|switch to|keep) .{4,}\b(?:because|since|instead of|rather than|"
    r"so that)\b|"
    r"root cause (?:is|was)|the (?:bug|cause) (?:is|was) (?:that|in|because|caused|due|how|a|an|the)\b|turns out|"
    r"the fix (?:is|was) to)"
    r"|决定|采用|改为|改用|根本原因|原因是|问题在于",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"^(?:remaining|todo|to do|still to|left to|the next step|next steps?|follow-?up)\b"
    r"|\b(?:next,? (?:i|we|step)|next:|remaining:|still need(?:s)? to|i still (?:need|have) to|then i(?:'ll| will))"
    r"|接下来|下一步|待办|还需要|剩下|然后我",
    re.IGNORECASE,
)
_DECISION_WORDS = (
    *("because", "since ", "decided", "chosen", "opted", "going with", "instead of", "rather than", "so that"),
    *("root cause", "the bug", "the cause", "turns out", "the fix", "i'll", "i will", "we'll", "we will"),
)
_STEP_WORDS = ("next", "remaining", "todo", "to do", "still", "left to", "follow", "then i")
_ABANDONED = re.compile(r"\b(?:if|whether|maybe|perhaps|might|could|wait|hmm)\b|\?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of one message, by kind."""

    role: str
    said: str = ""
    clauses: tuple[Clause, ...] = ()
    """Clauses in which a person asks or states something; preferences and decisions are kept apart."""
    preferences: tuple[Clause, ...] = ()
    """Standing wishes of a person, and what they say about themselves."""
    rules: tuple[str, ...] = ()
    """Demands of the project's instructions, which a client sends along."""
    decisions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    conclusion: Conclusion = NO_CONCLUSION
    """The sentences in which an assistant says what came of a request."""
    stated: str = ""
    """The first whole sentences of an assistant's message."""
    goes_ahead: bool = False
    """True if a person only says to go on."""
    changes_mind: bool = False
    retractions: tuple[Retraction, ...] = ()
    offers: bool = False
    """True if an assistant's message ends with a question."""
    is_short: bool = False
    """True if an assistant's message is an answer of a few words."""
    actions: tuple[tuple[str, str, Action], ...] = ()
    """Each call's id, its tool's name, and the action."""
    outcome: ActionOutcome | None = None
    call_id: str = ""


def read_facts(message: Message) -> Facts:
    """Return the facts of one message."""
    role = message["role"]
    if role == "assistant":
        return _assistant_facts(message, text_of(message))
    if is_summary(message):  # a text that poses as a summary is no source of rules and requests
        return Facts(role, said=beginning(text_of(message), SAID_LENGTH))
    read = read_message(message)
    if role == "tool":
        call_id = str(message.get("tool_call_id") or "")
        return Facts(role, outcome=outcome_of(bounded(read.material)), call_id=call_id, rules=_rules(read.rules))
    return _person_facts(role, read.typed, read.rules)


def _person_facts(role: str, typed: str, rules: str) -> Facts:
    text = bounded(typed)
    spoken = prose(bounded(typed, _MOST_READ_OF_REQUEST))
    said = clauses(spoken, _MOST_CLAUSES)
    # A cheap check first: most messages decide nothing.
    lowered = spoken.replace("’", "'").lower()
    may_decide = not spoken.isascii() or any(word in lowered for word in _CHOICE_WORDS)
    decided = [clause for clause in said if may_decide and _is_decision(clause)]
    preferred = [clause for clause in said if clause not in decided and _is_preference(clause)]
    found = sentences(text)
    return Facts(
        role,
        said=beginning(text, SAID_LENGTH),
        clauses=tuple(clause for clause in said if clause not in preferred and clause not in decided),
        preferences=tuple(preferred),
        decisions=tuple(clause.text for clause in decided),
        rules=_rules(rules),
        goes_ahead=is_go_ahead(typed) or not said,
        changes_mind=any(marks("change_of_mind", sentence) for sentence in found[:12]),
        retractions=find_retractions(text, found),
    )


def _is_decision(clause: Clause) -> bool:
    text = clause.text.replace("’", "'")
    return not clause.asks and bool(_DECIDES.search(text)) and not _UNDECIDED.search(text)


def _is_preference(clause: Clause) -> bool:
    if clause.asks or clause.hangs or len(clause.text) > _LONGEST_SENTENCE:
        return False
    text = clause.text.replace("’", "'")
    if _SEEKS.match(text) or _NO_SUBJECT.match(text):
        return False
    if clause.wished:
        text = _BACKGROUND.split(text, maxsplit=1)[0]
    lowered = text.lower()
    is_for_ever = ("always" in lowered or "never" in lowered) and _FOR_EVER.search(text)
    is_order = ORDERS.match(text) and not clause.wished and not clause.points
    if is_for_ever or _prefers(text, lowered) or is_order:
        return not _only_tells(text, lowered)
    if not clause.figures:
        return False
    may_tell = not text.isascii() or any(word in lowered for word in _SELF_WORDS)
    return may_tell and bool(_ABOUT_SELF.match(text))


def _only_tells(text: str, lowered: str) -> bool:
    """Return whether a clause with the words of a wish only tells how things are or were."""
    is_plain = text.isascii()
    if (not is_plain or any(map(lowered.__contains__, _NEVER_DID_WORDS))) and _NEVER_DID.search(text):
        return True
    may_report = not is_plain or lowered[:1] in "iw" or any(map(lowered.__contains__, _REPORT_WORDS))
    return may_report and _REPORTS.search(text) is not None


def _prefers(text: str, lowered: str) -> bool:
    if not text.isascii():
        return _PREFERS.search(text) is not None
    for start in _PREFERENCE_STARTS:
        place = lowered.find(start)
        while place >= 0:
            if _PREFERS.match(text, place):
                return True
            place = lowered.find(start, place + 1)
    return False


def _rules(text: str) -> tuple[str, ...]:
    """Return the sentences of a project's instructions that demand something."""
    if not text:
        return ()
    demands = (plain_line(sentence) for sentence in sentences(bounded(text)) if marks("constraint", sentence))
    return tuple(islice((line for line in demands if 14 <= len(line) <= _LONGEST_SENTENCE), _MOST_RULES))


def _assistant_facts(message: Message, text: str) -> Facts:
    actions = tuple((call.id, call.name, action_of(call)) for call in calls_of(message))
    if not text:
        return Facts("assistant", actions=actions)
    short = bounded(text, _MOST_READ_OF_ANSWER)
    found = [line for sentence in sentences(prose(short)) if (line := plain_line(sentence))]
    return Facts(
        "assistant",
        said=beginning(text, SAID_LENGTH),
        decisions=_first_matching(found, _AGENT_DECIDES, 2) if _may_have(_DECISION_WORDS, short) else (),
        next_steps=_first_matching(found, _STEP, 2) if _may_have(_STEP_WORDS, short) else (),
        conclusion=conclude(found),
        stated=_stated(found),
        actions=actions,
        offers=text.rstrip().endswith(("?", "？")),
        is_short=len(text) <= _LONGEST_SENTENCE,
    )


def removed_by(message: Message) -> Iterator[str]:
    """Yield the files that the calls of a message remove."""
    for call in calls_of(message) if message["role"] == "assistant" else ():
        yield from action_of(call).removed


def _may_have(words: Iterable[str], text: str) -> bool:
    """Return whether a text has any of some words; a cheap check that most texts fail."""
    lowered = text.lower()
    return any(word in lowered for word in words) or not text.isascii()


def _first_matching(found: Sequence[str], pattern: re.Pattern[str], most: int) -> tuple[str, ...]:
    """Return the first whole sentences that match a pattern, skipping those that only weigh a possibility."""
    fitting = (
        sentence
        for sentence in found
        if 12 <= len(sentence) <= _LONGEST_SENTENCE
        and pattern.search(sentence)
        and not _ABANDONED.search(sentence)
        and not is_code(sentence)
    )
    return tuple(islice(fitting, most))


def _stated(found: Iterable[str]) -> str:
    """Return the first sentences of a message, as many as fit uncut."""
    text = ""
    for sentence in found:
        if len(text) + len(sentence) >= _LONGEST_SENTENCE:
            break
        text = f"{text} {sentence}" if text else sentence
    return one_line(text)


def bounded(text: str, most: int = MOST_READ) -> str:
    """Return the beginning and the end of a text that is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}\n{text[-most // 3 :]}"
