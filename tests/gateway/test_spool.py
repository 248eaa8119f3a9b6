"""The journal: nothing that was written down is lost, whoever dies and whatever is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everlong.errors import NotStored, StoreUnavailable
from everlong.gateway.spool import Spool, Spooled

FOLDER = "spool"


def entry(number: int) -> Spooled:
    return Spooled("local", "openai", f"body {number}", None, [], "m", None, None, None, "done", None, float(number))


def test_what_is_stored_leaves_no_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path / FOLDER)
    number = spool.put(entry(1))
    assert spool.waiting == 1
    spool.done(number)
    spool.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_could_not_be_stored_is_tried_again_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / FOLDER)
    for number in range(3):
        spool.keep(spool.put(entry(number)), entry(number))
    stored: list[Spooled] = []

    def away(one: Spooled) -> None:
        if len(stored) == 1:
            raise StoreUnavailable("the server is away")
        stored.append(one)

    with pytest.raises(StoreUnavailable):
        spool.retry(away)
    assert (stored, spool.waiting) == ([entry(0)], 2)
    assert spool.retry(stored.append) == 2
    assert (stored, spool.waiting) == ([entry(0), entry(1), entry(2)], 0)


def test_what_a_killed_process_left_is_taken_over_once(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from everlong.gateway.spool import Spool, Spooled\n"
        f"spool = Spool(Path({str(tmp_path / FOLDER)!r}))\n"
        "for number in range(3):\n"
        "    one = Spooled('local', 'openai', f'body {number}', None, [], 'm', None, None, None, 'done', None,"
        " float(number))\n"
        "    spool.put(one)\n"
        "os.write(spool._file, b'[\"half of an ent')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], check=False, env=env)
    stored: list[Spooled] = []
    spool = Spool(tmp_path / FOLDER)
    assert spool.take_over(stored.append) == 3
    assert spool.take_over(stored.append) == 0
    assert [one.body for one in stored] == ["body 0", "body 1", "body 2"]


def test_what_a_process_that_runs_has_is_left_to_it(tmp_path: Path) -> None:
    running = Spool(tmp_path / FOLDER)
    running.put(entry(1))
    assert Spool(tmp_path / FOLDER).take_over(lambda _: None) == 0


def test_what_can_never_be_stored_is_put_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path / FOLDER)
    spool.keep(spool.put(entry(1)), entry(1))

    def never(_: Spooled) -> None:
        raise NotStored("the message that it follows is gone")

    assert spool.retry(never) == 1
    assert spool.waiting == 0
    (aside,) = (tmp_path / FOLDER).glob("*.broken")
    assert "the message that it follows is gone" in aside.read_text()
    assert "body 1" in aside.read_text()


def test_half_a_line_on_a_full_disk_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / FOLDER)
    spool.put(entry(1))
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[:20]))
        with pytest.raises(OSError, match="No space left"):
            spool.put(entry(2))
    spool.put(entry(3))
    (path,) = (tmp_path / FOLDER).glob("*.jsonl")
    assert [json.loads(line)[2] for line in path.read_text().splitlines()] == ["body 1", "body 3"]
    assert spool.waiting == 2
