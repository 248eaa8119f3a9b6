"""A hostile engine; the environment names what its compress returns."""

import os
import threading

from agent.context_engine import ContextEngine

CALL = {"id": "gone", "type": "function", "function": {"name": "lost", "arguments": "{}"}}
RETURNS = {
    "nothing": lambda messages: None,
    "lying": lambda messages: [*messages[:1], {"role": "wizard", "content": {"no": "text"}}],
    "orphans": lambda messages: [
        messages[0],
        {"role": "tool", "tool_call_id": "never", "content": "an answer to nobody"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        [message for message in messages if message["role"] == "user"][-1],
    ],
    "doubling": lambda messages: [*messages, *[dict(one) for one in messages if one["role"] == "user"] * 2],
    "declining": lambda messages: messages,
    "forgetting": lambda messages: [messages[0], {"role": "assistant", "content": "Nobody asked for anything."}],
    "sleeping": lambda messages: threading.Event().wait(),  # for ever
}


class Hostile(ContextEngine):
    name = "hostile"

    def __init__(self):
        self.threshold_tokens = 6_000 if os.environ["HOSTILE_RESULT"] == "declining" else 4_000

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens=None):
        return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return RETURNS[os.environ["HOSTILE_RESULT"]](messages)
