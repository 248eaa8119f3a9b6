"""The goal of a conversation: the first request, or in a long talk the wish that most of it is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from everlong.context.summary.clauses import Clause, clauses, prose
from everlong.context.summary.figures import WORD
from everlong.context.summary.tasks import Task
from everlong.context.text import clip

_MAKES = re.compile(
    r"\b(?:build|craft|creat|develop|writ|design|launch|plan|prepar|mak|start|updat|improv|learn|stud|master|understand)"
    r"\w{0,3}\b|\b(?:work(?:ing)? on|get(?:ting)? (?:an?|my|the|into)|find(?:ing)? (?:an?|my)|mov(?:e|ing) (?:to|into)|"
    r"apply(?:ing)? (?:to|for)|goal|dream|aim(?:ing)?)\b|做|写|开发|搭建|实现|计划|学习|准备",
    re.IGNORECASE,
)
"""Words of someone who sets out for something larger than one request."""
_OWN_MAKING = re.compile(
    r"i(?:'m| am) (?:\w+ )?(?:building|creating|developing|writing|planning|preparing|working)\b", re.IGNORECASE
)
_HAS_AIM = re.compile(
    r"\b(?:my|our|the) (?:\w+ )?(?:goal|aim|dream|plan) is(?: to)?\b|\b(?:eager|want|wanting|hoping|looking|trying"
    r"|aiming|planning|determined|need|going) to\b|我想|我要|目标",
    re.IGNORECASE,
)
_TELLS = re.compile(r"(?:i|i'm|i've|i'd|i'll|my|it|it's|the|that|this|there|she|he|they)\b", re.IGNORECASE)
"""Beginnings of clauses that tell how things are or went; they set no goal."""
_ONE_THING = re.compile(r"\b(?:this|these|those)\b", re.IGNORECASE)
_OF_THE_HELPER = re.compile(
    r"(?:recommend|suggest|provide|give|explain|show|tell|review|check|list|compare|find out)\b", re.IGNORECASE
)
"""Tasks for the assistant are steps; the goal is what the person is after."""
_INTRODUCES = re.compile(
    r"\b(?:[Ii](?:'m| am) [A-Z][\w'-]+(?: [A-Z][\w'-]+)*(?:,|$| and\b)|[Mm]y name is\b)"
    r"|\b[Ii](?:'m| am) an? (?:\d+|[\w-]+)[ -](?:[\w-]+ ){0,4}(?:from|in|at|who|with|based|living|working)\b|我叫"
)
"""Introductions: people who say who they are also say what they came for."""
_PRESENTS = re.compile(
    r"[Ii](?:'m| am) (?:[A-Z]|an? )(?!.*\b(?!living\b|working (?:as|at|for)\b|studying at\b)\w+ing\b)"
)
"""Introductions without a purpose."""
_LAYS_DOWN = re.compile(r"(?:never|always|don't|do not|whenever|please|from now on)\b", re.IGNORECASE)
"""Beginnings of rules on how to help; a rule is no goal."""
_PREPARES = re.compile(r"(?:read|look at|look into|see|open|check out|study|review)\b", re.IGNORECASE)
"""Things to look at before the work."""
_QUESTION = re.compile(
    r"(?:what|how|why|who|whose|which|where|when|does|do|did|is|are|am|was|were|should)\b", re.IGNORECASE
)
_COMMON_WORDS = re.compile(
    r"the|and|for|with|that|this|from|have|has|are|can|how|using|use|used|like|into|make|sure|want|need|help|some|"
    r"my|our|your|been|get|also|which|when|what|would|should|could|them|then|its|it's|i'm|i've|not|but|there|any|"
    r"about|out|each|other|more|will|know|show|give|before|after|first|new|two|you|all|code|example|better|best|way"
)
_LONG_TALK = 6
"""From this many requests on, the first one need not be the goal."""
_LEAST_WORDS = 2
_SUBJECT_WORDS = 8
"""The most frequent words that count as the subject of a talk."""
_NAMED = 2
"""The most subject words that count in a clause; more are details."""
_LEAST_SPREAD = 3
_CLEARLY, _SURELY = 1.5, 4.0
"""Factors by which a wish must beat the opening, and a goal found before, to replace it."""
_DETAIL = 6
"""This many words beside the subject's halve a clause's score."""
_LEAST_PURPOSE = (1.0, 1.8)
"""The least purpose of a clause that can be the goal: in the turns, and in an earlier summary.

An earlier summary quotes statements and wishes alike, so it takes more to find a goal there.
"""
_LEAST_SHARE = 0.12
"""The least share of requests that must have a word for it to count as subject."""
_LONGEST, _BRIEF = 320, 140
_MOST_TASKS = 400


def goal_in(opening: str, *, brief: bool = False) -> str:
    """Return the goal as a person first said it, in whole clauses."""
    most = _BRIEF if brief else _LONGEST
    text = ""
    said = clauses(prose(opening[:6_000]))
    wants = [clause for clause in said if not _PRESENTS.match(clause.text)] or said
    if wants and _PREPARES.match(wants[0].text):
        wants = [clause for clause in wants if _HAS_AIM.search(clause.text)] or wants
    if wants and _TELLS.match(wants[0].text) and not _HAS_AIM.search(wants[0].text):
        wants = [clause for clause in wants if clause.wished and len(_words(clause.text)) >= _LEAST_WORDS] or wants
    for clause in wants:
        if text and (clause.hangs or clause.text.casefold() in text.casefold()):
            break
        if text and len(text) + len(clause.text) + 2 > most:
            break
        text = f"{text}, {clause.text}" if text else clause.text
        if len(text) > most:
            break
    return clip(text or " ".join(opening.split()), _LONGEST)


def central_goal(tasks: Sequence[Task], opening: str, known: str = "") -> str:
    """Return the goal of a long talk; empty if the talk is short or its opening or known goal still fits."""
    asked = [task for task in tasks if task.clauses][-_MOST_TASKS:]
    if len(asked) < _LONG_TALK:
        return ""
    spread = _subject(asked)
    best, most = "", 0.0
    for place, task in enumerate(asked):
        said = (*task.clauses, *task.stated)
        introduced = 2.5 if any(_INTRODUCES.search(clause.text) for clause in said) else 1.0
        early = 1.0 - 0.5 * place / len(asked)
        for clause in said:
            text = clause.text.rstrip("?？")
            is_question = _QUESTION.match(text) or (text != clause.text and not clause.wished)
            purpose = _purpose(clause)
            if is_question or clause.hangs or len(text) > _LONGEST or purpose < _LEAST_PURPOSE[task.order < 0]:
                continue
            aim = _aim(text)
            score = _centrality(aim, spread) * purpose * introduced * early
            if score > most:
                best, most = aim, score
    text = goal_in(known or opening, brief=True)
    standing = _centrality(text, spread) * (2.0 if _MAKES.search(text) else 1.0)
    return best if most > standing * (_SURELY if known else _CLEARLY) else ""


def _subject(asked: Sequence[Task]) -> dict[str, float]:
    """Return the most frequent words of the requests, each with the share of requests that have it.

    The verb that begins a wish is left out: it says what to do with the subject, not what the subject is.
    """
    words: Counter[str] = Counter()
    for task in asked:
        mine: set[str] = set()
        for clause in (*task.clauses, *task.stated):
            mine |= _words(clause.text.partition(" ")[2] if clause.wished else clause.text)
        words.update(mine)
    least = max(_LEAST_SPREAD, _LEAST_SHARE * len(asked))
    recurring = ((word, count) for word, count in words.most_common(_SUBJECT_WORDS) if count >= least)
    return {word: count / len(asked) for word, count in recurring}


def _aim(text: str) -> str:
    """Return what someone wants to do, without who they are; the whole clause if it does not say both."""
    aim = _HAS_AIM.search(text) if _TELLS.match(text) else None
    found = text[aim.end() :].strip(" :,") if aim else ""
    return found if len(_words(found)) >= _LEAST_WORDS and _MAKES.search(found) else text


def _purpose(clause: Clause) -> float:
    """Return a score for how much a clause sounds like something a person sets out to do."""
    text = clause.text.replace("’", "'")
    if _ONE_THING.search(text) or _OF_THE_HELPER.match(text) or _LAYS_DOWN.match(text):
        return 0.3
    makes = _MAKES.search(text) is not None
    if _TELLS.match(text) and not _OWN_MAKING.match(text):
        return 1.8 if makes and _HAS_AIM.search(text) else 0.2
    return 2.0 if makes else 1.0 if clause.wished else 0.4


def _centrality(text: str, spread: Mapping[str, float]) -> float:
    """Return a score for how much of the subject a clause names, and how little else."""
    mine = _words(text)
    if len(mine) < _LEAST_WORDS:
        return 0.0
    named = sorted((spread[word] for word in mine if word in spread), reverse=True)
    return sum(named[:_NAMED]) * _DETAIL / (_DETAIL + len(mine) - len(named))


def _words(text: str) -> set[str]:
    """Return the meaningful words of a text, in the singular."""
    found = (word for word in map(str.lower, WORD.findall(text)) if not _COMMON_WORDS.fullmatch(word))
    return {word[:-1] if len(word) > 4 and word[-1] == "s" and word[-2] != "s" else word for word in found}
