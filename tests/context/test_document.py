"""The summary as a document: read back, rendered, fitted."""

from __future__ import annotations

from everlong.context.document import SummaryDocument


def test_what_was_rendered_is_read_back() -> None:
    document = SummaryDocument()
    document.items["Goal"] = ["- Build"]
    document.items["Blocked"] = ["- Tests fail\n  with KeyError"]
    document.items["Critical Context"] = ["- port 8437"]
    assert SummaryDocument.parse(document.render()).items == document.items


def test_headings_of_older_summaries_find_their_place() -> None:
    items = SummaryDocument.parse(
        "## Remaining Work\n- a\n## **Constraints**:\n- b\n### Completed\n- c\n## Odd\n- d"
    ).items
    assert items["Next Steps"] == ["- a"]
    assert items["Constraints & Preferences"] == ["- b"]
    assert items["Done"] == ["- c"]
    assert items["Critical Context"] == ["- d"]


def test_fitting_takes_from_the_section_that_has_more_than_its_share() -> None:
    document = SummaryDocument()
    document.items["Goal"] = ["- keep this goal"]
    document.items["Done"] = [f"- did thing number {n}" for n in range(200)]
    text = document.fit(120, lambda words: len(words.split()))
    assert len(text.split()) <= 120
    assert "keep this goal" in text
    assert "number 199" in text
    assert "number 0\n" not in text
