"""A store that may only be read, as on a hot standby: what reads works, and what writes says why it cannot."""

from __future__ import annotations

import pytest

from everlong.errors import StoreUnavailable
from everlong.model import Message
from everlong.store import Store
from everlong.store.upkeep.maintenance import stats

TALK: list[Message] = [
    {"role": "user", "content": "Which port does the harbour use?"},
    {"role": "assistant", "content": "The harbour listens on port 4711."},
]


def read_only(url: str) -> str:
    """The address of the same database, for transactions that may only read."""
    return url.replace("search_path", "default_transaction_read_only%3Don%20-csearch_path", 1)


def test_everything_that_reads_works(schema_url: str) -> None:
    with Store.open(schema_url) as primary:
        at = primary.record(TALK)
        session = primary.sessions.start(at, title="The port", from_depth=0)
        primary.searcher.index_pending(500)
        at = primary.append(at, [{"role": "user", "content": "And the lighthouse, 4712?"}])
    with Store.open(read_only(schema_url)) as replica:
        assert replica.context(at)[:2] == TALK
        assert [hit.snippet for hit in replica.search("port 4711").hits]
        assert replica.search("lighthouse").is_partial  # the primary has not indexed it yet
        assert [one.title for one in replica.conversations.newest()] == ["The port"]
        assert replica.sessions.get(session.id).title == "The port"
        assert replica.verify().problems == []
        assert stats(replica)["messages"] == len(replica.entries(at))


def test_what_writes_is_refused_with_the_reason(schema_url: str) -> None:
    Store.open(schema_url).close()
    with Store.open(read_only(schema_url)) as replica, pytest.raises(StoreUnavailable, match="may not be written"):
        replica.record(TALK)
