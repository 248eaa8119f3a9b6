"""A walk through a chat, and screens of other sizes and scripts."""

from __future__ import annotations

import re

import pytest

from everlong.testing import Answer, Ask, Call, Fault
from tests.chat.conftest import Gate, Open, idle
from tests.testing_server.conftest import Serve

MARKDOWN = """# Berths

The **northern pier** has three of them, the `southern` one has two.

```python
def berth(ship: str) -> int:
    return sum(map(ord, ship)) % 5
```

1. Ask the harbour master.
2. Tie up.

| ship | berth |
|---|---|
| 海鸥号 | 3 |
| Möwe 🚢 | 4 |

That is all."""


COMMANDS = [
    *("compress", "context", "history", "memory", "model", "new", "quit"),
    *("reset", "resume", "retry", "search", "title", "tools", "undo"),
]


def script(ask: Ask) -> Answer:
    if ask.turns[-1].results:
        return Answer("Written.")
    if "write" in ask.last_user:
        return Answer("I note it.", [Call("write_file", {"path": "berths.txt", "content": "海鸥号 3\nMöwe 4\n"})])
    return Answer(MARKDOWN)


@pytest.mark.spec("8")
def test_an_answer_an_approval_and_commands_are_shown(serve: Serve, chat: Open) -> None:
    found = chat(serve(script), columns=60, rows=120)
    found.enter("Which berths are there?")
    found.wait("That is all.")
    idle(found)
    found.enter("Please write that down.")
    found.wait("[1] yes")
    found.press("1")
    found.wait("Written.")
    idle(found)
    found.enter("/tools 1")
    found.wait("Made berths.txt")
    idle(found)  # a command that is sent while another is still at work is told once more when its turn comes
    found.enter("/context")
    found.wait("so far in this chat")
    idle(found)
    found.enter("/nonsense")
    found.wait("✗ there is no command /nonsense; see /help")
    idle(found)
    found.enter("/help")
    seen = found.wait("/undo [compaction]", "Ctrl-D leaves.")
    assert all(f"\n/{name} " in seen for name in COMMANDS)


@pytest.mark.soak
def test_wide_signs_break_no_line_and_a_resize_no_answer(serve: Serve, chat: Open) -> None:
    words = "海鸥号停在三号泊位🚢" * 12  # 20 columns each
    server = serve(f"Begin.\n\n{words}\n\nEnd.")
    server.closing = gate = Gate()
    found = chat(server, columns=60, rows=24)
    server.fail_next(Fault("slow"))
    found.enter("海鸥号在哪里？🚢 Where?")
    gate.let(4)
    found.wait("Begin.", "❯ 海鸥号在哪里？🚢 Where?")
    found.until(lambda: "🚢海鸥号" in found.screen().replace("\n", ""), "the beginning of what comes")
    found.resize(44, 20)
    found.wait_line("answering · Ctrl-C stops")
    found.type("meanwhile 海鸥")
    found.wait("❯ meanwhile 海鸥")
    found.resize(80, 30)
    gate.open()
    found.wait("End.")
    idle(found)
    seen = found.screen()
    assert words in re.sub(r"\s", "", seen)
    assert seen.count("❯ meanwhile 海鸥") == 1
    assert seen.count("End.") == 1
    found.enter("号")
    found.until(lambda: len(server.model.asked) == 2, "the second prompt")
    assert server.model.asked[1].last_user == "meanwhile 海鸥号"
