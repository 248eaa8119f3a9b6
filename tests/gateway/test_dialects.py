"""What is stored goes back into a body in the form of its API."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from everlong.gateway.app import dialect_of
from everlong.gateway.formats import ANTHROPIC, OPENAI, Dialect


@pytest.mark.parametrize(
    ("path", "headers", "dialect"),
    [
        ("/v1/messages", {"Authorization": "Bearer k"}, ANTHROPIC),
        ("/v1/messages/count_tokens?beta=true", {}, ANTHROPIC),
        ("/v1/chat/completions", {"anthropic-version": "2023-06-01", "x-api-key": "k"}, OPENAI),
        ("/v1/responses", {"x-api-key": "k"}, OPENAI),
        ("/v1/responses/compact", {"anthropic-beta": "x"}, OPENAI),
        ("/v1/models", {"x-api-key": "k"}, ANTHROPIC),
        ("/v1/models", {"x-api-key": "k", "Authorization": "Bearer k"}, OPENAI),
        ("/v1/files", {"anthropic-version": "2023-06-01"}, ANTHROPIC),
        ("/v1/files", {}, OPENAI),
    ],
)
def test_the_path_tells_the_api_and_headers_only_where_it_does_not(
    path: str, headers: dict[str, str], dialect: Dialect
) -> None:
    assert dialect_of(make_mocked_request("POST", path, headers=headers)) is dialect
