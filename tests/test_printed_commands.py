"""Every command that a screen, an error, a page of the inspector or a sentence of the docs names is one that works."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

import everlong
from everlong import ConfigError, MessageError, open_store
from everlong.channels.commands import COMMANDS as CHANNEL_COMMANDS
from everlong.cli.chat.command import chat_command, command_registry
from everlong.cli.main import cli
from everlong.testing import ModelServer
from tests.cli.conftest import Run, run, shorter_sessions
from tests.test_docs_commands import RUN, at_home, prepared, server

__all__ = ["at_home", "prepared", "run", "server", "shorter_sessions"]

SOURCE = Path(everlong.__file__).parent
ROOT = Path(__file__).parent.parent
TEXTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
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
    r"\{root\}|\{(?:self\._)?folder\}": ".",
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
    r"(?:serve$|serve --upstream|inspect --web|demo --web)": "runs until it is stopped",
    r"wrap -- claude": "needs the client",
    r"setup$": "asks at a terminal; tests/chat/test_first_run.py answers",
    r"--local": "needs a model file; tests/cli/test_run.py has one",
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
    command: path.relative_to(ROOT).as_posix()
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


def look_up(words: Sequence[str]) -> None:
    """Fail if a command or an option of these words does not exist."""
    at: click.Command = cli if not words[0].startswith("-") or words[0] == "--debug" else chat_command
    value_follows = False
    for word in itertools.takewhile(lambda word: word != "--", words):
        options = {name: param for param in at.params for name in (*param.opts, *param.secondary_opts)}
        if word.startswith("-"):
            name = word.partition("=")[0]
            assert name in {*options, "--help"}, f"{at.name} has no option {word}"
            value_follows = name == word and not getattr(options.get(name), "is_flag", True)
        elif value_follows or word in {"COMMAND", "…"}:
            value_follows = False
        elif isinstance(at, click.Group):
            found = at.get_command(click.Context(at), word)
            assert found is not None, f"{at.name} has no command {word}"
            at = found


def test_every_command_that_a_sentence_of_the_docs_names_is_there() -> None:
    for path in TEXTS:
        prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for found in re.findall(r"`everlong ([^`]+)`", prose):
            look_up(shlex.split(found))


@pytest.mark.usefixtures("shorter_sessions")
@pytest.mark.parametrize(("command", "path"), TRIED.values())
def test_a_printed_command_works(run: Run, at_home: str, server: ModelServer, command: str, path: str) -> None:
    if re.search(NO_COMMAND, command):
        return
    words = filled(command, at_home, server.openai_url)
    if not is_run(command):
        look_up(words)
        return
    ran = run(*words, stdin=b"")
    assert (ran.code, "Traceback" in ran.err) == (0, False), f"{path}: everlong {command}\n{ran.err}{ran.out}"


def named(pattern: str) -> set[str]:
    """Return what a pattern finds in the docs and in what the program prints."""
    sources = [path.read_text(encoding="utf-8") for path in [*TEXTS, *SOURCE.rglob("*.py"), *SOURCE.rglob("*.html")]]
    return {found for text in sources for found in re.findall(pattern, text, re.MULTILINE)}


def test_every_target_of_make_and_every_module_that_is_named_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named(r"(?:`|^)make ([a-z][\w-]+)(?:`| *$| +#)") - targets == set()
    for module in named(r"\bpython3? -m ((?:everlong|bench)[\w.]*\w)"):
        assert find_spec(module) is not None, module


def test_every_slash_command_that_is_named_is_one() -> None:
    of_others = {"etc", "inspector", "readyz", "metrics", "v1", "setprivacy", "newbot", "healthz", "messages"}
    known = {*command_registry().commands, *(one.name for one in CHANNEL_COMMANDS)}
    assert named(r"`/([a-z]+)(?=[` ])") - known - of_others == set()


def _complete(messages: list[everlong.Message], max_tokens: int) -> str:
    del messages, max_tokens
    return ""


WRONG: dict[str, Callable[[Any], object]] = {
    "context_length": everlong.ContextCompressor,
    "settings": lambda value: everlong.ContextCompressor(settings=value),
    "summarizer": lambda value: everlong.ContextCompressor(summarizer=value),
    "model": lambda value: everlong.ContextCompressor(model=value),
    "clock": lambda value: everlong.ContextCompressor(clock=value),
    "usage": lambda value: everlong.ContextCompressor().update_from_response(value),
    "complete": everlong.CompletionSummarizer,
    "window": lambda value: everlong.WarmPrefixSummarizer(_complete, window=value),
    "members": everlong.SummarizerChain,
    "a member of the chain": lambda value: everlong.SummarizerChain([value]),
    "provider": lambda value: everlong.PromptCache("gpt-4o", value),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("value", [2.5, object()], ids=["number", "object"])
def test_an_argument_of_a_wrong_type_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be") as refused:
        WRONG[name](value)
    assert refused.value.key == name


@pytest.mark.parametrize(
    "use",
    [
        lambda value: everlong.ContextCompressor().should_compress_preflight(value),
        everlong.repair_messages,
        everlong.apply_anthropic_cache_control,
        everlong.estimate_messages_tokens_rough,
    ],
)
def test_what_is_no_list_of_messages_is_refused_everywhere(use: Callable[[Any], object]) -> None:
    with pytest.raises(MessageError, match="expected a list of messages, got int"):
        use(5)


def test_a_store_is_opened_by_its_path_and_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        at = store.record([{"role": "user", "content": "hello"}])
    with open_store(str(tmp_path / "a.db")) as store:
        assert store.context(at)[0]["role"] == "user"
    with pytest.raises(ConfigError, match="settings must be a path, a url, StoreSettings, or None, got 5"):
        open_store(5)  # type: ignore[arg-type]
