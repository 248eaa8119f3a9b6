"""Who speaks in a message, where its text says so."""

from __future__ import annotations

import pytest

from everlong.store.search.corpus import speaker_of


@pytest.mark.parametrize(
    ("text", "speaker"),
    [
        ("Caroline: I went to the harbour", "Caroline"),
        ("[8 May] Melanie: look at this", "Melanie"),
        ("THOUGHT: the test fails because of the port", ""),
        ("Note: the berth is taken", ""),
        ("ERROR: no such file", ""),
        ("nothing of the kind", ""),
    ],
)
def test_a_name_before_a_colon_speaks_and_a_label_does_not(text: str, speaker: str) -> None:
    assert speaker_of({"role": "user", "content": text}, text) == speaker
