"""The detection of rules and wishes in English, by the shape of a sentence.

A rule speaks of every case ("always", "each new endpoint", "from now on"), forbids, limits, states a convention, sets
a condition, or tells how the person likes to be served. A one-time order has its marks too: *this* file, *the second*
option, *now*, *yet*, *a* poem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from everlong.context.rules.prose import LONGEST_RULE, FoundRule, cut_rule

_OPENERS = re.compile(
    r"^(?:(?:please|pls|also|and|but|so|ok(?:ay)?|oh|well|then|now|hey|hi|(?:yes|yeah|no|nope)(?=\s*[,.!;—–])"
    r"|again|btw|by the way|fyi|plus|just|actually"
    r"|remember|note|important|reminder|rule|one (?:more )?(?:thing|rule)|another (?:thing|rule)|a few (?:things|rules)"
    r"|in general|generally|as a rule|on second thoughts?|first of all|finally|kindly|thanks|thank you|great|good|nice"
    r"|(?:it(?:'s| is) )?(?:very |really )?(?:important|essential|crucial|vital|critical)(?: that)?"
    r"|i (?:told|said)(?: to)?(?: you)?(?: (?:this|that|it))?(?: (?:before|already|again|twice))?|as i said|like i said"
    r"|and remember|please remember|keep in mind(?: that)?|bear in mind(?: that)?|note that|remember that|"
    r"make sure(?: that)?(?= (?:you|we|to)\b)|be sure(?= to)|remember(?= to))\b\s*[,:;.!—–-]*\s*)+",
    re.IGNORECASE,
)
_ALWAYS = (
    r"(?:always|never|ever|at all times|under no circumstances|in no case|by no means|without exception"
    r"|every single time)"
)
_STANDING = (
    r"(?:from (?:now|here|this point|today) on(?:wards?)?|from this moment(?: on)?|going forward"
    r"|moving forward|in (?:the )?future|henceforth|hereafter"
    r"|for the rest of (?:this|the|our)\b|for the remainder of|throughout (?:this|the|our)?|until (?:i say"
    r"|further notice|told otherwise)"
    r"|unless (?:i|otherwise|told|we|you are told)|as (?:a|the) (?:general )?rule|by default|at all times"
    r"|for (?:all|any|every) future)"
)
_EACH_TIME = (
    r"(?:every ?time|each time|any ?time|whenever|anywhere|wherever|in all (?:cases|your)|in every"
    r"|for every|for each|on every|with every|after every|after each|before every|before each"
    r"|before any)"
)
_STANDING_RE = re.compile(rf"\b{_STANDING}\b", re.IGNORECASE)
_EACH_TIME_RE = re.compile(rf"\b{_EACH_TIME}\b", re.IGNORECASE)
_ONCE = re.compile(
    r"\b(?:yet|right now|just now|for now|at the moment|for the moment|this time|this once|today|tonight"
    r"|tomorrow|this (?:week|morning|afternoon|evening|weekend)"
    r"|just this|until (?:i|we|the|it|tomorrow|monday|then)\b(?! say)|till|in a (?:minute|moment|second)"
    r"|so far|anymore)\b",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"\bnot now\b|^(?:wait|stop|hold (?:it|on|off|that))(?=[.!,;]|$)"
    r"|\bbefore (?:lunch|dinner|the meeting|i (?:go|leave))\b"
    r"|\b(?:some|a few|quick|one|two|three) (?:quick )?(?:round of )?questions?\b|\bjust (?:an )?answers?\b"
    r"|\bon the phone\b",
    re.IGNORECASE,
)
"""Words that are meant for the current message only: a round of questions, an order to wait."""
_POINTS = re.compile(
    r"\b(?:this|that|these|those)\s+(?!codebase|repo|repository|project|session|conversation|chat|work|company"
    r"|team|app\b|site|document\b|thread|point|way\b|is\b|means\b|you\b|we\b|all\b|every|each\b|no\b|any|i\b"
    r"|never\b|always\b|are\b|can\b|do\b|does\b|has\b|have\b|was\b)\w+"
    r"|\bthe (?:first|second|third|last|next|previous|other|same|latter|former|above|below|following|failing"
    r"|latest|current)\b"
    r"|\b(?:it|them|him|her)\b(?=[.!,;]|$)|\bhere['’]?s\b",
    re.IGNORECASE,
)
_IDIOM = re.compile(
    r"^(?:do not|don['’]?t|never|no)\b,?\s*(?:worry|worries|mind|bother|forget|panic|need|problem|idea|thanks?"
    r"|way|doubt|wonder|matter|longer|one|question|rush|hurry|stop\b(?! at)|get me wrong|know|think|understand"
    r"|see\b|remember|clue|luck|have)\b",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"^(?:he|she|they|someone|somebody|everyone|everybody|people|nobody|the (?:docs?|documentation|readme"
    r"|error|log|manual|guide|tutorial|article|book|compiler|linter|customer|client|boss|manager|teacher"
    r"|server|message|output))\b"
    r"|^(?:my|our|his|her|their) (?:\w+ )?(?:boss|manager|colleague|friend|sister|brother|wife|husband|teacher"
    r"|mother|father|mom|dad|son|daughter|partner|client|customer|professor|coach|team lead|lead)\b"
    r"|^i(?:['’]ve been| was) (?:thinking|considering|wondering)\b|^i had to\b"
    r"|^i(?:'m| am| was|'ve| have)? (?:never|always|usually|often|sometimes)\b(?! want| prefer| need)"
    r"|^(?:it|there|this|that|what|why|how|which|who"
    r"|when did|where)\b(?! must (?:be|have) (?:always|never))",
    re.IGNORECASE,
)
_TOLD_ME = re.compile(r"\b(?:told|asked|warned|taught|reminded) (?:me|us)\b", re.IGNORECASE)
_QUESTION = re.compile(
    r"^(?:(?:so|and|but|ok|hey|well|also)[, ]+)*(?:what|why|how|which|who|whom|whose|where|when (?:do|does|did"
    r"|is|are|will|should|can)|is|are|was|were|do (?:you|we|i|they)|does|did|can|could|would|will|shall|should"
    r"|may i|am i|has|have (?:you|we|i)|isn't|aren't|doesn't|don't you|won't)\b",
    re.IGNORECASE,
)
_POLITE_RULE = re.compile(
    rf"^(?:(?:so|and|but|ok|hey|also)[, ]+)*(?:can|could|would"
    rf"|will) you (?:please )?(?:(?:{_STANDING}),? (?:please )?|please (?:{_ALWAYS} |not |stop |avoid |only ))",
    re.IGNORECASE,
)
_ORDERING = re.compile(r"^(?!.*(?:ing|ed|ly|tion|ness)$)[a-z]{2,}(?:-[a-z]+)?$", re.IGNORECASE)
"""A first word that may be the verb of an order, because its ending is of no other part of speech."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_VERBS = _words(
    """
    the a an this that these those my your our his her their its it i you we they he she there here what why
    how which who when where if because since although though while and or but not no yes all every each any
    some most many few both either neither one two three is are was were be been being am has have had does
    did will would can could should must may might shall in on at by for from of to with without about into
    over under between very too so as than then just only also still even never always however like maybe
    perhaps considering given hopefully let lets im ive id thanks hi hello such until after before once
    wherever unless
    """
)
_NEGATIVE = re.compile(
    r"^(?:do not|don['’]?t|dont|never|please don['’]?t|avoid|refrain from|stop|quit|no longer|cease|no more"
    r"|not a single|skip(?= (?:the|all|any) \w+s\b))\b",
    re.IGNORECASE,
)
_STOPPED = re.compile(
    r"^(?:stop|quit|cease|avoid|refrain from)\s+(?:[a-z]+ing\b|(?:any|all|using)\b|[a-z]+s\b)", re.IGNORECASE
)
_NO_SUCH = re.compile(
    r"^no\s+(?!,|need\b|regrets?\b|complaints?\b|problem|idea|worries|thanks|way\b|doubt|one\b|longer\b|matter\b|wonder|luck|rush|i\b"
    r"|it\b|that\b|this\b|you\b|we\b|the\b|change|error|question|clue|such\b|response|answer|output"
    r"|result)[\w-]+(?: [\w-]+)*",
    re.IGNORECASE,
)
_ALWAYS_IMPERATIVE = re.compile(
    rf"^(?:{_ALWAYS}),?\s+(?P<verb>[a-z'-]+)|^(?P<verb2>[a-z'-]+)\b[^.]*\b(?:at all times|without exception"
    rf"|every single time)\b",
    re.IGNORECASE,
)
_YOU_MUST = re.compile(
    r"\byou (?:must|should|shall|may|can|need to|have to|ought to|are (?:not )?(?:allowed|to)|are never|will"
    r"|are only)\b[^.]*?\b(?:never|always|not|only|every|each|any|all|no)\b"
    r"|\byou (?:must|mustn['’]t|should never|should always|shouldn['’]t|may not|may only|can only|cannot"
    r"|can['’]t|are not (?:allowed )?to|are only to)\b",
    re.IGNORECASE,
)
_WE_DO = re.compile(
    r"^(?:in this (?:repo|project|codebase|team|house),? |here,? |at (?:our|my) \w+,? )?we (?:(?:don['’]?t"
    r"|do not|never|always|only|exclusively|must(?: not)?|mustn['’]t|should(?: not)?|require|insist on|follow"
    r"|stick to|avoid|prefer)\b)\s*(?P<verb>[a-z]+)?",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"^(?:\w+ed|had|was|were|did|got|shipped|saw|made|went|met|found|have|know|understand|need|want|see|think)$",
    re.IGNORECASE,
)
_GENERIC = re.compile(
    r"^(?:all|every|each|any|no|new|none of|only|both|your|generated|anything|everything|nothing|whatever)\b",
    re.IGNORECASE,
)
_MODAL = re.compile(
    r"\b(?:must(?: not|n['’]t)?(?! have\b)|should(?: not|n['’]t)?(?! have\b)|shall(?: not)?|may (?:not|only"
    r"|never)|can(?:not|['’]t| only| never)|has to|have to|needs?(?! to know)|ha(?:s|ve) to be"
    r"|(?:is|are|be) (?:not |never |always |only )?to be|(?:is|are) (?:off[- ]limits|forbidden|not allowed"
    r"|required|mandatory|prohibited|banned|read[- ]only|named|written|capped|limited|not (?:to|acceptable"
    r"|permitted|ok))|go(?:es)? (?:in|into|to|under|at)|belongs? (?:in|to|under)|stays? (?:in|under|at|below)"
    r"|gets?)\b",
    re.IGNORECASE,
)
_DEFINITE = re.compile(
    r"^(?:the|this|that|these|those|it|he|she|they|i|my|his|her|there|nobody|someone|maybe|perhaps|i'm|i've"
    r"|it's|that's)\b",
    re.IGNORECASE,
)
_BARE_PLURAL = re.compile(
    r"^(?:[\w./`-]+ ){0,3}?[\w`-]+(?:s|messages|data|code|sql|text|names)`?(?: (?:in|of|under|from|for|with|on"
    r"|to|about) [\w./`-]+(?: [\w./`-]+)?)?\s+(?=must|should|shall|may|can|ha[sv]e? to|have|needs?|are|is|go"
    r"|goes|belong|stay)",
    re.IGNORECASE,
)
_STYLE = re.compile(
    r"^(?:keep|stick (?:to|with)|let['’]?s stick (?:to|with)|prefer|stay|limit|restrict|confine|favou?r"
    r"|default to|follow|treat|assume|respect|adhere to|leave|only(?! (?:\d+|one|two|three|four|five|some"
    r"|a few|the first|half)\b))\b(?! going| up\b| at it| trying| on\b| me posted| it up| the change)",
    re.IGNORECASE,
)
_MANNER = re.compile(
    r"^(?:answer|reply|respond|speak|talk|write|communicate|explain|comment|document|format|phrase|indent|name"
    r"|spell|say|show|give|label|end|start|begin|sign|number|quote|cite|mark|prefix|wrap|round|express|measure"
    r"|report|print|log|address|refer to|return|order|sort|list|tag|use|put|store|place)\b",
    re.IGNORECASE,
)
_MANNER_FREE = re.compile(
    r"^(?:answer|reply|respond|speak|talk|communicate|write|explain|comment)(?: (?:to )?me| back| everything"
    r"| all| only)?,? (?:(?:only |strictly |entirely |just )?in|like|as|with|without|briefly|concisely|tersely"
    r"|formally|informally|using|at (?:most|least)|no more)\b",
    re.IGNORECASE,
)
_USE = re.compile(
    r"^(?:only use|use|write|format|name|indent|spell|put|store|place|express|cite|round|prefix|label|log"
    r"|order|sort|mark)\s+(?P<object>.+)",
    re.IGNORECASE,
)
_DETERMINED = re.compile(
    r"^(?:only )?(?:the|this|that|these|those|it|them|a|an|my|your|our|his|her|me|us|one|two|three|four|five"
    r"|ten|\d+|some|another|both|up|down|out)\b",
    re.IGNORECASE,
)
_PURPOSE = re.compile(
    r"\bto (?!be\b|the\b|a\b|me\b|us\b|you\b|all\b|any\b|every\b|\w+s\b)[a-z]+\b|\band (?:run|try|see|check"
    r"|tell|show|then|commit|push|find|fix)\b",
    re.IGNORECASE,
)
_NOT_THAT = re.compile(
    r"(?:,|\band\b|;|—|–|-)\s*(?:not|never|no)\s+\S+|\binstead of\b|\brather than\b|\bin place of\b"
    r"|\bover\b(?= \w+ (?:here|in|for|when))",
    re.IGNORECASE,
)
_ASK_FIRST = re.compile(
    r"\b(?:ask|check with|consult|tell|warn|notify|inform|confirm with|wait for|show|get)\b.*\b(?:before|first"
    r"|prior to)\b|\bbefore (?:you|we|\w+ing)\b",
    re.IGNORECASE,
)
_GENERAL_CASE = re.compile(
    r"\b(?:any|anything|every|everything|each|all|an?|\w+ing|you|we|i ask|i request|i say|i want|i mention"
    r"|asked|possible|needed|necessary|in doubt|longer than|more than|twice|not sure|unsure|i)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"^(?P<when>(?:when|whenever|every ?time|each time|any ?time|if|in case|unless|before|after|once"
    r"|as soon as|where|wherever|for (?:all|any|every|each|code|questions"
    r"|the rest))\b[^,]*),\s*(?:then\s+)?(?P<then>.+)",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"\b(?:when(?:ever)? (?:i|you|we)\b|every ?time\b|each time\b|any ?time\b|whenever\b|before (?:you|we|each"
    r"|every|any|\w+ing)\b|after (?:you|each|every|any)\b|if (?:you|we|i|a|an|any|something|anything)\b"
    r"|unless\b|without (?:asking|my|being|checking|first))",
    re.IGNORECASE,
)
_CALL_ME = re.compile(r"^(?:call|address|refer to) me\b|^my (?:name|pronouns) (?:is|are)\b", re.IGNORECASE)
_LIMIT = re.compile(
    r"^(?:at most|no more than|max(?:imum)?(?: of)?|not more than|at least|min(?:imum)?(?: of)?|up to|under"
    r"|below|less than|fewer than)\s+[\d$€£]",
    re.IGNORECASE,
)
_EVERY = re.compile(r"\b(?:every|each|all|any|no|never|always|none|throughout|everywhere|wherever)\b", re.IGNORECASE)
_WISH = re.compile(
    r"\bi(?:['’]d| would)? (?:(?:strongly|really|generally|usually|much|definitely|always|typically|personally"
    r"|still|also|kind of|would)\s+)*(?P<wish>"
    r"prefer(?:red)?|rather|favou?r(?! to)|(?:don['’]?t|do not) (?:really )?(?:like|want (?!to\b))|dislike"
    r"|hate|can['’]?t stand"
    r"|(?:like|love|appreciate) it when|(?:like|love|want|need|expect|appreciate) (?:your (?:answers|replies"
    r"|responses|explanations|code)|answers|explanations|examples|responses|replies)"
    r"|like (?:short|long|concise|detailed|brief|simple|clear|clean|plain))\b|\bi (?:really |always |usually "
    r"|generally )?like (?:to (?:see|have|get|be|keep|use|work|start|compare|understand|know|learn)|(?!it|that"
    r"|this|the|how|what|your|to|a)[a-z]+s)\b"
    r"|\bmy (?:(?:strong|personal|general|clear) )?preference(?:s)? (?:is|are|for|to)\b|\bi(?:['’]d"
    r"| would) (?:like|want|love) (?:you to (?:always|never|only|stop|keep|use|be|answer|ask|write|avoid)|all"
    r"|every|each)\b"
    r"|\bi (?:want|need|expect) (?:you to (?:always|never|only|stop|keep|use|be|answer|ask|write|avoid)|all"
    r"|every|each|no|any|everything)\b|\bi(?:['’]m| am) (?:not )?(?:a (?:big )?fan of|more comfortable with)\b"
    r"|\bi (?:value|favou?r|prioriti[sz]ed?|believe in|insist on)\b(?! (?:her|his|their|your)\b)|\bworks? best for me\b"
    r"|\bi(?:['’]m| am) (?:trying|aiming|hoping|planning|careful|determined) to (?:keep|stay|stick|avoid|limit"
    r"|minimi[sz]e|maintain)\b"
    r"|\bi (?:want|need|have|try|aim|plan) to (?:keep|stay|stick|avoid|limit|minimi[sz]e|maintain|prioriti[sz]e)\b"
    r"|\bi(?:['’]m| am)? (?:\w+ )?(?:drawn to|(?:lean(?:ing)? towards?|inclined to|want|use|using)\b[^,.;]{2,60}"
    r"(?:\bover (?!time\b|the\b|and\b|\d|\w+ing\b)|\brather than\b|\binstead of\b))"
    r"|\bi (?:find|found)\b[^,.;]{2,50}\b(?:helpful|easier|clearer|better|more (?:useful|helpful))\b"
    r"|\bi(?:['’]d| would) sooner\b|\bi(?:['’]d| would)? lean towards?\b|\bi gravitate to(?:wards?)?\b"
    r"|\bi tend to (?!forget|get|be|think|lose|miss|overthink|struggle|worry)\w+"
    r"|\bi (?:usually|generally|mostly|normally|always) (?:choose|pick|go for|opt for)\b"
    r"|\bi (?:learn|work|think|sleep|remember|focus|write|do) (?:best|better)\b"
    r"|\bi(?:['’]m| am) (?:happiest|(?:more|most|much more|far more) (?:comfortable|confident|relaxed|at ease)) "
    r"(?:with|when|in|if|on|using)\b",
    re.IGNORECASE,
)
_DRAFTS = re.compile(
    r"\b(?:prefer|rather|want|like)\b (?:the (?:first|second|third|last|other|new|old|former|latter|left|right"
    r"|blue|red|green)|this|that|it\b(?! over| to| when| if)|option|version [A-Z\d]|to (?:go|stay|wait|leave"
    r"|do (?:it|that|this)))|\b(?:tonight|today|tomorrow|this (?:time|week|one))\b"
    r"|\b(?:hate|dislike|love|like|prefer|favou?r|stand) (?:it|that|this|them|those|these)\b[\s.!,]*$",
    re.IGNORECASE,
)
_DELIBERATES = re.compile(
    r"i(?:['’]m| am|['’]ve been| was| have been) (?:\w+ )?(?:considering|contemplating|debating|weighing"
    r"|thinking (?:of|about))\b|i (?:might|may|wonder)\b",
    re.IGNORECASE,
)
"""Words of deliberation, which make no rule."""
_SEE_TO_IT = re.compile(
    r"^\W*(?:(?:please|also|and|but|so|ok|okay|then|just)\b\W+)*(?:make sure|ensure|be sure|see to it"
    r"|take care)\b.*\b(?:every|each|all|any|no|never|always)\b",
    re.IGNORECASE,
)
_BREAK = re.compile(
    r"\s*(?:[;:—–]|\s-\s|,\s*(?:so|and|but|therefore|hence|which is why|that['’]?s why|please|then"
    r"|otherwise)\b|,\s+(?=(?:please |only |just )?(?:never|always|don['’]?t|do not|no|only|stop|avoid|keep"
    r"|use|make sure|ask)\b)|\b(?:and|but) (?=(?:never|always|don['’]?t|do not|please)\b))\s*",
    re.IGNORECASE,
)
_FRONT = re.compile(
    rf"^(?:(?:{_STANDING}|in (?:this|our|the) (?:repo|repository|project|codebase|session|chat|conversation)"
    rf"|here|for this (?:project|session|repo|conversation)|in (?:your|all) (?:answers|replies|responses|code)"
    rf"|for (?:\w+ ){{1,3}}(?:of this session)?)\b[^,:]{{0,30}}[,:]\s*)+",
    re.IGNORECASE,
)

_LEADING = re.compile(rf"^{_STANDING}\b[,:]?\s+", re.IGNORECASE)


def _without(start: re.Pattern[str], text: str) -> str:
    """Return a text without a matching beginning."""
    found = start.match(text)
    return text[found.end() :] if found else text


def english_rules(sentence: str, bare: str) -> Iterator[FoundRule]:
    """Yield the rules and wishes in an English sentence; ``bare`` is the sentence without its quotes."""
    is_question = bare.rstrip(")*_ ").endswith("?") or _QUESTION.match(bare) is not None
    is_heading = bare.rstrip("*_ ").endswith(":")  # the rules follow it
    rule = ""
    if is_heading or (_MOMENT.search(bare) and not _STANDING_RE.search(bare)):
        return
    if is_question:
        rule = _whole(sentence) if _POLITE_RULE.match(bare) else ""
    elif not _is_reported(_without(_OPENERS, bare)):
        parts = [part for part in _BREAK.split(bare) if part.strip() and not _is_reported(part)]
        if _is_rule_clause(bare) or (len(parts) > 1 and any(map(_is_rule_clause, parts))):
            rule = _clauses(sentence)
    if rule:
        yield FoundRule(rule, "rule")
    wish = _WISH.search(bare)
    if wish is None or _DRAFTS.search(bare[wish.start() : wish.end() + 40]) or _is_asked(bare, wish):
        return
    wished = _wish_clauses(sentence)
    if wished not in rule and not _DELIBERATES.match(wished):
        yield FoundRule(wished, "preference")


def _is_reported(clause: str) -> bool:
    """Return whether a clause reports someone else's words or actions."""
    return _REPORTED.match(clause) is not None or _TOLD_ME.search(clause) is not None


def _is_asked(bare: str, wish: re.Match[str]) -> bool:
    """Return whether the wish itself is a question ("should I prefer …")."""
    return bool(
        re.search(
            r"\b(?:do|should|would|if|when|why|whether|can|could|what|how)\s+$", bare[: wish.start()], re.IGNORECASE
        )
    )


def _is_rule_clause(clause: str) -> bool:
    """Return whether a clause, by its shape, holds for all future cases."""
    said = _without(_OPENERS, clause.strip()).strip(" ,")
    if not said or _IDIOM.match(said) or said.endswith("?"):
        return False
    if _SEE_TO_IT.match(clause) and not _ONCE.search(clause) and not _POINTS.search(clause):
        return True
    core = _without(_LEADING, _without(_FRONT, said)).strip(" ,")
    core = _without(_OPENERS, core).strip(" ,") or core
    if _IDIOM.match(core) or _QUESTION.match(core):
        return False
    if _STANDING_RE.search(said):
        return _is_order(core) or _ASKS_OF_YOU.search(core) is not None or _is_rule(core, points=False)
    return not _ONCE.search(core) and _is_rule(core, points=_POINTS.search(core) is not None)


def _is_rule(core: str, *, points: bool) -> bool:
    """Return whether a clause without its opening words is a rule; ``points`` means that it points at one thing."""
    always = _ALWAYS_IMPERATIVE.match(core)
    if always is not None:
        verb = (always["verb"] or always["verb2"]).lower()
        if verb not in _NOT_VERBS and verb not in ("again", "mind"):
            return not _ONCE.search(core) and not verb.endswith(("ing", "ed"))
    if _YOU_MUST.search(core) and not points and not core.lower().startswith(("if you", "when you")):
        return True
    if _is_conditional(core) or _is_convention(core):
        return True
    if points:
        return _EVERY.search(core) is not None and _is_order(core) and _TRAILING.search(core) is not None
    if _NEGATIVE.match(core):
        return _STOPPED.match(core) is not None or not core.lower().startswith(("stop", "quit", "cease"))
    return _is_limit(core) or _is_style(core)


_ASKS_OF_YOU = re.compile(
    rf"{_WISH.pattern}|\byou\b|\bi(?:['’]d| would) like\b|\bi (?:want|need)\b",
    re.IGNORECASE,
)


def _is_order(core: str) -> bool:
    """Return whether a clause begins like an order: with a verb or a word that forbids."""
    first = core.split(" ", 1)[0].strip(",.:").lower()
    if _NEGATIVE.match(core) or first in ("always", "only", "not"):
        return True
    return _ORDERING.match(first) is not None and first not in _NOT_VERBS


def _is_conditional(core: str) -> bool:
    """Return whether an order depends on a case that may recur."""
    match = _CONDITION.match(core)
    if match is not None:
        when, then = match["when"], _without(_OPENERS, match["then"])
        is_general = bool(_GENERAL_CASE.search(when.split(" ", 1)[-1])) and not re.search(
            r"\b(?:the|this|that|it)\b", when.split(" ", 1)[-1], re.IGNORECASE
        )
        is_case = when.lower().startswith(("whenever", "every", "each", "any", "unless", "for ")) or is_general
        return is_case and (_is_order(then) or _YOU_MUST.search(then) is not None) and not _ONCE.search(then)
    trailing = _TRAILING.search(core)
    if trailing is None or trailing.start() == 0 or not _is_order(core):
        return False
    rest = core[trailing.start() :]
    definite = re.search(r"\b(?:the|this|that|it)\b", rest, re.IGNORECASE) and not re.search(
        r"\b(?:i ask|i say|i request|any|every|each|you (?:commit|push|change|edit|write|run|mention|quote"
        r"|cite|use))\b",
        rest,
        re.IGNORECASE,
    )
    determined = _DETERMINED.match(core.split(" ", 1)[-1]) is not None and not _EVERY.search(core)
    return not definite and not (
        determined and not _ASK_FIRST.search(core) and not re.search(r"\bwhen(?:ever)? i\b", rest, re.IGNORECASE)
    )


def _is_convention(core: str) -> bool:
    """Return whether a clause states how things are done here."""
    we = _WE_DO.match(core)
    if we is not None:
        return not (we["verb"] and _PAST.match(we["verb"]))
    if _DEFINITE.match(core):
        return bool(
            re.match(
                r"^the (?:[\w-]+ ){0,3}?(?:is|are) (?:off[- ]limits|read[- ]only|not to be|forbidden|never to be)\b",
                core,
                re.IGNORECASE,
            )
        )
    modal = _MODAL.search(core)
    if modal is None or modal.start() == 0:
        return False
    subject = core[: modal.start()]
    if len(subject.split()) > 8 or re.search(
        r"\b(?:because|that|which|who|since|if|when|passes?|works?|i|it)\b", subject, re.IGNORECASE
    ):
        return False
    if modal[0].lower() in ("gets", "get", "need", "needs") and not _GENERIC.match(core):
        return False
    return _GENERIC.match(core) is not None or _BARE_PLURAL.match(core) is not None


def _is_limit(core: str) -> bool:
    if _NO_SUCH.match(core) or _LIMIT.match(core):
        return "," not in core[:4] and not re.match(
            r"^no \w+ (?:is|are|was|were|has|have|found|yet)\b", core, re.IGNORECASE
        )
    return bool(_CALL_ME.match(core))


def _is_style(core: str) -> bool:
    """Return whether an order is about the manner of all future work rather than about one thing."""
    if _STYLE.match(core):
        rest = core.split(" ", 1)[-1]
        only_once = core.lower().startswith(("leave", "keep", "follow")) and re.match(
            r"^(?:it|that|this|me|a |an )\b", rest, re.IGNORECASE
        )
        return not only_once and not (
            core.lower().startswith("leave")
            and not re.search(r"\b(?:alone|untouched|as (?:it|they)|unchanged|out)\b", core, re.IGNORECASE)
        )
    if _MANNER_FREE.match(core):
        return True
    used = _USE.match(core)
    if used is not None:
        wanted = used["object"]
        if _NOT_THAT.search(wanted) and not re.match(r"^(?:the (?:first|second|last|other))\b", wanted, re.IGNORECASE):
            return True
        determined = _DETERMINED.match(wanted) and not re.match(
            r"^(?:only )?the (?:standard|metric|formal|imperial|existing|official|new api|present tense"
            r"|imperative|active)\b",
            wanted,
            re.IGNORECASE,
        )
        if determined or _PURPOSE.search(wanted):
            return False
        return core.lower().startswith(("use", "only")) or bool(
            re.search(r"\b(?:in|as|with|at|under|to|by|for)\b", wanted)
        )
    if _MANNER.match(core) and _EVERY.search(core):
        return not _DETERMINED.match(rest := core.split(" ", 1)[-1]) and not re.match(
            r"(?:why|how|what|whether|if)\b", rest
        )
    return bool(
        re.match(
            r"^ask (?:me )?(?:before|first)\b|^(?:only|just) \w+ (?:what|the lines|files?|when|if)\b"
            r"|^(?:make sure|ensure|be sure)\b.*\b(?:every|all|each|any|no|never|always)\b",
            core,
            re.IGNORECASE,
        )
    ) or (
        bool(_EVERY.search(core))
        and bool(
            re.match(
                r"^(?:include|add|run|check|test|update|cite|provide|give|show|explain|mention|document|sign"
                r"|name|validate)\b",
                core,
                re.IGNORECASE,
            )
        )
        and bool(_EACH_TIME_RE.search(core))
    )


_CLAUSE_END = re.compile(r"(?<=[,;:—–])\s+|\s+(?=[—–]\s)")


def _whole(sentence: str) -> str:
    return cut_rule(sentence.strip().strip("*_ ").strip())


def _clauses(sentence: str) -> str:
    """Return a rule word for word; of a very long sentence, the clauses that say it, or nothing."""
    if len(sentence) <= LONGEST_RULE:
        return _whole(sentence)
    pieces = _CLAUSE_END.split(sentence.strip())
    start = next((at for at, piece in enumerate(pieces) if _is_rule_clause(piece.strip(" ,;:—–"))), None)
    return "" if start is None else _stretch(pieces, start, start)


_ASIDE = re.compile(
    r"^(?:so |and |but |or )?(?:how|can|could|what|which|would|should|do you|is there|are there|will"
    r"|considering|given|taking into account|specifically|especially|here['’]?s|i['’]m (?:not|trying|using"
    r"|working|wondering|looking)|i (?:have|want to know|need to|was|am)\b|i['’]ve|maybe|perhaps|for example"
    r"|like (?:what|how|maybe|if|when|should)\b|as (?:stated|i)|let['’]?s|and also\b|(?:i['’]m|i am) (?:kinda |just "
    r"|still |really |also )*(?:curious|considering|hoping|unsure|worried|struggling|thinking|interested in knowing))",
    re.IGNORECASE,
)
_LEANS_BACK = re.compile(r"^(?:so|therefore|hence|which|that['’]?s why|thus)\b", re.IGNORECASE)
_WORDY = re.compile(r"(?:\W*[^\W\d_]+){3}")
"""A clause with enough words to mean something by itself; "2020," has not."""


def _wish_clauses(sentence: str) -> str:
    """Return a wish word for word: the sentence, or the clauses around the wish of a longer one."""
    whole = sentence.strip().strip("*_ ").strip()
    pieces = _CLAUSE_END.split(whole)
    at = next((place for place, piece in enumerate(pieces) if _WISH.search(piece)), 0)
    if len(whole) <= _SHORT_WISH or len(pieces) == 1:
        return whole if len(whole) <= LONGEST_RULE else cut_rule(whole, _WISH.search(whole))
    start = at - 1 if at and _LEANS_BACK.match(pieces[at]) and _WORDY.match(pieces[at - 1]) else at
    end = at
    while end + 1 < len(pieces) and not _ASIDE.match(pieces[end + 1]):
        end += 1
    return _stretch(pieces, start, end)


_LEADS_IN = re.compile(
    r"^(?:and|but|also)\s+|^(?:especially |particularly )?(?:considering|given|since|because|taking into account"
    r"|as stated in|keeping in mind)\s+(?:that )?(?=my\b|our\b|i\b|we\b)",
    re.IGNORECASE,
)
_SHORT_WISH = 110
"""Characters up to which a sentence with a wish is kept whole."""


def _stretch(pieces: list[str], start: int, end: int) -> str:
    kept = _LEADS_IN.sub("", pieces[start])
    for piece in pieces[start + 1 : max(end, start) + 1]:
        if len(kept) + 1 + len(piece) > LONGEST_RULE:
            break
        kept = f"{kept} {piece}"
    if end == start:
        for piece in pieces[start + 1 :]:
            if len(kept) + 1 + len(piece) > LONGEST_RULE // 2 or _ASIDE.match(piece):
                break
            kept = f"{kept} {piece}"
    return cut_rule(kept.rstrip(" ,;:—–?"))
