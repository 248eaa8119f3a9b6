"""The Vercel AI SDK in node, through the gateway: far past the window, with its own tools and streams."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from everlong.testing import ModelServer
from tests.examples import length
from tests.gateway.running import run_gateway
from tests.integrations.desk import FACT, FIRST, QUESTION, clerk, errand, figures

WINDOW = 8_000
TURNS = length(200, 26)
HERE = Path(__file__).parent / "vercel"
PACKAGES = Path(os.environ.get("EVERLONG_TEST_VERCEL", HERE))
"""The folder with ``node_modules``."""


@pytest.mark.parametrize(
    ("api", "stream"),
    [
        pytest.param("openai", False, marks=pytest.mark.smoke),
        ("openai", True),
        ("anthropic", False),
        ("anthropic", True),
    ],
)
def test_many_turns_go_through_a_window_that_holds_a_few_of_them(
    api: str, stream: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = shutil.which("node")
    assert node, "node is not installed"
    shutil.copy(HERE / "talk.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(PACKAGES / "node_modules")
    models = {name: {"context_length": WINDOW} for name in ("gpt-4o", "claude-sonnet-4-6")}
    with ModelServer(clerk, window=WINDOW, dialect="openai") as server:
        with run_gateway(server.url, str(tmp_path / "gateway.db"), {"models": models}) as gateway:
            texts = [FIRST, *map(errand, range(TURNS)), QUESTION]
            asked = json.dumps({"api": api, "url": gateway.url, "stream": stream, "texts": texts})
            done = subprocess.run(
                [node, "talk.mjs"], input=asked, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            answers = json.loads(done.stdout)
        assert answers[1:-1] == [f"The total: {number * 1000 + 17}." for number in range(TURNS)]
        assert answers[-1] == f"The code is {FACT}."
        assert server.rejections == []
        with capsys.disabled():
            print(figures(f"vercel-ai ({api}{', streamed' * stream})", TURNS, server))  # noqa: T201 - wanted
