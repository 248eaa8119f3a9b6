"""Nothing here may leave the machine: tracing is off, and no key of anybody is used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everlong.testing import ModelServer
from tests.integrations.desk import WINDOW, clerk


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(clerk, window=WINDOW, dialect="openai") as started:
        yield started
