from __future__ import annotations

import subprocess
import sys

import pytest

from everlong.tokens import VOCABULARIES, ExactCounter, vocabulary_for


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
