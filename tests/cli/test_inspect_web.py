"""``everlong inspect --web`` and ``everlong demo --web``: a page over a file or a store, until it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from everlong.cli.demo import MODEL, PRICES, load_session, play
from everlong.config import ModelSettings, Settings
from everlong.inspector.security import Watch
from everlong.store import Store
from tests.cli.conftest import Run
from tests.context.builders import assistant, user
from tests.inspector.conftest import run_site
from tests.program import everlong_program
from tests.waiting import PATIENCE


@contextmanager
def inspecting(*arguments: str, command: tuple[str, ...] = ("inspect",)) -> Iterator[str]:
    """The address of an inspector that runs as a program; it has to end well when it is told to."""
    process = subprocess.Popen(
        [*everlong_program(), *command, "--web", "--no-browser", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stderr is not None
    try:
        found = next((match for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\S+", line))), None)
        assert found is not None, "it did not say where it is"
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def read(address: str) -> str:
    with urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - our own address
        text: str = answer.read().decode()
    return text


def test_a_file_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps([user("Where is the harbour?"), assistant("In Grönvik.")]))
    with inspecting(str(file)) as address:
        assert "talk.json" in read(address)
        assert "Where is the <mark>harbour</mark>?" in read(f"{address}search?q=harbour")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["talk.json"]


def test_the_requests_of_a_file_are_played_and_a_compaction_can_be_tried(run: Run, tmp_path: Path) -> None:
    talk = [user("Where is the harbour?"), assistant("In Grönvik. " * 200)] * 40
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"model": "claude-sonnet-4-5", "messages": talk}))
    tokens = run("inspect", str(file), "--json").json["conversations"][0]["tokens"]
    with inspecting(str(file)) as address:
        found = re.search(r"/inspector/c/[^/\"]+", read(address))
        assert found is not None
        page = address.removesuffix("/inspector/") + found[0]
        assert f"About {tokens:,} tokens would be sent" in read(page)
        assert "Requests: 40." in read(f"{page}/timeline")
        assert "$0.0" in read(f"{page}/timeline")
        offer = read(f"{page}/compactions")
        token = re.search(r'name="token" value="(\w+)"', offer)
        assert token is not None
        form = urlencode({"token": token[1], "window": "8000"}).encode()
        sent = Request(f"{page}/compact", form, {"Origin": address.removesuffix("/inspector/")})  # noqa: S310 - ours
        with urlopen(sent, timeout=PATIENCE) as answer:  # noqa: S310 - ours
            assert answer.url == f"{page}/compactions/1"
        assert "Summary" in read(page)
        assert "of the window of 8,000 for which a compaction was tried" in read(page)


def test_the_demo_leaves_a_conversation_with_requests_and_compactions(tmp_path: Path) -> None:
    session, _ = load_session()
    with Store.open(tmp_path / "demo.db") as store:
        played = play(session[:120], 8_192, store)
        found = store.conversations.get(played[-1].conversation)
        assert found.messages == sum(message["role"] != "system" for message in session[:120])
        assert found.compactions >= 1
        assert found.cost == pytest.approx(played[-1].dollars)
        settings = Settings(models={MODEL: ModelSettings(context_length=8_192, **PRICES)})
        for site in run_site(store, Watch(), settings):
            words = site.get("/inspector/cost?age=all").words
        told = re.search(r"Compactions: \d+ (.+?) \(estimated\) .* = (\S+) \(estimated\)", words)
        assert told is not None
        assert told[2].lstrip("−") in told[1]
