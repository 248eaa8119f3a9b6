"""The compressor of Hermes Agent with its defaults; the window follows from how much of the newest it is to keep."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from bench.public.protocol import Job, Messages, Timed, cpu_of, serve
from bench.public.stub import StubModel, text_of

PACKAGES = ("hermes-agent",)
_TAIL_SHARE = 0.75 * 0.20 * 1.25
"""Of a small window: threshold, target ratio, and the middle of the tail's soft ceiling of 1.5."""
_LEAST_WINDOW = 4_096


def compact(messages: Messages, model: StubModel, job: Job) -> Timed:
    """Compact with a fresh engine; the former summary is found in the conversation."""
    module: Any = importlib.import_module("agent.context_compressor")

    def call_llm(**asked: Any) -> Any:
        prompt = "\n".join(text_of(message) for message in asked.get("messages", ()))
        said = SimpleNamespace(content=model.answer(prompt, asked.get("max_tokens")), tool_calls=None, reasoning=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=said, finish_reason="stop")], usage=None)

    module.call_llm = call_llm
    window = job.window if job.room is None else max(_LEAST_WINDOW, int(job.keep / _TAIL_SHARE))
    engine = module.ContextCompressor(model="stub", quiet_mode=True, config_context_length=window)
    made, spent = cpu_of(lambda: engine.compress(messages, force=True))
    bare = [{key: value for key, value in message.items() if not key.startswith("_")} for message in made]
    return Timed(bare, spent)


if __name__ == "__main__":
    serve(PACKAGES, compact)
