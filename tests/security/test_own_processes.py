"""Processes that Everlong starts or writes down: a folder's own modules never take the place of ours."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

import everlong
from everlong.processes import own_command
from tests.cli.conftest import run
from tests.waiting import PATIENCE, until

__all__ = ["run"]

HOSTILE = ("everlong", "json", "click", "asyncio", "sqlite3", "sitecustomize", "usercustomize", "aiohttp")


@pytest.fixture
def trace(clone: Path) -> Path:
    """The file that the clone's modules write when one of them runs."""
    trace = clone.parent / "ran"
    for name in HOSTILE:
        (clone / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write('{name}\\n')\n")
    return trace


def plain_environment(home: Path) -> dict[str, str]:
    left_out = ("PYTHONPATH", "PYTHONSAFEPATH", "TELEGRAM_BOT_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "EVERLONG_HOME": str(home), "NO_PROXY": "127.0.0.1"}


def test_a_gateway_in_the_folder_its_inspector_its_channels_and_its_storing_process_run_no_module_of_it(
    home: Path, clone: Path, trace: Path
) -> None:
    (home / "config.yaml").write_text("gateway: {port: 0}\nchannels: {telegram: {enabled: true}}\n")
    errors = clone.parent / "said"
    with errors.open("wb") as said:
        serving = subprocess.Popen(
            [*own_command("everlong"), "serve", "--until-eof"],
            cwd=clone,
            env=plain_environment(home),
            stdin=subprocess.PIPE,
            stderr=said,
        )
    try:
        found = until(lambda: re.search(r"listening on (http://\S+?),", errors.read_text()) or serving.poll())
        assert isinstance(found, re.Match), errors.read_text()
        page = urllib.request.urlopen(f"{found[1]}/inspector", timeout=PATIENCE)  # noqa: S310 - our own
        assert page.status == 200
        until(lambda: "the channels ended" in errors.read_text())  # they have no token
    finally:
        serving.communicate()
    assert not trace.exists(), f"the folder's own code ran: {trace.read_text().split()}"


def test_no_other_place_of_the_source_spells_a_command_of_our_own() -> None:
    root = Path(everlong.__file__).parent
    by_hand = re.compile(r"sys\.executable|\"-m\",\s*f?\"everlong|\"-c\",\s*f?\"(?:import|from)")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if by_hand.search(path.read_text())}
    assert found == {"processes.py"}
