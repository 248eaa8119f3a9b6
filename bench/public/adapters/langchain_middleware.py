"""LangChain's SummarizationMiddleware, as an agent calls it before a request to its model."""

from __future__ import annotations

import importlib
from typing import Any

from bench.public.protocol import Job, Messages, Timed, cpu_of, serve
from bench.public.stub import StubModel

PACKAGES = ("langchain", "langchain-core")


def compact(messages: Messages, model: StubModel, job: Job) -> Timed:
    """Summarize with the default limit on what the model may read."""
    return summarized(messages, model, job)


def summarized(messages: Messages, model: StubModel, job: Job, **options: Any) -> Timed:
    """Run the middleware on a conversation; the system prompt is not part of an agent's messages."""
    core: Any = importlib.import_module("langchain_core.messages")
    middleware: Any = importlib.import_module("langchain.agents.middleware")
    if job.room is not None:
        options["keep"] = ("tokens", max(1, job.keep))
    engine = middleware.SummarizationMiddleware(_chat_model(model), trigger=("messages", 1), **options)
    start = next((at for at, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    held = core.convert_to_messages(messages[start:])
    for number, message in enumerate(held):
        message.id = str(number)
    made, spent = cpu_of(lambda: engine.before_model({"messages": held}, None))
    left = held if made is None else [one for one in made["messages"] if not isinstance(one, core.RemoveMessage)]
    return Timed([*messages[:start], *core.convert_to_openai_messages(left)], spent)


def _chat_model(model: StubModel) -> Any:
    chat: Any = importlib.import_module("langchain_core.language_models.chat_models")
    core: Any = importlib.import_module("langchain_core.messages")
    outputs: Any = importlib.import_module("langchain_core.outputs")

    class Chat(chat.BaseChatModel):  # type: ignore[misc]  # the base is only known where the package is
        @property
        def _llm_type(self) -> str:
            return "stub"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
            del stop, run_manager
            said = model.answer("\n".join(str(one.text) for one in messages), options.get("max_tokens"))
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=core.AIMessage(said))])

    return Chat()


if __name__ == "__main__":
    serve(PACKAGES, compact)
