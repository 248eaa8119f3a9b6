"""The screens of a recording that stand in the documentation, each found by what it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.record_chat.cast import Cast
from bench.record_chat.svg import picture

__all__ = ["STILLS", "still", "stills"]

_STATUS = r".*\n(?:.*\n)*?.*│ context "
STILLS = {
    "chat.svg": re.compile(r"so far in this chat\n(?:.*\n){0,12}❯\n.*│ context "),
    "chat-1.svg": re.compile(rf"That was monday\.\n\n❯{_STATUS}"),
    "chat-2.svg": re.compile(rf"⟲ compacted \(the next(?:.*\n)+That was wednesday\.\n\n❯{_STATUS}"),
    "chat-3.svg": re.compile(rf"Pilot boat 4471 brings .*\n\n❯{_STATUS}"),
}
"""Files of docs/recording and what their screens show: ``/context`` at the end, the first answer, a compaction, and a
question about what was said before it."""
_LAST = frozenset({"chat.svg"})
"""Those of which the last screen is meant, not the first."""


def still(cast: Cast, name: str = "chat.svg") -> str:
    """Return a screen of the recording as SVG."""
    return _drawn(cast, name, list(cast.displays()))


def stills(cast: Cast) -> dict[str, str]:
    """Return all screens by their file names."""
    displays = list(cast.displays())
    return {name: _drawn(cast, name, displays) for name in STILLS}


def _drawn(cast: Cast, name: str, displays: Sequence[str]) -> str:
    counts = range(1, len(displays) + 1)
    for count in reversed(counts) if name in _LAST else counts:
        if STILLS[name].search(displays[count - 1]):
            return picture(cast.screen(count), cast.title)
    raise ValueError(f"no screen of the recording is that of {name}; did the story change?")
