"""Every exported name has an example in its docstring, and the examples of names, README and docs are right."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest

import everlong
from everlong import Message, Store
from everlong.config import load_settings
from everlong.model import ToolCall, message as message_module
from everlong.testing import Answer, ModelServer

ROOT = Path(__file__).parent.parent


def docstring(name: str) -> str:
    """The docstring of an exported name; that of an alias is the text below its assignment."""
    value = getattr(everlong, name)
    if isinstance(value, type) or inspect.isfunction(value):
        return vars(value)["__doc__"] if isinstance(value, type) else value.__doc__ or ""
    body = ast.parse(Path(message_module.__file__).read_text(encoding="utf-8")).body
    for one, following in pairwise(body):
        if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == name and isinstance(following, ast.Expr):
            return str(ast.literal_eval(following.value))
    return ""


@pytest.fixture(scope="module")
def conversation() -> list[Message]:
    """The ``messages`` of the examples: too long for a small window."""
    made: list[Message] = [{"role": "system", "content": "You are the clerk of a harbour."}]
    for day in range(1, 81):
        told = f"Day {day}: the ferry Amber takes berth {day % 9 + 1} and pays {day * 12} crowns. Write it down. "
        told += "Fine weather and a calm sea " * 30  # one sentence: each is asked whether it is a rule
        made += [{"role": "user", "content": told}, {"role": "assistant", "content": f"Berth {day % 9 + 1} is noted."}]
    return made


@pytest.mark.parametrize("name", everlong.__all__)
def test_every_exported_name_has_an_example_that_runs(
    name: str, conversation: list[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {one: getattr(everlong, one) for one in everlong.__all__} | {"messages": list(conversation)}
    example = doctest.DocTestParser().get_doctest(docstring(name), names, name, None, 0)
    assert example.examples, f"the docstring of {name} has no example"
    assert any(re.search(rf"\b{name}\b", one.source) for one in example.examples), f"{name} is not used in its example"
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert told == []


ELSEWHERE = {
    "engine-contract.md": "tests/engine_contract runs both on real engines, for longer than fits here",
    "foreign-engines.md": "tests/plugins/test_foreign.py",
    "integrations.md": "tests/integrations/test_docs.py",
    "writing-an-engine.md": "tests/engine_contract/test_tutorial.py",
}
"""Pages whose programs another test runs."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def programs(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(lambda _: Answer("It is noted.")) as started:
        yield started


@pytest.fixture
def given(
    server: ModelServer, conversation: list[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """Names that the programs of the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERLONG_HOME", str(tmp_path / "home"))
    for name in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", "key-of-nobody")
        monkeypatch.setenv(f"{name}_BASE_URL", server.url if name == "ANTHROPIC" else server.openai_url)
    said = [message for message in conversation[:5] if message["role"] != "system"]
    with Store.open(tmp_path / "given.db") as store, anthropic.Anthropic() as claude, openai.OpenAI() as gpt:
        session = store.sessions.start(title="The harbour")
        yield {
            "messages": conversation[:-1],  # the user spoke last
            "request": {"model": "claude-sonnet-5", "max_tokens": 100, "messages": conversation[1:40]},
            "client": SimpleNamespace(chat=gpt.chat, messages=claude.messages),
            "store": store,
            "session": session,
            "session_id": session.id,
            "child_id": store.sessions.start(title="The harbour, continued").id,
            "branch": store.record(said),
            "conversations": [said, said[:1]],
            "prompt": "You are the clerk of a harbour.",
            "system_prompt": "You are the clerk of a harbour.",
            "tools": [],
            "call": ToolCall("one", "list_files", "{}"),
            "arguments": {},
            "reply": SimpleNamespace(usage=SimpleNamespace(to_dict=lambda: {"prompt_tokens": 12})),
            "settings": load_settings().settings,
            "ask": lambda *_: ({"role": "assistant", "content": "noted"}, {"prompt_tokens": 12}),
            "engine": everlong.ContextCompressor(16_000),
            **{one: getattr(everlong, one) for one in everlong.__all__},
        }


@pytest.mark.parametrize("page", [one for one in PAGES if programs(one) and one.name not in ELSEWHERE], ids=str)
def test_the_programs_of_a_page_run_one_after_the_other(page: Path, given: dict[str, Any]) -> None:
    names = dict(given)
    for place, program in enumerate(programs(page)):
        names["store"] = given["store"]  # a block that opens one of its own closes it
        text = program.replace("20250101_120000_a1b2c3", given["session_id"])
        exec(compile(text, f"{page.name}, program {place + 1}", "exec"), names)  # noqa: S102 - our own pages


STRICT = ("README.md", "library.md", "store.md", "caching.md")
"""Pages whose programs `mypy --strict` checks, as they check a reader's."""
GIVEN = """\
# mypy: disable-error-code="no-redef"
from typing import Any
from everlong import Branch, ContextCompressor, Message, Session, Store
messages: list[Message]
conversations: list[list[Message]]
client: Any
request: dict[str, Any]
prompt: str
tools: list[dict[str, Any]]
engine: ContextCompressor
store: Store
branch: Branch
session: Session
def ask(messages: list[Message]) -> tuple[Message, dict[str, Any]]:
    raise NotImplementedError
"""


def test_a_strict_type_checker_accepts_the_programs(tmp_path: Path) -> None:
    for page in PAGES:
        for place, program in enumerate(programs(page) if page.name in STRICT else ()):
            known = "" if program.lstrip().startswith("from") and "\nmessages = [" in program else GIVEN
            (tmp_path / f"{page.stem.lower()}_{place}.py").write_text(f"{known}{program}", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        str(tmp_path),
    ]  # strict, with the cache of `make lint`
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.replace(str(tmp_path), "") == ""
