"""The checks of a summary: they report, and change nothing.

A check can fail: the summary may not name the task or the newest request, may have few of the names that recur, or
names that are nowhere in the source. `check_summary` returns the findings as a `Quality`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from everlong.context.document import SummaryDocument
from everlong.context.names import entities, names_by_line
from everlong.context.report import Quality
from everlong.model import Message, whole_text

if TYPE_CHECKING:
    from everlong.context.summarizers import SummaryRequest

__all__ = ["check_summary", "invented_names"]

_LOOKED_AT = 60_000
"""Characters of the source in which recurring names are counted; of a longer one, a sample of its messages."""
_TELLING = 0.3
"""The share of the telling words of a request that a summary must have to name it; one in other words has few."""
_FEWEST_TELLING = 4
"""A request with fewer telling words, such as a greeting, need not be named."""
_LONGEST_REQUEST = 600
"""Characters of a request whose words are looked for."""
_MOST_WANTED = 400
_WORD = re.compile(r"[^\W\d_]{4,}|[\u3400-\u9fff\u3040-\u30ff]")
_PIECE = re.compile(r"[A-Za-z0-9_]+")


def check_summary(
    text: str,
    request: SummaryRequest,
    *,
    rules: tuple[int, int] = (0, 0),
    problems: Sequence[str] = (),
    prose: str | None = None,
) -> Quality:
    """Return the findings on a summary; only its ``prose``, all of it if not given, may invent names."""
    told = _without_names(text).casefold()
    found = list(problems)
    if not SummaryDocument.parse(text).items["Goal"]:
        found.append("it has no Goal")
    return Quality(
        task_kept=_is_named(request.opening_words, told),
        request_kept=_is_named(request.newest_words, told),
        names_kept=_names_kept(text, request),
        rules_kept=rules,
        invented=tuple(invented_names(text if prose is None else prose, _source(request))),
        problems=tuple(found),
    )


def _is_named(words: str, told: str) -> bool:
    """Return whether a text has enough of the telling words of a request."""
    wanted = set(_WORD.findall(_without_names(words[:_LONGEST_REQUEST]).casefold()))
    return len(wanted) < _FEWEST_TELLING or sum(word in told for word in wanted) >= _TELLING * len(wanted)


def _without_names(text: str) -> str:
    """Return the words of a text that name nothing: a list of names says nothing about a request."""
    words = text.split()
    return " ".join(word for word, names in zip(words, names_by_line(words), strict=True) if not names)


def _names_kept(text: str, request: SummaryRequest) -> float:
    """Return the share of recurring names that a summary has."""
    step = 1 + sum(len(str(message.get("content") or "")) for message in request.turns) // _LOOKED_AT
    covered = [set(entities(whole_text(message))) for message in request.turns[::step]]
    counted = Counter(name for names in covered for name in names)
    later = set(entities("\n".join(map(whole_text, request.after))))
    wanted = [name for name, times in counted.most_common() if times > 1 or name in later][:_MOST_WANTED]
    wanted = wanted or list(counted)[:_MOST_WANTED]
    return len(set(wanted).intersection(entities(text))) / len(wanted) if wanted else 1.0


def _source(request: SummaryRequest) -> str:
    messages: Iterable[Message] = [*request.prefix, *request.before, *request.turns, *request.after]
    unique = {id(message): message for message in messages}.values()
    more = (request.previous, request.memory_context, request.focus_topic)
    return "\n".join([*map(whole_text, unique), *(text for text in more if text)])


def invented_names(text: str, source: str) -> list[str]:
    """Return the names of a text that are nowhere in the source; a dotted name is there if its parts are."""
    names = [name for name in dict.fromkeys(entities(text)) if not _is_plain_number(name)]
    unknown = [name for name in names if name not in source]
    if not unknown:
        return []
    whole = source.casefold()
    return [name for name in unknown if not all(part.casefold() in whole for part in _PIECE.findall(name))]


def _is_plain_number(name: str) -> bool:
    """Return whether a name is a small number, which a writer may have counted."""
    return name.isdigit() and len(name) < 3
