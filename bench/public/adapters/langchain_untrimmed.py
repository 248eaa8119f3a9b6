"""LangChain's SummarizationMiddleware whose model may read everything, not only the newest 4,000 tokens of it."""

from __future__ import annotations

from bench.public.adapters.langchain_middleware import PACKAGES, summarized
from bench.public.protocol import Job, Messages, Timed, serve
from bench.public.stub import StubModel


def compact(messages: Messages, model: StubModel, job: Job) -> Timed:
    """Summarize with `trim_tokens_to_summarize=None`."""
    return summarized(messages, model, job, trim_tokens_to_summarize=None)


if __name__ == "__main__":
    serve(PACKAGES, compact)
