"""The prefix that scripted sessions send is recorded; whoever moves it has to say so.

A provider's cache holds bytes. A change of ours that alters what a session sends makes every user's next request pay in
full, so it must be on purpose. Such a change records the new digests (``python -m tests.caching.test_byte_stability``)
and marks the session below, for the one release, with ``@pytest.mark.moves_cache_prefix(reason="…")`` on its case.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.caching.scripted import SESSIONS, digest, sent

RECORDED = Path(__file__).parent / "prefixes.json"


MOVED = pytest.mark.moves_cache_prefix(reason="turns lose whole sentences first, and quoted statements are whole")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[MOVED] * (name == "compacted")) for name in SESSIONS])
def test_the_prefix_of_a_scripted_session_moves_only_with_a_reason(name: str, request: pytest.FixtureRequest) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    mark = request.node.get_closest_marker("moves_cache_prefix")
    if mark is not None:
        assert mark.kwargs.get("reason"), "moves_cache_prefix needs a reason"
        assert digest(sent(name)) != recorded["before"], f"{name} did not move; remove the mark"
    assert digest(sent(name)) == recorded["digest"], (
        f"the session {name!r} sends other bytes than before, so every cached prompt would be lost; undo that, or "
        "record the new digest and mark the case with moves_cache_prefix(reason=…)"
    )


def record() -> None:
    """Write the digests of this version, keeping the previous ones beside them."""
    old = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    new = {}
    for name in SESSIONS:
        now = digest(sent(name))
        was = old.get(name, {})
        before = was.get("before", "") if was.get("digest") == now else was.get("digest", "")
        new[name] = {"digest": now, "before": before}
    RECORDED.write_text(json.dumps(new, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
