"""What has been added to a request, as bytes to be put into its body: nothing that was there is written anew.

Told by the request before and after: fields that were added to objects, and texts that have become a list with that one
text in an object. Whoever changed anything else has to write the body himself. Knows no API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everlong.gateway.drafts import Draft
from everlong.gateway.raw import Change, Stretch, dumped, fields_at, items_at

__all__ = ["NotAdded", "added"]

_SPACE = b" \t\n\r"


class NotAdded(ValueError):  # noqa: N818 - what has happened is no mistake
    """More has been done to a request than that something was added."""


def added(draft: Draft, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """What to put into a body so that it says what a request says after something was added to it."""
    for name, value in _differing(before, after):
        if name == "messages":
            if len(value) != len(before[name]) or len(value) != len(draft.ends):
                raise NotAdded("there are more or fewer messages")
            for number, (old, new) in enumerate(zip(before[name], value, strict=True)):
                if not _same(old, new):
                    yield from _inside(draft.body, draft.entry(number), old, new)
        else:
            yield from _inside(draft.body, draft.fields[name], before[name], value)
    new = _new(before, after)
    if new:
        place = draft.body.rindex(b"}")
        yield place, place, b"," + new


def _inside(body: bytes, place: Stretch, before: Any, after: Any) -> Iterator[Change]:
    end = place[1]
    if isinstance(before, str):
        yield from _wrapped(place, before, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        differing = _differing(before, after)
        places = fields_at(body, place) if differing else {}
        for name, value in differing:
            yield from _inside(body, places[name], before[name], value)
        if new := _new(before, after):
            yield end - 1, end - 1, b"," + new if before else new
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        changed = [number for number, old in enumerate(before) if not _same(old, after[number])]
        if changed == [len(before) - 1] and _is_only_longer(before[-1], after[-1]):
            last = _last_end(body, end)  # nearly always this one, whose end is found without reading the others
            yield from _inside(body, (last, last), before[-1], after[-1])
            return
        items = items_at(body, place)
        for number in changed:
            yield from _inside(body, items[number], before[number], after[number])
    else:
        raise NotAdded(f"a {type(before).__name__} has become another value")


def _last_end(body: bytes, end: int) -> int:
    """Where the last item of a list has ended."""
    last = end - 1
    while body[last - 1] in _SPACE:
        last -= 1
    return last


def _wrapped(place: Stretch, before: str, after: Any) -> Iterator[Change]:
    """A text that has become a list with that text."""
    part = after[0] if isinstance(after, list) and len(after) == 1 else None
    if not isinstance(part, dict) or part.get("type") != "text" or part.get("text") != before:
        raise NotAdded("a text has become something else")
    rest = _new({"type": 0, "text": 0}, part)
    yield place[0], place[0], b'[{"type":"text","text":'
    yield place[1], place[1], (b"," + rest if rest else b"") + b"}]"


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields that are not what they were."""
    if before.keys() - after.keys():
        raise NotAdded("something was taken out")
    return [(name, after[name]) for name, value in before.items() if not _same(value, after[name])]


def _new(before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
    """The fields that were not there, as they are written into an object."""
    return b",".join(dumped(name) + b":" + dumped(value) for name, value in after.items() if name not in before)


def _is_only_longer(before: Any, after: Any) -> bool:
    return isinstance(before, dict) and isinstance(after, dict) and not _differing(before, after)


def _same(before: Any, after: Any) -> bool:
    return before is after or bool(before == after)
