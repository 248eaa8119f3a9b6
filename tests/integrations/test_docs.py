"""The examples of the documentation, run as they stand there, with the clients' addresses in the environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from everlong import integrations
from everlong.testing import ModelServer

PAGE = Path(__file__).parent.parent.parent / "docs" / "integrations.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


NAMES = ["wrap_client", "langchain", "langgraph"]
TELL = "\nprint(reply if isinstance(reply, str) else reply['messages'][-1].content)\n"


def run_examples(*names: str) -> None:
    """Run examples of the page, and look at their answers; in one process, because the frameworks take long to load."""
    examples = dict(zip(NAMES, EXAMPLES, strict=True))
    code = "".join(f"exec({examples[name] + TELL!r}, {{}})\n" for name in names)
    with ModelServer("Good morning to you.", dialect="openai") as server:
        environment = os.environ | {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        environment |= {"OPENAI_API_BASE": server.openai_url}
        environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("Good morning to you.\n" * len(names), 0), done.stderr
        assert len(server.requests) >= len(names)
        assert server.rejections == []


def test_the_examples_of_the_documentation_answer() -> None:
    run_examples(*NAMES)


@pytest.mark.parametrize("name", integrations.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert f"`{name}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("EverlongMiddleware", "langchain", "langchain"), ("KeptModel", "langchain_core", "langgraph")],
)
def test_a_framework_that_is_not_installed_is_named_with_what_to_install(name: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from everlong.integrations import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = f"ImportError: {name} needs a package that is not installed: pip install {extra}"
    assert done.stderr.splitlines()[-1] == wanted
