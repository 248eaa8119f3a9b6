"""Raises in the one method that the environment names, and works otherwise."""

import os

from agent.context_engine import ContextEngine


class Raising(ContextEngine):
    def __init__(self):
        self.where = os.environ["HOSTILE_METHOD"]
        self.threshold_tokens = 4_000

    def _maybe(self, method):
        if method == self.where:
            kind = SystemExit if os.environ.get("HOSTILE_KIND") == "exit" else RuntimeError
            raise kind(f"nobody home in {method}")

    @property
    def name(self):
        # Asked before anything else can be set up.
        if os.environ["HOSTILE_METHOD"] == "name":
            raise RuntimeError("nobody home in name")
        return "raising"

    def update_from_response(self, usage):
        self._maybe("update_from_response")
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens=None):
        self._maybe("should_compress")
        return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self._maybe("compress")
        kept = messages[-3:]
        while kept and kept[0]["role"] != "user":
            kept = kept[1:]
        self.compression_count += 1
        return [messages[0], *kept]

    def should_compress_preflight(self, messages):
        self._maybe("should_compress_preflight")
        return False

    def has_content_to_compress(self, messages):
        self._maybe("has_content_to_compress")
        return True

    def on_session_start(self, session_id, **kwargs):
        self._maybe("on_session_start")

    def on_session_end(self, session_id, messages):
        self._maybe("on_session_end")

    def on_session_reset(self):
        self._maybe("on_session_reset")
        super().on_session_reset()

    def update_model(self, model, context_length, base_url="", api_key="", provider=""):
        self._maybe("update_model")
        self.context_length = context_length

    def get_tool_schemas(self):
        self._maybe("get_tool_schemas")
        return [{"name": "raising_tool", "description": "Does it.", "parameters": {"type": "object", "properties": {}}}]

    def handle_tool_call(self, name, args, **kwargs):
        self._maybe("handle_tool_call")
        return '{"done": true}'

    def get_status(self):
        self._maybe("get_status")
        return super().get_status()
