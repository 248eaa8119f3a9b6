"""A conversation goes to the upstream of its model, and nowhere else, also where it cannot be taken in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.served import raw, serving
from tests.gateway.upstream import Upstream

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT = "/v1/messages/count_tokens"


@pytest.fixture
def elsewhere() -> Iterator[Upstream]:
    """The upstream that holds for all, which private conversations must not reach."""
    with Upstream() as other:
        yield other


def _asked(**fields: Any) -> bytes:
    return json.dumps({"model": "private-m", "max_tokens": 9, **fields}).encode()


TALK = {"messages": [{"role": "user", "content": "a secret"}]}


def test_a_store_that_is_away_changes_no_upstream(upstream: Upstream, elsewhere: Upstream, tmp_path: Path) -> None:
    routes = {"routes": {"private-*": {"base_url": upstream.url}}}
    with serving(elsewhere.url, tmp_path, routes) as hosted, raw(hosted.address) as client:
        assert client.ask(_asked(**TALK), CHAT).status == 200
        with closing(sqlite3.connect(tmp_path / "served.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            client.ask(_asked(messages=[{"role": "user", "content": "another secret"}]), CHAT)
            other.execute("ROLLBACK")
    assert elsewhere.requests == []
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("headers", [[], [("x-everlong", "off")]])
def test_what_cannot_be_taken_in_goes_where_its_model_goes(
    path: str, headers: list[tuple[str, str]], upstream: Upstream, elsewhere: Upstream, tmp_path: Path
) -> None:
    routes = {"routes": {"private-*": {"base_url": upstream.url}}}
    with serving(elsewhere.url, tmp_path, routes) as hosted, raw(hosted.address) as client:
        client.ask(_asked(messages="a secret", input={"a": "secret"}), path, headers)
    assert elsewhere.requests == []
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, COUNT])
@pytest.mark.parametrize("headers", [[], [("x-everlong", "off")]])
def test_what_names_no_model_that_can_be_read_goes_nowhere_where_models_go_to_several_places(
    path: str, headers: list[tuple[str, str]], upstream: Upstream, elsewhere: Upstream, tmp_path: Path
) -> None:
    routes = {"routes": {"private-*": {"base_url": upstream.url}}}
    with serving(elsewhere.url, tmp_path, routes) as hosted, raw(hosted.address) as client:
        assert client.ask(_asked(**TALK)[:-1], path, headers).status == 400
    assert elsewhere.requests == upstream.requests == []
