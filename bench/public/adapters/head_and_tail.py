"""Head and tail, no package: the first exchange and the newest groups of messages that fit."""

from __future__ import annotations

from bench.public.adapters.sliding_window import DEFAULT_ROOM, PACKAGES
from bench.public.protocol import Job, Messages, serve
from bench.public.stub import StubModel
from bench.retention.methods import head_tail


def compact(messages: Messages, model: StubModel, job: Job) -> Messages:
    """Keep the first exchange and the newest."""
    del model
    return head_tail(messages, job.room or DEFAULT_ROOM) or []


if __name__ == "__main__":
    serve(PACKAGES, compact)
