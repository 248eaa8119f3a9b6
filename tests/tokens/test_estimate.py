from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from everlong.tokens import VOCABULARIES, EstimatingCounter, ExactCounter, vocabulary_for

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
