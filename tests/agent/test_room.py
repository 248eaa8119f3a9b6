"""The room that an answer is given: what the window has left behind the prompt, and less where the prompt is larger."""

from __future__ import annotations

import pytest

from everlong.agent import AgentEvent, CompactionFinished
from tests.agent.conftest import APIS, Opened
from tests.testing_server.conftest import Serve


@pytest.mark.parametrize("api", APIS)
def test_a_prompt_that_fits_is_sent_again_with_less_room_rather_than_compacted(
    serve: Serve, opened: Opened, heard: list[AgentEvent], api: str
) -> None:
    server = serve("Understood.", window=8_000)
    agent = opened(server, api)
    # The server counts every one of these signs, and we think that they are read by the dozen.
    agent.run("What does the line mean? " + "=" * 4_700)
    refused, taken = server.requests[-2:]
    assert (refused.status, taken.status) == (400, 200)
    assert taken.body["messages"] == refused.body["messages"]
    assert not [event for event in heard if isinstance(event, CompactionFinished)]
