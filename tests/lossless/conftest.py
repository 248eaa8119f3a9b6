"""The databases that the graph is tested on: those of the store's own tests."""

from tests.store.conftest import database, file_store, pytest_generate_tests, store, url

__all__ = ["database", "file_store", "pytest_generate_tests", "store", "url"]
