"""What is typed: several lines, pastes, what was typed before, completion."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.testing import Ask, Fault
from tests.chat.conftest import Gate, Open, configure, idle
from tests.testing_server.conftest import Serve


def echo(ask: Ask) -> str:
    return f"{len(ask.last_user)} signs, {len(ask.last_user.splitlines())} lines."


def test_several_lines_are_one_prompt_and_come_back(serve: Serve, chat: Open) -> None:
    server = serve(echo)
    found = chat(server)
    found.type("one")
    found.press("M-Enter")
    found.type("two")
    found.press("C-j")
    found.enter("three")
    found.wait("13 signs, 3 lines.")
    idle(found)
    found.press("Up")
    found.wait("❯ one\n… two\n… three")
    found.enter("!")
    found.wait("14 signs, 3 lines.")
    assert server.model.asked[1].last_user == "one\ntwo\nthree!"


_STOPPED_PRINT = """
import pathlib, time
from prompt_toolkit.output.vt100 import Vt100_Output
inner = Vt100_Output.write_raw
def write_raw(self, text):
    while "(held)" in text and pathlib.Path("typing").exists():
        pathlib.Path("printing").touch()
        time.sleep(0.01)
    inner(self, text)
Vt100_Output.write_raw = write_raw
"""


def test_keys_pressed_during_a_print_are_keys(serve: Serve, chat: Open, root: Path) -> None:
    server = serve(lambda ask: f"{ask.last_user}: understood.")
    found = chat(server, first=_STOPPED_PRINT)
    (root / "typing").touch()
    found.enter("One (held)")
    found.until((root / "printing").exists, "a print")
    found.enter("Two")
    found.type("three")
    (root / "typing").unlink()
    found.wait("Two: understood.")
    found.wait("❯ three")
    found.press("C-u", "C-d")
    assert found.wait_exit() == 0


@pytest.mark.soak
def test_a_paste_of_100_kb_is_one_prompt_and_the_chat_stays_usable(serve: Serve, chat: Open, home: Path) -> None:
    configure(home, models={"some-model": {"context_length": 200_000}})
    text = "".join(
        f"{number:05d} The quick brown fox jumps over the lazy dog, 漢字 and 😀.\n" for number in range(1_600)
    )
    assert len(text.encode()) > 100_000
    server = serve(echo, window=200_000)
    found = chat(server)
    found.paste(text)
    found.wait("❯ [pasted 1,600 lines]")
    assert "The quick brown fox" not in found.everything()
    found.enter("What is this?")
    found.wait(f"{len(text) + len('What is this?')} signs, 1601 lines.")
    assert server.model.asked[0].last_user == text + "What is this?"
    idle(found)
    found.enter("And now?")
    found.wait("8 signs, 1 lines.")


def test_tab_completes_commands_and_paths(serve: Serve, chat: Open, root: Path) -> None:
    (root / "notes-of-the-harbour.txt").write_text("seven\n", encoding="utf-8")
    server = serve("Understood.")
    found = chat(server)
    found.enter("Harbour plans")
    found.wait("Understood.")
    idle(found)
    found.type("/hist")
    found.press("Tab")
    found.wait("❯ /history")
    found.press("C-u")
    found.type("Look at ./not")
    found.press("Tab")
    found.wait("❯ Look at ./notes-of-the-harbour.txt")
    found.press("C-u")
    found.type("/re")
    found.press("Tab")  # several: all are shown with what they do
    found.wait("resume", "Go on with another conversation.", "retry", "reset")


ANSWER = "The harbour opens at **seven**.\n\nThe ferry leaves at eight, from the northern pier.\n\nThe last one at ten."


def test_an_answer_is_on_the_screen_while_it_comes(serve: Serve, chat: Open) -> None:
    server = serve(ANSWER)
    server.closing = gate = Gate()
    found = chat(server)
    server.fail_next(Fault("slow"))
    found.enter("When does the harbour open?")
    gate.let(4)  # the stream's first event, and half of the words
    seen = found.wait("The harbour opens at seven.", "The ferry leaves")
    assert "northern pier" not in seen
    found.wait_line("answering · Ctrl-C stops")
    gate.open()
    seen = idle(found)
    assert "The last one at ten." in seen
    assert seen.count("The ferry leaves") == 1
    assert server.model.asked[0].last_user == "When does the harbour open?"


def test_what_is_typed_meanwhile_waits_and_is_shown_before_its_answer(serve: Serve, chat: Open) -> None:
    def script(ask: Ask) -> str:
        return f"You said: {ask.last_user}"

    server = serve(script)
    server.closing = gate = Gate()
    found = chat(server)
    server.fail_next(Fault("slow"))
    found.enter("First.")
    gate.waits.wait()
    found.enter("Second.")
    found.wait("1 waiting")
    found.type("half of a th")
    gate.open()
    seen = found.wait("You said: Second.")
    assert seen.index("You said: First.") < seen.index("» Second.") < seen.index("You said: Second.")
    found.enter("ird")
    found.wait("You said: half of a third")
