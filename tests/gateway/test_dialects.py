"""What is stored goes back into a body in the form of its API."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from everlong.gateway.app import dialect_of
from everlong.gateway.formats import ANTHROPIC, OPENAI, Dialect


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (502, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_of_ours_have_the_shape_of_the_api(status: int, kind: str) -> None:
    assert ANTHROPIC.error(status, "no") == {"type": "error", "error": {"type": kind, "message": "no"}}
    assert OPENAI.error(status, "no") == {"error": {"message": "no", "type": kind, "param": None, "code": None}}


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
