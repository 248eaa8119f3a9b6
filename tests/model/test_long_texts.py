"""JSON with long texts: read and written in steps, it means and is the same as in one go."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest

from everlong.model.long_texts import LONG, read_in_steps, write_in_steps

PIECES = ["a", "é", "中", "😀", "\n", '"', "\\", "\\\\", "/", "\x7f", "\\u00e9", "x" * 40]
ESCAPED = [r"\u4e2d", r"\ud83d\ude00", r"\n", r"\"", r"\\", r"\/", r"\u00e9", "a", "中", "😀", r"\\\"", r"\\\\"]


def mixed(pieces: list[str], seed: int) -> str:
    rng = random.Random(seed)
    found: list[str] = []
    size = 0
    while size <= LONG:
        piece = rng.choice(pieces)
        run = rng.choice([1, 2, 3, 50_000])
        found.append(piece * run)
        size += len(piece) * run
    return "".join(found)


def plainly(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_in_steps_means_the_same(seed: int) -> None:
    data = f'{{"a":[1,"{mixed(ESCAPED, seed)}",{{"{mixed(ESCAPED, seed + 9)}":"b"}}],"c":"d"}}'.encode()
    assert read_in_steps(data, orjson.loads) == json.loads(data)
    assert read_in_steps(b'"a",%b,"b"' % data, orjson.loads, 4, 4 + len(data)) == json.loads(data)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dumps", [orjson.dumps, plainly])
def test_what_is_written_in_steps_is_the_same_bytes(dumps: Any, seed: int) -> None:
    value = {"a": [1, mixed(PIECES, seed), {"b": mixed(PIECES, seed + 9)}, None], "c": "d"}
    assert write_in_steps(value, dumps) == dumps(value)
