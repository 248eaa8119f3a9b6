"""A store with a searcher, and a way to say things in it."""

from __future__ import annotations

import pytest

from everlong.store import Store
from everlong.store.search import Searcher
from tests.store.search.saying import Said, Sayer


@pytest.fixture(params=["indexed", "pending"])
def said(request: pytest.FixtureRequest, store: Store) -> Said:
    """Conversations whose messages are found, be they indexed or only stored."""
    return Said(store, is_indexed=request.param == "indexed")


@pytest.fixture
def sayer(store: Store) -> Sayer:
    return Sayer(store)


@pytest.fixture
def searcher(store: Store) -> Searcher:
    return store.searcher
