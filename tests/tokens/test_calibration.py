from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from everlong.tokens import Calibration, ExactCounter, MessageCounter

SAMPLES = Path(__file__).parent / "samples"


def conversation(kinds: list[str], turns: int = 40) -> list[dict[str, Any]]:
    """Return a session that reads pieces of several kinds of text, as an agent does."""
    rng = random.Random(11)
    texts = [(SAMPLES / f"{kind}.txt").read_text(encoding="utf-8") for kind in kinds]
    messages: list[dict[str, Any]] = [{"role": "system", "content": texts[0][:1500]}]
    for turn in range(turns):
        text = rng.choice(texts)
        start = rng.randrange(len(text) // 2)
        call = {"name": "read_file", "arguments": f'{{"path": "src/part_{turn}.txt"}}'}
        messages += [
            {"role": "user", "content": f"Look at part {turn} and tell me what stands out."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": text[start : start + 1200]},
            {"role": "assistant", "content": f"Part {turn} repeats what the one before it said."},
        ]
    return messages


@pytest.mark.parametrize("vocabulary", ["llama3", "qwen3", "gemma3", "cl100k_base", "mistral_v3", "llama2"])
@pytest.mark.parametrize("kinds", [["english", "python", "json", "logs"], ["chinese", "russian", "python"]])
def test_after_one_report_the_next_turns_are_within_2_percent(vocabulary: str, kinds: list[str]) -> None:
    messages = conversation(kinds)
    truth = MessageCounter(ExactCounter(vocabulary))
    calibration = Calibration()
    sent = len(messages) * 3 // 4
    calibration.observe(messages[:sent], truth.total(messages[:sent]), "some-model")
    for end in range(sent + 1, sent + 17, 2):
        true = truth.total(messages[:end])
        assert calibration.estimate(messages[:end], "some-model") == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("report", [0, -5, None, True, float("nan"), float("inf"), 10**12, "12"])
def test_a_report_that_cannot_be_is_ignored(report: Any) -> None:
    calibration = Calibration()
    messages = conversation(["english"], 10)
    calibration.observe(messages, report, "m")
    assert calibration.scale("m") == 1.0
    assert calibration.estimate(messages, "m") == calibration.counter.total(messages)


def test_a_chat_of_short_turns_is_learned_from_too() -> None:
    calibration = Calibration()
    truth = MessageCounter(ExactCounter("llama2"))
    log = (SAMPLES / "logs.txt").read_text(encoding="utf-8")
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You keep a log."}]
    for turn in range(20):
        messages.append({"role": "user", "content": log[turn * 150 : (turn + 1) * 150]})
        calibration.observe(messages, truth.total(messages), "m")
        messages.append({"role": "assistant", "content": "Noted."})
    assert calibration.scale("m") != 1.0
    shorter = [messages[0], *messages[-16:]]  # as after a compaction, when no report covers the list any more
    plain = calibration.counter.total(shorter)
    assert plain < 0.85 * truth.total(shorter)
    assert calibration.estimate(shorter, "m") == pytest.approx(truth.total(shorter), rel=0.08)
