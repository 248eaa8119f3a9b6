"""Every command that a screen, an error or a page of the inspector tells people to type is one that works."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import everlong
from everlong.testing import ModelServer
from tests.cli.conftest import Run, run, shorter_sessions
from tests.test_docs_commands import RUN, at_home, prepared, server

__all__ = ["at_home", "prepared", "run", "server", "shorter_sessions"]

SOURCE = Path(everlong.__file__).parent
BEGIN = re.compile(r"\beverlong (?=--?[a-z]|[a-z][a-z-]+)")
END = re.compile(
    r"[`;,)(\n]|: |:$|\.$|\. |…\"| (?:or|and|then|yourself|had|by|on|into|to|while|misses|instead|with the|for parts)\b"
    r"| [a-z]+s\b(?= (?:all|them|the|it|its|what|who|those|one|more|token|why|is|a|so|how|from|every|settings)\b)"
)
"""Where a command ends and the sentence around it goes on."""

INSTEAD = {
    r"\{one\.(?:id|conversation)\}|\{session\}|\{talk_id\}|\bID\b": "SESSION",
    r"\{(?:line|one)\.turn\}": "3",
    r"\{chosen_options\(\)\}": "",
    r"\{asked\}|\{text\}": "port",
    r"\{root\}|\{folder\}": ".",
    r"\{client(?:\.name)?\}": "claude-code",
    r"PROVIDER:MODEL": "anthropic:claude-sonnet-5",
    r"\bFILE\b": "session.json",
    r"\bPATH\b": "off",
    r"\{name\}|\{found\.name\}": "harbour_log",
    r"--store \{(?:named|path)\}": "--store harbour.db",
    r"gateway\.keys\.NAME\.key_variable VARIABLE": "gateway.keys.office.key_variable OFFICE_KEY",
    r"providers\.NAME\.base_url URL": "providers.office.base_url http://localhost:8080/v1",
    r"config set KEY VALUE": "config set agent.sandbox auto",
    r"~/\.claude/projects": "../home/.claude/projects",
    r"http://(?:host|localhost):8080/v1": "SERVER",
    r"-m MODEL": "-m openai:gpt-6-luna",
}
"""The words that stand for something of the reader's, and something that the home of the test has."""

NOT_RUN = {
    r"channels pair": "needs a bot; tests/cli/test_channels.py has one",
    r"channels run$": "needs a bot's token",
    r"(?:serve$|inspect --web|demo --web)": "runs until it is stopped",
    r"wrap -- claude": "needs the client",
    r"setup$": "asks at a terminal; tests/chat/test_first_run.py answers",
    r"--local": "needs a model file; tests/cli/test_local.py has one",
    r"(?:sessions import|config set|^run)$": "is named, and not to be typed as it stands",
}
"""Commands that the test only looks up, options and all, with the reason."""
NO_COMMAND = r"sessions \{error|gateway \{question\}|recall$|had set$"
"""Words that only look like a command."""


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts that a file may print: no docstrings; values inside of a text in braces."""
    if path.suffix != ".py":
        yield from re.findall(r"\"(everlong [^\"]*)\"", path.read_text(encoding="utf-8"))
        return
    source = path.read_text(encoding="utf-8")
    if not BEGIN.search(source):
        return
    tree = ast.parse(source)
    left = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left.update(one for one in node.values if isinstance(one, ast.Constant))
            yield "".join(
                str(one.value) if isinstance(one, ast.Constant) else f"{{{ast.unparse(one.value)}}}"
                for one in node.values
                if isinstance(one, ast.Constant | ast.FormattedValue)
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left:
            yield node.value


def commands_in(text: str) -> Iterator[str]:
    for found in BEGIN.finditer(text):
        rest = text[found.end() :]
        end = END.search(re.sub(r"\"[^\"]*\"|\{[^}]*\}", lambda quoted: "x" * len(quoted[0]), rest))
        yield rest[: end.start() if end is not None else None].strip()


PRINTED = {
    command: path.relative_to(SOURCE).as_posix()
    for path in [*sorted(SOURCE.rglob("*.py")), *sorted(SOURCE.rglob("*.html"))]
    for text in texts_of(path)
    for command in commands_in(text)
}
"""Every command, with a file that prints it."""


def is_run(command: str) -> bool:
    return not any(re.search(pattern, command) for pattern in NOT_RUN)


def filled(command: str, session: str = "one", server: str = "http://127.0.0.1:1/v1") -> list[str]:
    for pattern, words in INSTEAD.items():
        command = re.sub(pattern, words.replace("SESSION", session).replace("SERVER", server), command)
    return shlex.split(command)


TRIED = {" ".join(filled(command)): (command, path) for command, path in PRINTED.items()}
"""Every command once that is not in the documentation, whose commands tests/test_docs_commands.py runs."""
for _line in RUN:
    TRIED.pop(" ".join(shlex.split(_line, comments=True)[1:]), None)


def test_the_lists_name_only_what_is_printed() -> None:
    assert len(PRINTED) > 50
    for pattern in [*INSTEAD, *NOT_RUN]:
        assert any(re.search(pattern, command) for command in PRINTED), pattern
    for named in re.findall(r"tests/[\w/]+\.py", " ".join(NOT_RUN.values())):
        assert Path(__file__).parent.parent.joinpath(named).is_file(), named


@pytest.mark.usefixtures("shorter_sessions")
@pytest.mark.parametrize(("command", "path"), TRIED.values())
def test_a_printed_command_works(run: Run, at_home: str, server: ModelServer, command: str, path: str) -> None:
    if re.search(NO_COMMAND, command):
        return
    words = filled(command, at_home, server.openai_url)
    if not is_run(command):
        words = [*words[:1], "--help"] if "--" in words else [*words, "--help"]
    ran = run(*words, stdin=b"")
    assert (ran.code, "Traceback" in ran.err) == (0, False), f"{path}: everlong {command}\n{ran.err}{ran.out}"
