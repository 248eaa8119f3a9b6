"""Token counters: exact ones with bundled vocabularies, and the choice of one for a model.

Loads the tokenizer on the first count and never downloads anything. Models whose vocabulary is secret (Claude 3 and
later, Gemini) have none here.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Protocol

from everlong.arguments import check_text
from everlong.errors import ConfigError
from everlong.tokens.estimate import EstimatingCounter

VOCABULARIES: tuple[str, ...] = (
    "cl100k_base",
    "o200k_base",
    "llama2",
    "llama3",
    "codellama",
    "deepseek_v3",
    "qwen3",
    "glm4",
    "kimi_k2",
    "mistral_v1",
    "mistral_v2",
    "mistral_v3",
    # Gemma's are an order of magnitude slower than the others (1 to 4 MB/s), yet exact; counts are cached anyway.
    "gemma2",
    "gemma3",
    "gemma4",
    "phi4",
    "olmo2",
)
"""The names that `ExactCounter` takes."""

_CHUNK = 1 << 20
_LONGEST_SEARCH = 1 << 16
_SURROGATE = re.compile("[\ud800-\udfff]")
_SAFE_CUT = re.compile(r"\n(?=[A-Za-z0-9])")


class ExactCounter:
    """A counter with one bundled vocabulary, loaded when first used; special tokens in a text count as plain text."""

    exact = True

    def __init__(self, vocabulary: str) -> None:
        if vocabulary not in VOCABULARIES:
            raise ConfigError(
                f"no bundled vocabulary is called {vocabulary!r}; there are {', '.join(VOCABULARIES)}",
                key="vocabulary",
            )
        self.name = vocabulary

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text in this vocabulary; 0 for the empty one."""
        if not text:
            return 0
        tokenizer = _tokenizer(self.name)
        if not text.isascii():
            # Half of a surrogate pair is no character; an API receives the replacement character instead.
            text = _SURROGATE.sub("\ufffd", text)
        if len(text) <= _CHUNK:
            return len(tokenizer.encode_ordinary(text))
        return sum(len(tokenizer.encode_ordinary(chunk)) for chunk in _chunks(text))


@cache
def _tokenizer(vocabulary: str) -> Any:
    import splintr  # noqa: PLC0415 - tens of megabytes of vocabulary, wanted by few commands

    return splintr.Tokenizer.from_pretrained(vocabulary)


def _chunks(text: str) -> list[str]:
    """Return pieces of about a megabyte, so that the list of ids never outgrows the text.

    A line break before a letter or digit always ends a token, so a cut there changes no count. A text without one is
    cut anyway; that moves the count by a few tokens in a megabyte.
    """
    chunks = []
    start = 0
    while len(text) - start > _CHUNK:
        end = start + _CHUNK
        found = _SAFE_CUT.search(text, end, end + _LONGEST_SEARCH)
        end = found.end() if found else end
        chunks.append(text[start:end])
        start = end
    chunks.append(text[start:])
    return chunks


# Read from the top: the first pattern found in a model's name decides. None stands for "known to be not bundled".
_MODELS: tuple[tuple[str, str | None], ...] = (
    (r"claude|gemini|grok|command-|nova-|titan", None),
    (r"distill-llama|nemotron.*llama|llama.*nemotron", "llama3"),
    (r"distill-qwen|qwq|qvq|qwen-?(?:[12]|3(?![.\d]))|qwen-(?:max|plus|turbo|coder|long|vl)|qwen$", "qwen3"),
    (r"gpt-?oss|gpt-?4o|gpt-?4[.-][15]|gpt-?[5-9]|\bo[1-9](?![a-z0-9.])|\bcodex\b|o200k", "o200k_base"),
    (r"gpt-?4|gpt-?3\.?5|text-embedding-(?:3|ada)|cl100k", "cl100k_base"),
    (r"code-?llama", "codellama"),
    (r"llama-?2|tinyllama|vicuna", "llama2"),
    (r"llama-?3", "llama3"),
    (r"deepseek-(?:chat|reasoner|v3|r1)|deepseek-?v3", "deepseek_v3"),
    (r"gemma-?4", "gemma4"),
    (r"gemma-?3", "gemma3"),
    (r"gemma(?:-?2|-(?:\d+b|it)|$|:)", "gemma2"),
    (r"glm-?(?:4|z1)", "glm4"),
    (r"kimi|moonshot", "kimi_k2"),
    (r"mixtral-8x7b|mistral-7b(?!.*v0\.3)|mistral-tiny", "mistral_v1"),
    (r"mixtral|mistral-7b|codestral-(?:22b|2405)|mistral-large-24(?:02|07)|mathstral", "mistral_v2"),
    (r"mistral|ministral|codestral|devstral|magistral|pixtral|voxtral", "mistral_v3"),
    (r"phi-?4(?!-mini|-multimodal)", "phi4"),
    (r"olmo-?2", "olmo2"),
)


@lru_cache(maxsize=1024)
def vocabulary_for(model: str) -> str | None:
    """Return the bundled vocabulary of a model, by its name with or without a provider; None without one."""
    # A provider may be named like another model ("mistralai/..."), so only the part after it is read.
    name = model.strip().lower().replace("_", "-").rpartition("/")[2]
    for pattern, vocabulary in _MODELS:
        if re.search(pattern, name):
            return vocabulary
    return None


class TokenCounter(Protocol):
    """A counter of the tokens of a text; it never raises on a ``str`` and always gives the same count.

    >>> class Words:
    ...     name = "words"
    ...
    ...     def count_text(self, text: str) -> int:
    ...         return len(text.split())
    >>> words: TokenCounter = Words()
    >>> MessageCounter(words).count_text("the ferry is late")
    4
    """

    name: str
    """The name of the vocabulary, or ``estimate``."""

    exact: bool
    """True if counts come from a vocabulary, False for an estimate."""

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text; 0 for the empty one."""
        ...


def counter_for(model: str | None = None) -> TokenCounter:
    """Return the best counter for a model: exact if its vocabulary is bundled, else the estimator.

    >>> counter_for("gpt-4o").count_text("The ferry Amber takes berth 4.")
    8
    """
    check_text("model", model, or_none=True)
    vocabulary = vocabulary_for(model) if model else None
    if vocabulary is None or not _vocabularies_installed():
        return EstimatingCounter()
    return ExactCounter(vocabulary)


@lru_cache(maxsize=1)
def _vocabularies_installed() -> bool:
    # find_spec looks for the package without loading it: choosing must stay as quick as importing.
    return find_spec("splintr") is not None
