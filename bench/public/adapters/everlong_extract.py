"""Everlong's compressor without a model: its built-in summary."""

from __future__ import annotations

from bench.public.adapters.everlong_model import PACKAGES, engine_result
from bench.public.protocol import Job, Messages, serve
from bench.public.stub import StubModel
from everlong import ContextCompressor


def compact(messages: Messages, model: StubModel, job: Job) -> Messages:
    """Compact to a room, or as the defaults say."""
    del model
    return engine_result(ContextCompressor(job.window), messages, job)


if __name__ == "__main__":
    serve(PACKAGES, compact)
