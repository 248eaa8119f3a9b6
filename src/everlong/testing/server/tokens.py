"""The server's own idea of a token: four letters or digits, or one of any other sign.

It is a real count in the sense that matters to a client: the server bills by it, enforces its window by it and reports
it. It is not the counter of the package, on purpose: a client has to live with a server that counts otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_TOKEN = re.compile(r"[A-Za-z0-9_]{1,4}|[^\sA-Za-z0-9_]")
IMAGE_TOKENS = 1_200
MESSAGE_TOKENS = 4
"""What every message costs besides its words."""
_FRAME = frozenset({"type", "role", "cache_control", "signature", "media_type"})
_PICTURES = frozenset({"image", "image_url", "input_image", "document"})


@lru_cache(maxsize=65_536)
def count_text(text: str) -> int:
    """The tokens of a text."""
    return sum(1 for _ in _TOKEN.finditer(text))


def count_value(value: Any) -> int:
    """The tokens of all words in a JSON value; pictures cost a fixed number, frames and signatures nothing."""
    if isinstance(value, str):
        return count_text(value)
    if isinstance(value, Mapping):
        if str(value.get("type")) in _PICTURES:  # a property of a schema may have this name, and any value
            return IMAGE_TOKENS
        return sum(_named(name, item) for name, item in value.items() if name not in _FRAME)
    if isinstance(value, list | tuple):
        return sum(count_value(item) for item in value)
    return 1 if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _named(name: str, value: Any) -> int:
    # In the schema of a tool and the input of a call the names are words that the model reads.
    known = {"text", "content", "thinking", "data", "id", "tool_use_id", "tool_call_id", "input", "arguments"}
    known |= {"call_id", "output", "summary", "encrypted_content"}
    return count_value(value) + (0 if name in known else count_text(name))
