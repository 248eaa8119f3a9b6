"""``everlong compress --summarizer``: a model on a local server writes the summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.testing import Fault, ModelServer
from tests.cli.conftest import Run
from tests.context.scripted import GOOD

SMALL = ("--context-length", "8000", "--json")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_auto_takes_the_model_of_the_configuration_and_a_failure_falls_back(
    run: Run, session_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(GOOD, dialect="llama.cpp", faults={0: Fault("unauthorized")}) as server:
        monkeypatch.setenv("EVERLONG_AUXILIARY__COMPRESSION__BASE_URL", server.openai_url)
        monkeypatch.setenv("EVERLONG_AUXILIARY__COMPRESSION__MODEL", "tiny")
        failed = run("compress", str(session_file), *SMALL, "--summarizer", "auto")
        worked = run("compress", str(session_file), *SMALL, "--summarizer", "auto")
    assert failed.json["conversations"][0]["summarizer"] == "built-in rules"
    assert "AuthenticationFailed" in failed.json["conversations"][0]["fallback_reason"]
    assert worked.json["conversations"][0]["summarizer"] == "custom:tiny"
