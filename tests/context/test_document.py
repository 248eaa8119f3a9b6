"""The summary as a document: read back, rendered, fitted."""

from __future__ import annotations

from everlong.context.document import SummaryDocument


def test_fitting_takes_from_the_section_that_has_more_than_its_share() -> None:
    document = SummaryDocument()
    document.items["Goal"] = ["- keep this goal"]
    document.items["Done"] = [f"- did thing number {n}" for n in range(200)]
    text = document.fit(120, lambda words: len(words.split()))
    assert len(text.split()) <= 120
    assert "keep this goal" in text
    assert "number 199" in text
    assert "number 0\n" not in text
