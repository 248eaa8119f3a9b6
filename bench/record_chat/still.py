"""The one screen of a recording that stands in the documentation: the last one with the chat's own status line."""

from __future__ import annotations

import re

from bench.record_chat.cast import Cast
from bench.record_chat.svg import picture

__all__ = ["still"]

_WANTED = re.compile(r"so far in this chat\n(?:.*\n){0,12}❯\n.*│ context ")
"""The end of ``/context``, an empty prompt, and the status line."""


def still(cast: Cast) -> str:
    """Return the screen as SVG, after the last ``/context``."""
    for count in range(len(cast.events), 0, -1):
        screen = cast.screen(count)
        text = "\n".join(line.rstrip() for line in screen.display)
        if _WANTED.search(text):
            return picture(screen, cast.title)
    raise ValueError("no screen of the recording shows /context; did the story change?")
