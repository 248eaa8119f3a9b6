"""Everlong's compressor, with the stubbed model as its summarizer."""

from __future__ import annotations

from bench.public.protocol import Job, Messages, serve
from bench.public.stub import StubModel, text_of
from bench.retention.methods import compacted_by
from everlong import CompletionSummarizer, ContextCompressor

PACKAGES = ("everlong",)


def compact(messages: Messages, model: StubModel, job: Job) -> Messages:
    """Compact to a room, or as the defaults say."""

    def complete(messages: Messages, max_tokens: int) -> str:
        return model.answer("\n".join(map(text_of, messages)), max_tokens)

    engine = ContextCompressor(job.window, summarizer=CompletionSummarizer(complete, concurrency=1))
    return engine_result(engine, messages, job)


def engine_result(engine: ContextCompressor, messages: Messages, job: Job) -> Messages:
    """Return what an engine of Everlong makes of a conversation.

    Raises:
        ValueError: the room is too small.
    """
    if job.room is None:
        return engine.compress(messages)
    made = compacted_by(engine, messages, job.room)
    if made is None:
        raise ValueError(f"{job.room} tokens cannot be reached")
    return made


if __name__ == "__main__":
    serve(PACKAGES, compact)
