"""Compacting by hand, seeing it before and after, and taking it back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everlong.testing import Ask
from tests.chat.conftest import Open, configure, idle, long_talk
from tests.testing_server.conftest import Serve

SUMMARY = """## Goal
Keep the harbour's book.

## Progress
### Done
Ships 0 to 50 were noted in ship-000.log to ship-050.log, each with its berth.

## Next Steps
Note the next ship.
"""


def book(ask: Ask) -> str:
    """Writes a summary where one is asked for, else says how much of the beginning it can see."""
    if "## Goal" in ask.turns[-1].text or "handoff" in ask.turns[-1].text.lower():
        return SUMMARY
    return f"{len(ask.turns)} turns; ship 20 is {'known' if 'Ship 20 came in' in ask.text else 'gone'}."


@pytest.mark.spec("8")
def test_a_conversation_is_compacted_and_that_is_undone(serve: Serve, chat: Open, home: Path) -> None:
    long_talk(home, "Long talk")
    server = serve(book, window=32_000)
    found = chat(server, "--resume", "Long talk", rows=50)

    found.enter("/compress tea and cloth")
    seen = found.wait("⟲ compacted (manual):")
    idle(found)
    assert "tea and cloth" in server.model.asked[0].text
    ((told, before, after),) = re.findall(r"manual\): (([\d,]+) → ([\d,]+) tokens, \d+ → \d+ messages)", seen)
    assert int(after.replace(",", "")) < int(before.replace(",", ""))

    found.enter("/history")
    found.until(lambda: found.everything().count(told) > 1, "the compaction in the list")
    found.enter("/history 1")
    seen = found.wait(
        "Compaction 1, ", f"{before} → {after} tokens, ", "The summary tells of:", "/summary 1 shows the summary"
    )
    told = seen.partition("The summary tells of:")[2]
    assert re.search(r"^  you +Ship \d+ came in", told, re.MULTILINE)
    assert "Ship 59 came in" not in told  # it was kept
    idle(found)
    found.enter("/summary")
    found.wait("The summary of compaction 1, ", "Ships 0 to 50 were noted")
    found.enter("/history 7")
    found.wait("✗ '7' is no number from 1 to 1")
    found.enter("/context")
    seen = found.wait("; 1 so far in this chat")
    assert re.search(r"summary +\d", seen)

    found.enter("/undo")
    found.wait("the newest compaction is undone")
    idle(found)
    found.enter("Is ship 20 there?")
    found.wait("122 turns; ship 20 is known.")
    idle(found)
    found.enter("/undo")
    found.wait("taken back, with its answer: Is ship 20 there?")
    found.enter("/undo nonsense")
    found.wait("✗ say /undo, or /undo compaction")
    assert not server.rejections


@pytest.mark.spec("8")
def test_a_smaller_model_gets_a_conversation_that_fits(serve: Serve, chat: Open, home: Path) -> None:
    long_talk(home, "Long talk")
    large, small = serve(book, window=32_000), serve(book, window=8_000, models=("tiny",))
    configure(
        home,
        providers={"small": {"base_url": small.openai_url}},
        models={"some-model": {"context_length": 32_000}, "tiny": {"context_length": 8_000}},
    )
    found = chat(large, "--resume", "Long talk")
    found.enter("/model")
    found.wait("custom:some-model: a window of 32,000 tokens")
    found.enter("/model small:tiny")
    found.wait("⟲ compacted (model switch):", "now with small:tiny")
    found.wait_line(r"small:tiny │ context [\d,]+ / 8,000")
    found.enter("Are you there?")
    found.wait("ship 20 is gone.")
    idle(found)
    found.enter("/model nobody:nothing")
    found.wait("✗ 'nobody:nothing' does not say who serves it")
    found.enter("/undo compaction")
    found.wait("tokens are over the threshold of 5,840, so the next prompt compacts again; a model with a larger")
    assert len(small.model.asked) == 1
    assert not small.rejections


def test_the_status_line_tells_what_usage_tells(serve: Serve, chat: Open, home: Path) -> None:
    prices = {"context_length": 32_000, "input_price": 10, "output_price": 50}
    configure(home, models={"some-model": prices})
    long_talk(home, "Long talk")
    found = chat(serve(book, window=32_000), "--resume", "Long talk", columns=140, rows=50)
    found.enter("How many?")
    found.wait("turns; ship 20")
    idle(found)
    found.enter("/compact")
    found.wait("⟲ compacted")
    idle(found)
    found.enter("/usage")
    seen = found.wait("1 call for a summary")
    idle(found)
    (paid,) = set(re.findall(r"^custom:some-model .*? (\$[\d.]+) +\$", seen, re.MULTILINE))
    assert f"│ {paid}" in found.everything().rpartition("\n")[2]
