"""``bench.summaries.wrappers`` sees a client's words in a summary, and none where a person said the same."""

from __future__ import annotations

from bench.summaries.wrappers import find_faults

from everlong import Message
from everlong.context.document import SummaryDocument

SOURCE: list[Message] = [
    {
        "role": "user",
        "content": "<system-reminder>\nThe heron skill mends nets by night.\n</system-reminder>\nCount the herons.",
    },
    {"role": "assistant", "content": "I count them."},
]


def kinds(summary: str) -> list[str]:
    return [fault.kind for fault in find_faults("a", SOURCE, SummaryDocument.parse(summary))]


def test_a_clean_summary_has_no_fault() -> None:
    newest = '## Pending User Asks\n- Newest request, repeated: "Count the herons."'
    assert kinds(f'## Goal\n- "Count the herons." (turn 1)\n\n{newest}') == []


def test_a_clients_words_are_seen_wherever_they_stand() -> None:
    newest = '## Pending User Asks\n- Newest request, repeated: "Count the herons."'
    assert kinds(f'## Goal\n- "<system-reminder> The heron …" (turn 1)\n\n{newest}') == ["tag", "goal"]
    assert kinds(f"{newest}\n\n## Critical Context\nThe heron skill mends nets by night.") == ["sentence"]
