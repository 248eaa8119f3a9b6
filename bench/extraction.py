"""The summarizer's cost for one new message, by kind of text and by size.

Reads each message as a compaction does that has never seen it: for the chronicle, and for the quality check. Every
text is new, so that only its plain words may be known. The bar: at most a millisecond of CPU per 4 KB for any kind of
text, from 4 KB to 4 MB; beside it stands the ratio to one pass of a plain expression over the same text in the same
run, which does not depend on the machine.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from bench.measure import best_cpu, exponent, verdict
from everlong import Message
from everlong.context.chronicle import Chronicle
from everlong.context.names import entities
from everlong.model import calls_of, text_of, whole_text

SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000)
REFERENCE = 4_000
BAR = 0.001
"""CPU seconds for so many bytes."""
_TRIES = 4
_AT_A_TIME = 128_000
_FLOOR = re.compile(r"\w+")

Make = Callable[[random.Random, int], Message]


def extracted(message: Message) -> tuple[Chronicle, list[str]]:
    """Read a message as a compaction does that has it in its middle for the first time."""
    answered = [_called("{}"), message] if message["role"] == "tool" else [message]
    return Chronicle().extended(answered), list(entities(whole_text(message)))


def floor(message: Message) -> int:
    """Pass a plain expression over the same text once."""
    return sum(len(_FLOOR.findall(text)) for text in _texts(message))


def _texts(message: Message) -> list[str]:
    return [text_of(message), *(call.arguments for call in calls_of(message))]


# -- kinds of text -----------------------------------------------------------------------------------------------------


def _result(text: str) -> Message:
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


def _call(arguments: Any) -> Message:
    return _called(json.dumps(arguments))


def _called(arguments: str) -> Message:
    made = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    return {"role": "assistant", "content": "I run it.", "tool_calls": [made]}


def _filled(rng: random.Random, size: int, line: Callable[[random.Random, int], str], end: str = "\n") -> str:
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(line(rng, len(lines) + 1))
        length += len(lines[-1]) + len(end)
    return end.join(lines)[:size]


_WORDS = ["".join(random.Random(n).choices("aeioulnrstdm", k=2 + n % 7)) for n in range(3_000)]
"""Plain words recur in any conversation; names, numbers and ids are new in every message."""


def _word(rng: random.Random) -> str:
    return rng.choice(_WORDS)


def _sentence(rng: random.Random, number: int) -> str:
    words = " ".join(_word(rng) for _ in range(rng.randrange(6, 18)))
    return f"{words.capitalize()} {number} in src/{_word(rng)}.py must not change."


def _code(rng: random.Random, number: int) -> str:
    name = f"{_word(rng)}_{_word(rng)}"
    return f"{'    ' * rng.randrange(4)}{name} = self.{_word(rng)}({name!r}, {number})  # {_word(rng)}"


def _log(rng: random.Random, number: int) -> str:
    return (
        f"2024-05-01T12:00:{number % 60:02}Z INFO [{_word(rng)}-{number}] took {rng.randrange(9_000)} ms id={_hex(rng)}"
    )


def _json(rng: random.Random, number: int) -> str:
    return json.dumps({"id": number, _word(rng): _hex(rng), "path": f"/var/{_word(rng)}/{_word(rng)}.json", "ok": True})


def _heredoc(rng: random.Random, number: int) -> str:
    return f"cat > {_word(rng)}_{number}.txt <<END{number}\n{_hex(rng)}\nEND{number}"


def _hex(rng: random.Random) -> str:
    return f"{rng.getrandbits(64):016x}"


def _chinese(rng: random.Random, number: int) -> str:
    words = "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(rng.randrange(12, 40)))
    return f"{words}，不要改动 {_word(rng)}_{number} 的接口。"


def _random_base64(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size * 3 // 4)).decode()


def _nested(rng: random.Random, size: int) -> Message:
    deep: Any = [_hex(rng)]
    for _ in range(min(size // 24, 400)):
        deep = {_word(rng): deep}
    return _call({"deep": deep, "rows": [{_word(rng): _hex(rng)} for _ in range(size // 32)]})


KINDS: dict[str, Make] = {
    "prose, user": lambda rng, size: {"role": "user", "content": _filled(rng, size, _sentence, " ")},
    "prose, assistant": lambda rng, size: {"role": "assistant", "content": _filled(rng, size, _sentence, " ")},
    "code": lambda rng, size: _result(_filled(rng, size, _code)),
    "cat -n": lambda rng, size: _result(_filled(rng, size, lambda r, n: f"{n:>6}\t{_code(r, n)}")),
    "log": lambda rng, size: _result(_filled(rng, size, _log)),
    "JSON lines": lambda rng, size: _result(_filled(rng, size, _json)),
    "JSON, one line": lambda rng, size: _result("[" + _filled(rng, size, _json, ", ")),
    "Chinese, user": lambda rng, size: {"role": "user", "content": _filled(rng, size, _chinese, "")},
    "Chinese, result": lambda rng, size: _result(_filled(rng, size, _chinese)),
    "base64": lambda rng, size: _result(_random_base64(rng, size)),
    "base64, user": lambda rng, size: {"role": "user", "content": _random_base64(rng, size)},
    "no spaces": lambda rng, size: _result(_filled(rng, size, lambda r, _: f"{_word(r)}.{_word(r)}", "/")),
    "one letter": lambda rng, size: _result(rng.choice("abc") * size),
    "marks": lambda rng, size: {"role": "user", "content": "".join(rng.choices("-=*#>.:/", k=size))},
    "tiny lines": lambda rng, size: _result(_filled(rng, size, lambda r, _: r.choice("abc123"))),
    "tiny lines, user": lambda rng, size: {"role": "user", "content": _filled(rng, size, lambda r, _: r.choice("ab1"))},
    "open quotes": lambda rng, size: _call({"command": _filled(rng, size, lambda r, _: f"sed -i '{_word(r)}", " ")}),
    "shell": lambda rng, size: _call(
        {"command": _filled(rng, size, lambda r, n: f"cat > {_word(r)} <<E{n}\n{n}\nE{n}")}
    ),
    "file written": lambda rng, size: _call({"path": "a.py", "content": _filled(rng, size, _code)}),
    "nested arguments": _nested,
    "broken arguments": lambda rng, size: _called("[" * 500 + _filled(rng, size, _json)),
}


def main() -> None:
    """Print the table."""
    print("Extraction of one new message, ms of CPU per 4 KB, by size of the message:\n")
    print(f"{'kind of text':<18}" + "".join(f"{_shown(size):>9}" for size in SIZES) + "    growth  ratio")
    for kind, make in KINDS.items():
        costs, floors = _costs(make)
        per_reference = [cost * REFERENCE for cost in costs]
        ratio = max(cost / low for cost, low in zip(costs[1:], floors[1:], strict=True))
        growth = 1 + exponent(SIZES[1:], costs[1:])
        print(
            f"{kind:<18}"
            + "".join(f"{1e3 * cost:>9.3f}" for cost in per_reference)
            + f"    {growth:>6.2f} {ratio:>6.1f}  {verdict(max(per_reference[1:]), BAR)}"
        )
    print(
        "\ngrowth: the power by which the cost grows with the size (1 is linear; less, as of a long text only the "
        "beginning\nand the end are read); ratio: the largest, to one pass of \\w+ over the same text. "
        "The bar holds from 4 KB on.\n"
    )


def _costs(make: Make) -> tuple[list[float], list[float]]:
    """Return CPU seconds per byte of messages of each size, and of the floor; small ones are measured in numbers."""
    costs: list[float] = []
    floors: list[float] = []
    for size in SIZES:
        several = max(1, _AT_A_TIME // size)
        tries = [
            [make(random.Random(f"{size}:{again}:{number}"), size) for number in range(several)]
            for again in range(_TRIES if size < SIZES[-2] else 2)
        ]
        costs.append(min(_cpu_per_byte(extracted, fresh) for fresh in tries))
        floors.append(min(_cpu_per_byte(floor, fresh) for fresh in tries))
    return costs, floors


def _cpu_per_byte(work: Callable[[Message], object], messages: Sequence[Message]) -> float:
    size = sum(len(text.encode()) for message in messages for text in _texts(message))
    return best_cpu(lambda: [work(message) for message in messages], 1) / size


def _shown(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1_000} KB"


if __name__ == "__main__":
    main()
