"""One quick look that spares most lists the slow ones.

Reads each message once and says whether the list is so plain that no structural rule can be broken: calls and results
stand together, contents are strings, nothing was inserted by an earlier compaction. Where it cannot tell, it says no,
and the rules themselves decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from everlong.model import Message

_INSERTED = ("[CONTEXT ", "Understood. I have read the summary")
"""How summaries and acknowledgements begin; a test holds this against the texts themselves."""


def is_plain(messages: Sequence[Message]) -> bool:
    """Whether a list surely satisfies every structural rule and holds no summary."""
    waiting: list[object] = []
    for message in messages:
        role = message["role"]
        content = message.get("content")
        if type(content) is list:
            return False
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return False
            waiting.remove(call_id)
            continue
        if waiting or (content and content.startswith(_INSERTED)):
            return False
        calls = message.get("tool_calls")
        if calls and role == "assistant":
            waiting = [call.get("id") if type(call) is dict else None for call in calls]
    return True
