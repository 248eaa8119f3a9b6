"""What anything that counts tokens of a text looks like.

Knows nothing of messages, models or vocabularies; those build on this.
"""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """Counts the tokens of a text; never raises on a ``str``, and gives the same count every time."""

    name: str
    """What the count is made with: a vocabulary's name, or ``estimate``."""

    exact: bool
    """Whether counts are those of a real vocabulary rather than an estimate."""

    def count_text(self, text: str) -> int:
        """The number of tokens of a text; 0 for the empty one."""
        ...
