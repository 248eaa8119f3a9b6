"""Typing and answers: what is said goes out, what comes is on the screen while it comes."""

from __future__ import annotations

from everlong.testing import Ask, Fault
from tests.chat.conftest import Gate, Open, idle
from tests.testing_server.conftest import Serve

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
