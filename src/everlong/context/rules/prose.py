"""The sentences that people write themselves, without code, quoted lines and pasted documents.

Wrapped lines are joined. Also the value `FoundRule`, which the detection in each language yields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from everlong.context.text import one_line

Kind = Literal["rule", "preference"]
LONGEST_RULE = 320
"""The most characters of a rule; of a longer sentence only the clauses that say it are kept."""
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)|```.*?(?:```|\Z)", re.DOTALL | re.MULTILINE)
_QUOTE_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_INDENTED = re.compile(r"(?:\A|\n)[ \t]*\n(?:(?: {4}|\t)[^\n]*(?:\n|\Z))+")
_CODE_MARK = "\x00"
_GIVEN = re.compile(
    r"\b(?:here(?:'s| is| are)|following|below|paste[ds]?|says?|said|reads?|states?|error|log|output|readme|article"
    r"|document|docs|e?-?mail|letter|translate|summari[sz]e|proofread|rewrite|review|text|transcript|guide|spec)\b"
    r"|如下|以下|下面|翻译|总结|报错|日志|文档|邮件|文章|润色|改写",
    re.IGNORECASE,
)
_GIVEN_HERE = re.compile(
    r"^(?:(?:please|can you|could you)\s+)?(?:here(?:'s| is| are) (?:the|my|an?|what|his|her|their)\b"
    r"|translate|summari[sz]e|proofread|rewrite|the (?:e?-?mail|error|log|message|text) (?:says|reads"
    r"|is))[^:]{0,80}:\s+\S"
    r"|^(?:请|帮我)?(?:把.{0,12})?(?:翻译|总结|润色|改写)[^:：]{0,30}[:：]\s*\S",
    re.IGNORECASE,
)
_ABOUT_RULES = re.compile(
    r"\b(?:rules?|guidelines?|instructions?|requirements?|constraints?|conventions?)\b|规则|要求|规定|约定|规范",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^#{1,6}[ \t][^\n]*$", re.MULTILINE)
_REPORT_MARK = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|\*\*)?(?:summary|description|motivation|changes|what changed|what does this pr do"
    r"|test plan|testing|how (?:was this|has this been) tested|steps to reproduce|to reproduce|reproduction(?: steps)?"
    r"|expected (?:behaviou?r|result)|actual (?:behaviou?r|result)|current behaviou?r"
    r"|describe the (?:bug|solution|issue)|environment|screenshots?|checklist|related issues?|linked issues?"
    r"|additional context|proposed (?:solution|change)|alternatives(?: considered)?|type of change"
    r"|bug report|feature request|release notes|breaking changes"
    r"|acceptance criteria|reviewers?|labels|assignees?)[ \t]*(?:\*\*)?:?(?:\*\*)?[ \t]*$"
    r"|^[ \t]*[-*] \[[ xX]\] "
    r"|^[ \t]*(?:fixes|closes|resolves|refs) #\d+|^(?:signed-off-by|co-authored-by|reviewed-by): |^@[\w-]+ commented\b"
    r"|^diff --git |^commit [0-9a-f]{7,40}$|^on [^\n]{6,80} wrote:$",
    re.IGNORECASE | re.MULTILINE,
)
_MARKS_OF_A_REPORT = 2
"""The number of different headings typical of an issue or pull request that make a text one."""
_LIST_ITEM = re.compile(r"\s*(?:[-*•]|(?<!\d)\d+[.)、])\s+")
_WIDE_GAP = " " * 40
"""More white space than anybody means; it is collapsed because expressions would scan it again and again."""
_ENDS = ".!?。！？；;:：…"
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+(?=[\"'“(\[]?[A-Z0-9\u3400-\u9fff`])|(?<=[。！？；])\s*|(?<=[.!?][\"”)])\s+(?=[A-Z])"
)


class FoundRule(NamedTuple):
    """A rule in a person's own words."""

    text: str
    kind: Kind


def prose_sentences(text: str, *, of_project: bool = False) -> list[str]:
    """Return the sentences that a person wrote, without code, quoted lines and pasted documents.

    Project instructions are documents with headings like those of an issue, so ``of_project`` keeps these.
    """
    plain = _FENCE.sub(f"\n{_CODE_MARK}\n", text.replace("\r\n", "\n"))
    plain = _INDENTED.sub(f"\n{_CODE_MARK}\n", _QUOTE_LINE.sub("", plain))
    if not of_project:
        plain = _without_report(plain)
    return [
        piece for line in _join_wrapped_lines(plain) for raw in _SENTENCE_END.split(line) if (piece := one_line(raw))
    ]


def _without_report(text: str) -> str:
    """Return a text without a pasted issue or pull request, up to the next section of rules in it."""
    marks = {mark[0].strip(" #*:-\t").casefold(): mark.start() for mark in _REPORT_MARK.finditer(text)}
    if len(marks) < _MARKS_OF_A_REPORT:
        return text
    start = min(marks.values())
    rules = next((found for found in _HEADING.finditer(text, start) if _ABOUT_RULES.search(found[0])), None)
    return text[:start] + (f"\n\n{text[rules.end() :]}" if rules else "")


def _join_wrapped_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, wrapped ones joined, without an announced document."""
    held = ""
    is_given = False
    for line in [*text.split("\n"), ""]:
        bare = one_line(line) if _WIDE_GAP in line else line.strip()
        if bare == _CODE_MARK:
            is_given = False  # the announced document was code
            bare = ""
        starts_anew = not bare or _LIST_ITEM.match(line) is not None or bare.startswith(("#", "|"))
        if held and _GIVEN_HERE.match(held) and not _ABOUT_RULES.search(held[: held.find(":")]):
            held, is_given = "", True
        if held and (starts_anew or held[-1] in _ENDS or not (bare[0].islower() or held.endswith(","))):
            if not is_given:
                yield held
            is_given = is_given or (held[-1] in ":：" and bool(_GIVEN.search(held)) and not _ABOUT_RULES.search(held))
            held = ""
        if bare and not bare.startswith(("#", "|")):
            bare = _LIST_ITEM.sub("", bare)
            held = f"{held} {bare}" if held else bare
    if held and not is_given:
        yield held


def cut_rule(text: str, around: re.Match[str] | None = None) -> str:
    """Return at most `LONGEST_RULE` characters of a text, from the wish on, cut between words."""
    start = 0 if around is None or around.end() < LONGEST_RULE else around.start()
    if len(text) - start <= LONGEST_RULE:
        return text[start:]
    end = text.rfind(" ", start, start + LONGEST_RULE)
    return text[start : end if end > start else start + LONGEST_RULE]
