"""Requests that are refused as too long while their conversation is being compacted; no client may notice.

    python -m bench.gateway.races [--races N] [--seed N]

The gateway takes the window for larger than it is, and whoever writes summaries takes his time. So the request that
meets the server's limit comes while the compaction that was made ahead is under way. Each conversation is with a model
of its own, because a limit that a server has named is remembered. Every second one has recall on. Exits with 1 if a
client got anything but an answer.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.api_rules import install_rules
from tests.gateway.running import TENANT, run_gateway

from everlong.context import ExtractiveSummarizer, SummaryRequest
from everlong.testing import ModelServer

install_rules()

_WINDOW = 8_000
_THRESHOLD = 0.04
"""Of the window that a model has of which nothing is known, 128,000 tokens."""
_WORDS = "what the client says takes up some room in the window of the model "
_AT_ONCE = 6


class _SlowSummarizer:
    """Writes good summaries, after a moment."""

    name = "slow"

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._own = ExtractiveSummarizer()

    def summarize(self, request: SummaryRequest) -> str:
        """Take a moment, and summarize."""
        with self._lock:
            seconds = self._random.choice((0.0, 0.05, 0.2, 0.5))
        time.sleep(seconds)
        return self._own.summarize(request)


@dataclass
class Raced:
    """The outcome of all races."""

    requests: int = 0
    refused: int = 0
    """Requests that the server refused as too long."""
    races: int = 0
    """Conversations in which that happened."""
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def race(count: int, seed: int = 1) -> Raced:
    """Let so many conversations run into the limit."""
    raced, slow = Raced(), _SlowSummarizer(seed)
    settings: dict[str, Any] = {"compression": {"threshold": _THRESHOLD}}
    with tempfile.TemporaryDirectory() as folder, ModelServer(window=_WINDOW, remember=100_000) as model:
        for recall in (False, True):
            given = {**settings, "gateway": {"routes": {"*": {"recall": recall}}}}
            numbers = range(count // 2, count) if recall else range(count // 2)
            path = f"{folder}/{recall}.db"
            with (
                run_gateway(model.url, path, given, summarizer=lambda: slow) as running,
                ThreadPoolExecutor(_AT_ONCE) as pool,
            ):
                for _ in pool.map(lambda number: _converse(running.port, f"{seed} {number}", raced), numbers):
                    pass
        raced.refused = len(model.rejections)
        raced.races = len({record.body["model"] for record in model.rejections})
    return raced


def _converse(port: int, name: str, raced: Raced) -> None:
    """Talk until the conversation is three windows long."""
    chance = random.Random(name)
    model = f"made-up-{name.replace(' ', '-')}"
    history: list[dict[str, Any]] = [{"role": "system", "content": f"You are {name}."}]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    said = 0
    while said < 3 * _WINDOW:
        tokens = chance.randint(600, 2_400)
        said += tokens
        words = (_WORDS * (tokens // 12 + 1))[: tokens * 4]
        history.append({"role": "user", "content": f"{name} {len(history)} {words}"})
        body = json.dumps({"model": model, "messages": history, "max_tokens": 200})
        headers = {"content-type": "application/json", "authorization": "Bearer k", TENANT: "races"}
        try:
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except OSError as error:
            with raced.lock:
                raced.problems.append(f"{name}: {error}")
            break
        with raced.lock:
            raced.requests += 1
            if answer.status != 200:
                raced.problems.append(f"{name}: {answer.status} {data[:200]!r}")
                break
            if warning := answer.headers.get("x-everlong-warning"):
                raced.problems.append(f"{name}: {warning}")
        history.append({"role": "assistant", "content": json.loads(data)["choices"][0]["message"]["content"]})
    connection.close()


def main() -> int:
    """Race, and say what came of it."""
    parser = argparse.ArgumentParser(description="Refuse requests as too long while they are being compacted.")
    parser.add_argument("--races", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    raced = race(options.races, options.seed)
    for problem in raced.problems[:20]:
        print(f"FAILED {problem}")
    print(
        f"races: {options.races} conversations, {raced.requests:,} requests, {raced.refused:,} refused upstream in "
        f"{raced.races} of them, {len(raced.problems)} problems at the client"
    )
    return 1 if raced.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
