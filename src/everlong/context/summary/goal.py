"""What the user wants over all.

Of a short talk that is what was said first. People who talk for long come with a small question and stay for a
project: then it is the request whose words recur most in the others. Compares words; what they mean is not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from everlong.context.summary.tasks import Task
from everlong.context.summary.text import clip
from everlong.context.summary.wording import Clause, clauses, prose

_WORD = re.compile(r"[^\W\d_]{3,}|[\u3400-\u9fff]{2}")
_UNDERTAKES = re.compile(
    r"\b(?:build|building|creat\w+|develop\w*|implement\w*|set up|setting up|writ\w+|design\w*|plan\w*|launch\w*|"
    r"project|working on|"
    r"finish\w*|learn\w*|prepar\w+|migrat\w+|move|book\w*|fix\w*)\b|做|写|开发|搭建|实现|计划",
    re.IGNORECASE,
)
_BUILDS = re.compile(
    r"\b(?:building|build|creating|create|developing|develop|working on|writing|write|launch|planning|preparing|"
    r"start(?:ing)?) "
    r"(?:my|an?|the|our|this) |\b(?:my|our) (?:\w+ ){0,3}(?:project|app|website|site|essay|thesis|book|novel|"
    r"business|resume|portfolio)\b",
    re.IGNORECASE,
)
"""Words of someone who makes something that takes more than one request."""
_FEELS = re.compile(
    r"i\b(?!(?:'m|’m| am) (?:building|working|creating|developing|writing|planning|preparing))"
    r"|my (?!goal|project|plan)",
    re.IGNORECASE,
)
"""People who tell how they are, or what they did, set out to do nothing yet."""
_COMMON_WORDS = re.compile(
    r"the|and|for|with|that|this|from|have|has|are|can|how|using|use|used|like|into|make|sure|want|need|help|some|"
    r"my|our|"
    r"your|been|get|also|which|when|what|would|should|could|them|then|its|it's|i'm|i've|not|but|there"
)
_LONG_TALK = 6
"""So many requests, and the first of them need not be what it is all about."""
_LEAST_WORDS = 4
_SUBJECT_WORDS = 12
"""So many of the words that recur most tell what a talk is about."""
_CLEARLY = 3.0
"""A request takes the place of the known goal where its words recur so much more."""
_LONGEST, _BRIEF = 320, 140
_MOST_TASKS = 400


def goal_in(opening: str, *, brief: bool = False) -> str:
    """The goal as a person said it first, in whole clauses."""
    most = _BRIEF if brief else _LONGEST
    text = ""
    for clause in clauses(prose(opening[:6_000])):
        if text and len(text) + len(clause.text) + 2 > most:
            break
        text = f"{text}, {clause.text}" if text else clause.text
        if len(text) > most:
            break
    return clip(text or " ".join(opening.split()), _LONGEST)


def central_goal(tasks: Sequence[Task], known: str) -> str:
    """The request that a long talk is about; empty where the talk is short, or what is known as the goal still is."""
    asked = [task for task in tasks if task.clauses][-_MOST_TASKS:]
    if len(asked) < _LONG_TALK:
        return ""
    words = [_words(" ".join(clause.text for clause in (*task.clauses, *task.stated))) for task in asked]
    counted = Counter(word for mine in words for word in mine)
    spread = Counter(dict(counted.most_common(_SUBJECT_WORDS)))
    best, most = "", 0.0
    for task in asked:
        for clause in (*task.clauses[:2], *task.stated[:2]):
            mine = _words(clause.text)
            if len(mine) < _LEAST_WORDS or clause.asks or clause.hangs or len(clause.text) > _LONGEST:
                continue
            score = _centrality(mine, spread) * _purpose(clause)
            if score > most:
                best, most = clause.text, score
    mine = _words(goal_in(known, brief=True)) if known else set()
    standing = _centrality(mine, spread) * 1.4 if len(mine) >= _LEAST_WORDS else 0.0
    return best if most > _CLEARLY * standing else ""


def _purpose(clause: Clause) -> float:
    """How much a clause sounds like something that a person sets out to do."""
    if _FEELS.match(clause.text):
        return 0.2
    return (
        2.0
        if _BUILDS.search(clause.text)
        else 1.2
        if _UNDERTAKES.search(clause.text)
        else 1.0
        if clause.wished
        else 0.4
    )


def _centrality(words: set[str], spread: Counter[str]) -> float:
    return sum(spread[word] for word in words) / (len(words) + 8)


def _words(text: str) -> set[str]:
    return {word for word in map(str.lower, _WORD.findall(text)) if not _COMMON_WORDS.fullmatch(word)}
