"""Agent conversations made from a seed: realistic in shape and size, and quick to make in any length.

Each has a system prompt, requests by a person, steps with one to three parallel calls, and multi-line results of mixed
kinds: code listings, logs, JSON, test runs. The same seed always gives the same conversation. Knows nothing of
compaction; it is what benchmarks and long runs work on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

_NAMES = ("session", "login", "invoice", "parser", "cache", "worker", "schema", "router", "token", "ledger", "upload")
_VERBS = ("load", "check", "render", "store", "merge", "retry", "split", "close", "index", "flush")
_ASKS = (
    "Please fix the failing {name} test, and do not touch the public API.",
    "Now {verb} the {name} before it is written; use the helper in src/{name}/core.py.",
    "No, wait: keep the old {name} format. We only want to {verb} it once.",
    "What does the {name} do when it cannot {verb}? Answer shortly.",
    "请把 {name} 模块的错误处理改好，不要改动接口。",
)
_SYSTEM = (
    "You are a careful coding agent. Work in small steps, run the tests after each change, and explain decisions in "
    "one sentence. Never delete files without asking."
)


def conversation(messages: int, result_chars: int = 2_000, seed: int = 0) -> list[Message]:
    """Return a conversation of exactly so many messages, whose tool results have about ``result_chars`` characters."""
    rng = random.Random(seed)
    pool = _result_pool(rng, result_chars)
    made: list[Message] = [{"role": "system", "content": _SYSTEM}]
    calls = 0
    while len(made) < messages:
        if len(made) == 1 or rng.random() < 0.03:
            made.append({"role": "user", "content": _filled(rng, rng.choice(_ASKS))})
            continue
        step, calls = _step(rng, pool, calls)
        made.extend(step)
    return made[:messages]


def _step(rng: random.Random, pool: list[tuple[str, str]], calls: int) -> tuple[list[Message], int]:
    """Return one assistant message with its results, or now and then one that only talks."""
    name, verb = rng.choice(_NAMES), rng.choice(_VERBS)
    text = f"I will {verb} the {name} next, because line {rng.randrange(900)} of src/{name}/core.py looks wrong."
    if rng.random() < 0.08:
        return [{"role": "assistant", "content": f"{text} Decision: {verb} only once, in {name}_{verb}()."}], calls
    results = rng.choices(pool, k=rng.choice((1, 1, 1, 2, 3)))
    made: list[dict[str, Any]] = []
    answers: list[Message] = []
    for place, (tool, output) in enumerate(results):
        call_id = f"call_{calls + place}"
        arguments = json.dumps({"path": f"src/{name}/{verb}_{rng.randrange(40)}.py", "limit": rng.randrange(500)})
        made.append({"id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}})
        # A first line of its own, so that no two results are the same text.
        answers.append({"role": "tool", "tool_call_id": call_id, "content": f"# {name} {call_id}\n{output}"})
    return [{"role": "assistant", "content": text, "tool_calls": made}, *answers], calls + len(results)


def _result_pool(rng: random.Random, result_chars: int, size: int = 64) -> list[tuple[str, str]]:
    """Return results to choose from; with a pool, a hundred thousand messages take only seconds."""
    kinds: tuple[tuple[str, Callable[[random.Random, int], str]], ...] = (
        ("read_file", _code_line),
        ("terminal", _log_line),
        ("query", _json_line),
        ("run_tests", _test_line),
    )
    pool: list[tuple[str, str]] = []
    for number in range(size):
        tool, line = kinds[number % len(kinds)]
        wanted = max(1, int(result_chars * rng.uniform(0.4, 1.6)))
        lines: list[str] = []
        length = 0
        while length < wanted:
            lines.append(line(rng, len(lines) + 1))
            length += len(lines[-1]) + 1
        pool.append((tool, "\n".join(lines)[:wanted]))
    return pool


def _filled(rng: random.Random, template: str) -> str:
    return template.format(name=rng.choice(_NAMES), verb=rng.choice(_VERBS))


def _code_line(rng: random.Random, number: int) -> str:
    indent = "    " * rng.randrange(4)
    return f"{number:>5}  {indent}" + _filled(rng, "result = {verb}_{name}(value, key='{name}')  # {verb} first")


def _log_line(rng: random.Random, number: int) -> str:
    level = rng.choice(("INFO", "INFO", "INFO", "WARNING", "ERROR"))
    moment = f"2024-05-{1 + number % 28:02}T12:{rng.randrange(60):02}:{rng.randrange(60):02}Z"
    event = _filled(rng, "{verb} {name}")
    return f"{moment} {level} [{rng.choice(_NAMES)}-{rng.randrange(9)}] {event} took {rng.randrange(9000)} ms"


def _json_line(rng: random.Random, number: int) -> str:
    row = {"id": number, "name": rng.choice(_NAMES), "ok": rng.random() < 0.9, "hash": f"{rng.getrandbits(64):016x}"}
    return json.dumps(row) + ","


def _test_line(rng: random.Random, number: int) -> str:
    outcome = rng.choice(("PASSED", "PASSED", "PASSED", "PASSED", "FAILED"))
    return f"tests/{_filled(rng, 'test_{name}.py::test_{verb}_{name}')}[{number}] {outcome} [{number % 100:>3}%]"
