import json
from pathlib import Path

from agent.auxiliary_client import call_llm
from agent.context_engine import ContextEngine
from agent.model_metadata import estimate_messages_tokens_rough

from .store import LedgerStore

SCHEMA = {
    "name": "ledger_find",
    "description": "Find what was said by some of its words.",
    "parameters": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
}


class LedgerEngine(ContextEngine):
    def __init__(self, hermes_home="", keep=6):
        self._path = Path(hermes_home) / "ledger.db"
        self._store = None
        self.keep = keep
        self.conversation = ""

    @property
    def name(self):
        return "ledger"

    def on_session_start(self, session_id, **kwargs):
        self._store = self._store or LedgerStore(self._path)
        self.conversation = kwargs.get("conversation_id") or session_id
        self._store.tell("start", session_id, kwargs)

    def on_session_end(self, session_id, messages):
        self._store.add(self.conversation, messages)
        self._store.tell("end", session_id, {"messages": len(messages)})

    def update_model(self, model, context_length, base_url="", api_key="", provider="", api_mode=""):
        self.context_length = context_length
        self.threshold_tokens = context_length // 2

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]
        self.last_completion_tokens = usage["completion_tokens"]
        self.last_total_tokens = usage["total_tokens"]

    def should_compress(self, prompt_tokens=None):
        return (self.last_prompt_tokens if prompt_tokens is None else prompt_tokens) >= self.threshold_tokens

    def should_compress_preflight(self, messages):
        self._store.add(self.conversation, messages)
        return estimate_messages_tokens_rough(messages) >= self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self._store.add(self.conversation, messages)
        start = len(messages) - self.keep
        while start > 1 and messages[start]["role"] != "user":
            start -= 1
        if start <= 1:
            return messages
        told = "\n".join(str(message.get("content"))[:200] for message in messages[1:start])
        answer = call_llm(
            task="compression",
            messages=[{"role": "user", "content": f"## Goal\nSummarize:\n{told}"}],
            temperature=0.3,
            max_tokens=500,
            timeout=30.0,
        )
        summary = f"[Ledger, {start - 1} messages]\n{answer.choices[0].message.content}"
        result = [messages[0], {"role": "assistant", "content": summary}, *messages[start:]]
        self.compression_count += 1
        self.last_prompt_tokens = -1
        return result

    def get_tool_schemas(self):
        return [SCHEMA]

    def handle_tool_call(self, name, args, **kwargs):
        if name != "ledger_find":
            return super().handle_tool_call(name, args, **kwargs)
        self._store.add(self.conversation, kwargs.get("messages") or [])
        return json.dumps({"found": self._store.find(args["words"])})

    def get_status(self):
        return {**super().get_status(), "stored": self._store.count() if self._store else 0}
