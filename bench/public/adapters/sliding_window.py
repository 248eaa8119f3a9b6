"""A sliding window, no package: the system prompt and the newest groups of messages that fit."""

from __future__ import annotations

from bench.public.protocol import Job, Messages, serve
from bench.public.stub import StubModel
from bench.retention.methods import keep_last

PACKAGES = ()
DEFAULT_ROOM = 20_000


def compact(messages: Messages, model: StubModel, job: Job) -> Messages:
    """Keep the newest."""
    del model
    return keep_last(messages, job.room or DEFAULT_ROOM) or []


if __name__ == "__main__":
    serve(PACKAGES, compact)
