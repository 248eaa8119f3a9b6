"""What is shown of an answer and of a question: no text of a model or a file can draw on the user's terminal."""

from __future__ import annotations

import io
import re

from hypothesis import given, strategies as st
from prompt_toolkit.utils import get_cwidth
from rich.console import Console

from everlong.agent import ApprovalRequest, events as e
from everlong.cli.chat.show import Show
from everlong.cli.chat.state import ChatState
from everlong.cli.chat.terminal import last_rows
from everlong.model import ToolCall

HOSTILE = "harmless\x1b[2K\x1b[1A\x1b]0;title\x07\r\u202egone\x9b31m"


def shown(*, plain: bool) -> tuple[Show, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=not plain, color_system=None, width=80)
    return Show(console, ChatState(), plain=plain), out


def test_nothing_that_is_shown_is_obeyed_by_the_terminal() -> None:
    for plain in (True, False):
        show, out = shown(plain=plain)
        show(e.TextDelta(f"{HOSTILE} and\n\nmore {HOSTILE}"))
        assert "\x1b" not in show.state.pending
        show(e.Notice(HOSTILE))
        show(e.ToolFinished(ToolCall("1", "read_file", "{}"), HOSTILE, "done", HOSTILE, 0.1))
        show.request(ApprovalRequest("run_command", "runs", HOSTILE, f"echo {HOSTILE}"))
        for say in (show.line, show.text, show.quiet, show.error, show.earlier_prompt):
            say(HOSTILE)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out.getvalue())
        assert out.getvalue().count("harmless") >= 9


@given(st.text(alphabet="ab 漢字😀é\n\t", max_size=300), st.integers(2, 40), st.integers(1, 8))
def test_the_last_rows_of_a_text_fit_and_are_its_end(text: str, columns: int, rows: int) -> None:
    found = last_rows(text, columns, rows)
    assert len(found) <= rows
    assert all(get_cwidth(row) <= columns for row in found)
    whole = text.expandtabs(4).replace("\n", "")
    assert whole.endswith("".join(found)) or "\t" in text


def test_the_status_line_leaves_out_what_matters_least() -> None:
    state = ChatState(busy="answering", cost=0.0123)
    state._model, state._context, state._cache = "anthropic:claude", "context 5 / 10 (50 %)", "cache warm"
    wide = state.status(200, waiting=2)
    assert wide == (
        "anthropic:claude │ context 5 / 10 (50 %) │ cache warm │ $0.0123 │ answering · Ctrl-C stops │ 2 waiting"
    )
    assert state.status(80, waiting=2) == wide.replace(" │ cache warm", "").replace(" │ $0.0123", "")
    assert state.status(40, waiting=2) == "answering · Ctrl-C stops │ 2 waiting"
    assert state.status(10, waiting=2) == "answering · Ctrl-C stops"
