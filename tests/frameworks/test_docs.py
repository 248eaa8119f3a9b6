"""The examples of the documentation, run as they stand there, for the frameworks that only this folder has."""

from __future__ import annotations

import pytest

from tests.integrations.test_docs import NAMES, run_examples


@pytest.mark.parametrize("name", NAMES[4:])
def test_an_example_of_the_documentation_answers(name: str) -> None:
    run_examples(name)
