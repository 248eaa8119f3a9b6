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


def test_another_tool_failed_if_the_harness_says_so() -> None:
    assert one(call(1, "edit", "<tool_use_error>old text not found</tool_use_error>", path="a.py")).failed
    assert not one(call(1, "read", "the word error is in this file", path="a.py")).failed
    marked = call(1, "edit", "no", path="a.py")
    marked[1]["is_error"] = True
    assert one(marked).failed


def test_a_call_without_a_result_has_not_failed() -> None:
    step = one(bash(1, "make", None))
    assert (step.result, step.failed, step.outcome) == (None, False, "")


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


def test_of_a_command_with_a_program_in_it_the_title_has_the_command() -> None:
    step = one(bash(1, "cd app && python - <<'E'\nprint('secret plan')\nE", "ok"))
    assert step.title == "cd app && python -"
    assert one(call(1, "lookup", "ok", berth="9", day="Monday")).title == "lookup(berth=9, day=Monday)"
