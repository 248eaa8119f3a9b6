"""Hermes Agent as a peer: installed from the registry beside the bench, run on the same histories with a stubbed model.

It lives in a virtual environment of its own in a folder of the checkout that git ignores. `measure_peer` starts this
module there as a program, which prints its figures as JSON; it needs nothing but the standard library and the peer.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.conversations import Message, conversation

NAME, PACKAGE = "hermes-agent 0.19.0", "hermes-agent==0.19.0"
_MODULE = "agent.context_compressor"
_RUN_SECONDS = 1_800


def answer_for(messages: Sequence[Message]) -> str:
    """Return the summary that the stubbed model writes: a plain one, in the conversation's own words."""
    asked = [str(message["content"]) for message in messages if message["role"] == "user"]
    said = [str(message["content"]) for message in messages if message["role"] == "assistant" and message["content"]]
    done = "\n".join(f"- {text}" for text in dict.fromkeys(said[:: max(1, len(said) // 6)]))
    return (
        f"## Goal\n- {asked[0]}\n## Progress\n### Done\n{done}\n"
        f"## Pending User Asks\n- Newest request: {asked[-1]}\n## Key Decisions\n- {said[-1]}"
    )


def measure_peer(sizes: Sequence[int], repeats: Mapping[int, int], window: int) -> dict[int, tuple[float, float]]:
    """Return the peer's CPU seconds of a first compaction by size, and of one after the history grew by a tenth.

    Raises:
        Unusable: the peer could not be installed, or did not run.
    """
    from bench.gateway.peers import Peer, Unusable, installed  # noqa: PLC0415 - not there when the peer runs this

    programs = installed(Peer(NAME, PACKAGE, "", lambda *_: [], {}))
    asked = json.dumps([[size, repeats.get(size, 3), window] for size in sizes])
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HERMES_HOME": home, "PYTHONPATH": str(Path(__file__).parents[1])}
        try:
            ran = subprocess.run(
                [str(programs / "python"), "-m", "bench.hermes_peer", asked],
                capture_output=True,
                text=True,
                timeout=_RUN_SECONDS,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unusable(f"{NAME} was not done within {_RUN_SECONDS} s") from error
    if ran.returncode:
        raise Unusable(f"{NAME} did not run: {(ran.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return {int(size): (first, second) for size, first, second in json.loads(ran.stdout.splitlines()[-1])}


def main() -> None:
    """Measure the peer in its own environment and print the figures."""
    logging.disable(logging.CRITICAL)
    module = importlib.import_module(_MODULE)
    figures = [(size, *_measure(module, size, repeat, window)) for size, repeat, window in json.loads(sys.argv[1])]
    print(json.dumps(figures))


def _measure(module: Any, size: int, repeat: int, window: int) -> tuple[float, float]:
    grown = conversation(size + size // 10)
    answer = answer_for(grown[:size])
    reply = SimpleNamespace(content=answer, tool_calls=None, reasoning=None)
    module.call_llm = lambda **_: SimpleNamespace(
        choices=[SimpleNamespace(message=reply, finish_reason="stop")], usage=None
    )
    first, second = [], []
    for _ in range(repeat):
        messages = [dict(message) for message in grown]  # it writes into the messages
        engine = module.ContextCompressor(model="stub", quiet_mode=True, config_context_length=window)
        first.append(_cpu(lambda engine=engine, messages=messages: engine.compress(messages[:size], force=True)))
        second.append(_cpu(lambda engine=engine, messages=messages: engine.compress(messages, force=True)))
    return min(first), min(second)


def _cpu(work: Any) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
