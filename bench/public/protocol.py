"""JSON lines between the benchmark and an adapter: one request on a line of stdin, one answer on a line of stdout.

An adapter is a module with `PACKAGES`, the packages whose versions it tells, and `compact(messages, model, job)`, which
returns the compacted list. It runs as a program in its package's environment and needs the standard library and that
package only. Requests, by ``op``:

``hello``    answered with the versions of `PACKAGES`
``compact``  ``messages``, and a `Job`; answered with ``messages``, ``cpu`` (seconds, without the stubbed model's)
             and ``calls`` (tokens of each prompt to the model and of its answer), or with ``error``
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from bench.public.stub import StubModel

__all__ = ["Compact", "Job", "Messages", "Timed", "cpu_of", "serve"]

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """The size that a compaction is to have. Without a room, the package's documented defaults hold.

    Args:
        room: the tokens that everything but the system prompt may take.
        keep: about how many tokens of the newest messages stay as they are.
        summary: the most tokens of the model's answer.
        window: the window of the model that the conversation is for.
    """

    room: int | None = None
    keep: int = 0
    summary: int = 0
    window: int = 128_000


@dataclass
class Timed:
    """A result whose adapter measured the package's own work: translating messages to its classes is left out."""

    messages: Messages
    cpu: float


Compact = Callable[[Messages, StubModel, Job], "Messages | Timed"]


def cpu_of(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of some work, and its CPU seconds."""
    gc.collect()
    start = time.process_time()
    made = work()
    return made, time.process_time() - start


def serve(packages: Sequence[str], compact: Compact, given: TextIO | None = None) -> None:
    """Answer requests until the input ends; whatever the package prints goes to stderr."""
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        answers: TextIO = sys.stdout
        if given is None:
            answers = stack.enter_context(os.fdopen(os.dup(1), "w", encoding="utf-8"))
            os.dup2(2, 1)
        for line in given or sys.stdin:
            answers.write(json.dumps(_answered(packages, compact, line)) + "\n")
            answers.flush()


def _answered(packages: Sequence[str], compact: Compact, line: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
        if request["op"] == "hello":
            return {"versions": {name: importlib.metadata.version(name) for name in packages}}
        if request["op"] != "compact":
            return {"error": f"unknown op {request['op']!r}; there are hello and compact"}
        job = Job(**{name: request[name] for name in asdict(Job()) if name in request})
        return _compacted(compact, request["messages"], job)
    except Exception as error:  # noqa: BLE001 - told to the benchmark, which counts it
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _compacted(compact: Compact, messages: Messages, job: Job) -> dict[str, Any]:
    model = StubModel(messages, job.summary)
    made, spent = cpu_of(lambda: compact([dict(message) for message in messages], model, job))
    result, spent = (made.messages, made.cpu) if isinstance(made, Timed) else (made, spent)
    return {"messages": result, "cpu": max(0.0, spent - model.cpu), "calls": model.calls}
