"""The frameworks' own tests of what our adapters stand in for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from everlong import ContextCompressor

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.smoke
def test_a_trimming_checkpointer_passes_the_conformance_tests_of_langgraph() -> None:
    from langgraph.checkpoint.conformance import checkpointer_test, validate  # noqa: PLC0415
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415

    from everlong.integrations import trim_checkpoints  # noqa: PLC0415

    @checkpointer_test(name="trimmed")
    async def trimmed() -> AsyncIterator[Any]:
        yield trim_checkpoints(InMemorySaver(), lambda: ContextCompressor(128_000))

    @checkpointer_test(name="plain")
    async def plain() -> AsyncIterator[Any]:
        yield InMemorySaver()

    ours, theirs = (asyncio.run(validate(one)) for one in (trimmed, plain))
    assert ours.passed_all_base()
    assert ours.to_dict()["results"] == theirs.to_dict()["results"], "as good as the checkpointer itself"
