from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.tokens import VOCABULARIES, Calibration, EstimatingCounter, ExactCounter, MessageCounter, vocabulary_for

SAMPLES = Path(__file__).parent / "samples"
COUNTER = EstimatingCounter()
TRUTH = ExactCounter("o200k_base")

any_text = st.text(st.characters(exclude_categories=()), max_size=300)  # lone surrogates included


def error(text: str) -> float:
    return COUNTER.count_text(text) / TRUTH.count_text(text) - 1


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_bytes().decode()


@pytest.mark.parametrize(
    "kind",
    ["english", "python", "json", "logs", "hex", "base64", "table", "chinese", "japanese", "korean", "russian"],
)
def test_common_kinds_of_text_are_estimated_within_15_percent(kind: str) -> None:
    assert abs(error(sample(kind))) < 0.15


@pytest.mark.parametrize("kind", ["arabic", "hindi", "thai", "emoji", "french", "german", "spanish"])
def test_other_languages_and_emoji_are_estimated_within_25_percent(kind: str) -> None:
    assert abs(error(sample(kind))) < 0.25


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spaces", " " * 100_000),
        ("one capital", "A" * 1_000_000),
        ("a ruler", "=" * 10_000),
        ("digits", "".join(random.Random(1).choices("0123456789", k=100_000))),
        ("random letters", "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))),
        ("random punctuation", "".join(random.Random(3).choices("!@#$%^&*(){}[]", k=100_000))),
        ("a sequence of bases", "".join(random.Random(4).choices("ACGT", k=100_000))),
        ("minified code", "function a(b,c){return b?c.map(d=>d.e+1):[]}var f=a(!0,[{e:1}]);" * 500),
    ],
)
def test_degenerate_text_stays_near_a_factor_of_two(name: str, text: str) -> None:
    assert 0.45 < COUNTER.count_text(text) / TRUTH.count_text(text) < 2.2, name


@given(any_text)
def test_any_text_has_at_least_one_token_and_never_raises(text: str) -> None:
    assert COUNTER.count_text(text) >= (1 if text else 0)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_bundled_vocabulary_counts(vocabulary: str) -> None:
    counter = ExactCounter(vocabulary)
    assert (counter.name, counter.exact) == (vocabulary, True)
    assert counter.count_text("") == 0
    assert 2 <= counter.count_text("Hello, world") <= 8


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-3.5-turbo", "cl100k_base"),
        ("openai/gpt-4o-mini", "o200k_base"),
        ("openai/gpt-oss-120b:free", "o200k_base"),
        ("openrouter:meta-llama/llama-3.1-70b", "llama3"),
        ("ollama/llama3.2:3b", "llama3"),
        ("llama-2-7b-chat", "llama2"),
        ("Qwen2.5-Coder-32B-Instruct", "qwen3"),
        ("deepseek-chat", "deepseek_v3"),
        ("deepseek/deepseek-r1-distill-llama-70b", "llama3"),
        ("gemma-3-27b-it", "gemma3"),
        ("mistral-large-latest", "mistral_v3"),
    ],
)
def test_a_model_is_recognised_with_and_without_its_provider(model: str, vocabulary: str) -> None:
    assert vocabulary_for(model) == vocabulary


@pytest.mark.parametrize(
    "model",
    ["claude-sonnet-4-5", "anthropic/claude-3.5-sonnet", "google/gemini-2.5-pro", "llama-4-scout", "my-model", ""],
)
def test_a_model_without_a_bundled_vocabulary_has_none(model: str) -> None:
    assert vocabulary_for(model) is None


def test_importing_and_estimating_does_not_load_the_tokenizer() -> None:
    code = (
        "import sys; from everlong.tokens import ExactCounter, MessageCounter, counter_for;"
        "MessageCounter().count_text('hi'); counter_for('gpt-4o'); ExactCounter('gemma3');"
        "sys.exit('splintr' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
