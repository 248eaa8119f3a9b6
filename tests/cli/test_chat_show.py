"""What is shown of an answer and of a question: no text of a model or a file can draw on the user's terminal."""

from __future__ import annotations

import io
import re

from rich.console import Console

from everlong.agent import ApprovalRequest, events as e
from everlong.cli.chat.show import Show
from everlong.cli.chat.state import ChatState
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
