"""A hostile engine; what it does is in its compress."""

from .work import work

from agent.context_engine import ContextEngine


class Hostile(ContextEngine):
    name = "declining"

    def __init__(self):
        self.threshold_tokens = 6_000

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens=None):
        return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return work(messages)
