"""Changes of files are found in calls and results, and nothing else is taken for one."""

from __future__ import annotations

from everlong.inspector.pages.transcript import DiffLine, find_diff
from everlong.store.transcripts import TranscriptPiece, pieces_of
from tests.inspector.making import call


def test_a_call_that_replaces_text_is_a_diff() -> None:
    (piece,) = pieces_of(call(1, "edit", '{"path": "a.py", "old_string": "a\\nb\\nc", "new_string": "a\\nB\\nc"}'))
    diff = find_diff(piece)
    assert diff is not None
    assert diff[0] == DiffLine("place", "a.py")
    assert [line for line in diff if line.kind in {"added", "removed"}] == [
        DiffLine("removed", "-b"),
        DiffLine("added", "+B"),
    ]


def test_a_unified_diff_in_a_result_is_one() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old\n+new"
    diff = find_diff(TranscriptPiece("result", "git", text))
    assert diff is not None
    assert [line.kind for line in diff] == ["place", "place", "place", "same", "removed", "added"]
