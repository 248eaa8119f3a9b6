"""The recording of the chat in the documentation: that it is whole, and that the program still is as it shows it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from bench.record_chat.cast import Cast, plain_text
from bench.record_chat.still import stills
from bench.record_chat.story import STEPS

from everlong.agent import CompactionFinished
from everlong.agent.events import CompactionReason
from everlong.cli.chat.command import command_registry
from everlong.cli.run import compaction_line

FOLDER = Path(__file__).parent.parent.parent / "docs" / "recording"
CAST = Cast.load((FOLDER / "chat.cast").read_text(encoding="utf-8"))
SHOWN = plain_text(CAST.output)
REASONS: tuple[CompactionReason, ...] = ("preflight", "preflight", "manual")


def test_the_recording_has_three_compactions_in_the_words_of_this_version() -> None:
    lines = re.findall(r"⟲ (compacted .*)", SHOWN)
    for line, reason in zip(lines, REASONS, strict=True):
        before, after, there, left = re.findall(r"([\d,]+) → ([\d,]+) tokens, (\d+) → (\d+) messages", line)[0]
        event = CompactionFinished(
            reason=reason,
            outcome="compacted",
            session_id="s",
            tokens_before=int(before.replace(",", "")),
            tokens_after=int(after.replace(",", "")),
            messages_before=int(there),
            messages_after=int(left),
            seconds=0.1,
            quality=None,
        )
        assert line.startswith(f"{compaction_line(event)}; task kept · ")
        assert event.tokens_after < event.tokens_before


def test_everything_that_is_typed_is_in_it_and_every_command_exists() -> None:
    commands = [step.keys.split()[0].removeprefix("/") for step in STEPS if step.keys.startswith("/")]
    assert {"context", "history", "compress", "quit"} <= {*commands}
    assert {*commands} <= {*command_registry().commands}
    for step in STEPS:
        assert step.keys in SHOWN, f"{step.keys!r} is not in the recording; make it anew: python -m bench.record_chat"


def test_the_pictures_are_screens_of_the_recording() -> None:
    drawn = (FOLDER / "chat.svg").read_text(encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")} == stills(CAST)
    words = " ".join("".join(ElementTree.fromstring(drawn).itertext()).split())  # noqa: S314 - our own file
    assert "/history" in words
    assert "3 so far in this chat" in words
