"""Signs that a person cannot see, or that change the order of others: a text with them says more than it shows."""

from __future__ import annotations

import re

LINE_ENDS = re.compile("\r\n?|[\u2028\u2029\x85\x0b\x0c\x1c-\x1e]")
"""All ends of lines but the plain one."""
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters but tab and line feed, fillers, marks of direction, tags, variation selectors that no emoji needs,
halves of characters."""
