"""The recording of the chat in the documentation: that it is whole, and that the program still is as it shows it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.record_chat.cast import Cast, plain_text
from bench.record_chat.still import stills
from bench.record_chat.story import STEPS, answer, write_files

from everlong.agent import CompactionFinished
from everlong.agent.events import CompactionReason
from everlong.cli.chat.command import command_registry
from everlong.cli.speaking import compaction_line
from everlong.testing import ModelServer

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


def test_the_recorded_model_answers_from_what_it_is_sent(tmp_path: Path) -> None:
    write_files(tmp_path)
    log = (tmp_path / "logs" / "monday.log").read_text(encoding="utf-8")
    assert len(log) < 12_000, "a tool would show only a part of it"
    openai = pytest.importorskip("openai")
    with (
        ModelServer(answer) as server,
        openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client,
    ):

        def asked(*said: str) -> str:
            messages = [{"role": ("user", "assistant")[number % 2], "content": one} for number, one in enumerate(said)]
            done = client.chat.completions.create(model="any", messages=messages)
            return str(done.choices[0].message.content)

        question = "Who brings in the Amber, and to which berth?"
        assert asked(question) == "I do not know."
        assert "4471" in asked("pilot boat 4471 brings the Amber to berth 8 on Sunday", "Noted.", question)
