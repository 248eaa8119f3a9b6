"""The record of an agent's calls: outcomes and files by structure alone."""

from __future__ import annotations

import pytest

from everlong import Message
from everlong.context.chronicle import Chronicle
from everlong.context.record import Step, read_steps
from tests.context.builders import call, user


def bash(number: int, command: str, result: str | None) -> list[Message]:
    return call(number, "bash", result, command=command)


def one(messages: list[Message]) -> Step:
    (step,) = read_steps(messages)
    return step


@pytest.mark.parametrize(
    ("command", "result", "has_failed"),
    [
        ("pytest", "2 failed\n<returncode>1</returncode>", True),
        ("pytest", "Exit code 2\nusage: pytest", True),
        ("pytest", "2 failed, and the word error stands here", False),
        ("pylint src", "E0602: undefined-variable\nYour code has been rated at 3.10/10", False),
        ("npm test", "<returncode>0</returncode>\nerror: this is printed by the test of errors", False),
        ("grep -n x a.py", "Command exited with code 1", False),
        ("npm test", "Command aborted", False),
    ],
)
def test_a_command_failed_if_its_exit_code_says_so(command: str, result: str, has_failed: bool) -> None:
    assert one(bash(1, command, result)).failed == has_failed


def test_files_are_those_that_were_changed_and_are_still_there() -> None:
    chronicle = Chronicle().extended(
        [
            user("Mend the import."),
            *call(1, "read", "text", path="src/other.py"),
            *bash(2, "sed -i '12s/a/b/' src/tables.py", ""),
            *bash(3, "cat <<'EOF' > fix.py\nopen('x')\nEOF\npython fix.py > log.txt", ""),
            *bash(4, "rm fix.py && git checkout -- src/tables.py", ""),
            *call(5, "write", "ok", path="tests/test_berths.py", content="..."),
            *call(6, "edit", "<error>no such file</error>", path="gone.py", old="x"),
        ]
    )
    assert chronicle.files == {"log.txt": "created", "tests/test_berths.py": "created"}
