"""What a summarizing model gets to read: the turns, escaped, with tool outputs digested.

A digest says what ran and what came out: the beginning, the end and the lines that matter, within a bound; never the
placeholder of a cleared output. Every turn stands between marks that its own text cannot contain, so that no message
can close the transcript or pose as instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from everlong.context.shorten import TextCount, shorten_text
from everlong.context.summary.actions import outcome_of
from everlong.model import Message, calls_of, is_image, parts_of, text_of

_SPOKEN_TOKENS = 2_000
_RESULT_TOKENS = 400
_ARGUMENT_TOKENS = 300
_TAG = re.compile(r"<(?=\s*/?\s*(?:turn|transcript|previous_summary|template|instructions)\b)", re.IGNORECASE)


def escaped(text: str) -> str:
    """Text in which nothing can be mistaken for the prompt's own marks."""
    return _TAG.sub("&lt;", text)


def digest_turn(message: Message, number: int, count: TextCount) -> str:
    """One turn as the summarizer reads it."""
    role = str(message["role"])
    text = text_of(message)
    if role == "tool":
        outcome = outcome_of(text)
        shown = shorten_text(text, _RESULT_TOKENS, count)
        if outcome.line and outcome.line.removesuffix(" ...") not in shown:
            shown = f"{shown}\n(outcome: {outcome.line})"
    else:
        shown = shorten_text(text, _SPOKEN_TOKENS, count)
    images = sum(map(is_image, parts_of(message)))
    extras = [f"[{images} image(s)]"] if images else []
    extras += [
        f"[calls {call.name} with {shorten_text(call.arguments, _ARGUMENT_TOKENS, count)}]"
        for call in calls_of(message)
    ]
    body = escaped("\n".join(part for part in [shown, *extras] if part))
    return f'<turn n="{number}" role="{escaped(role)}">\n{body}\n</turn>'


def digest_parts(turns: Sequence[Message], room: int, count: TextCount) -> Iterator[str]:
    """The digested turns in as many parts as a window of ``room`` tokens needs, none left out."""
    part: list[str] = []
    spent = 0
    for number, message in enumerate(turns, 1):
        digest = shorten_text(digest_turn(message, number, count), room, count)
        tokens = count(digest) + 1
        if part and spent + tokens > room:
            yield "\n".join(part)
            part, spent = [], 0
        part.append(digest)
        spent += tokens
    if part:
        yield "\n".join(part)
