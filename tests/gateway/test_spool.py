"""The journal: nothing that was written down is lost, whoever dies and whatever is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everlong.errors import NotStored, StoreUnavailable
from everlong.gateway.journal import Spool, Spooled

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
        "import os, sys; from pathlib import Path; from everlong.gateway.journal import Spool, Spooled\n"
        f"spool = Spool(Path({str(tmp_path / FOLDER)!r}))\n"
        "for number in range(3):\n"
        "    one = Spooled('local', 'openai', f'body {number}', None, [], 'm', None, None, None, 'done', None,"
        " float(number))\n"
        "    spool.put(one)\n"
        "os.write(spool._file.handle, b'[\"half of an ent')\n"
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


@pytest.mark.spec("12.7")
def test_a_file_is_taken_over_though_its_number_is_that_of_a_process_that_runs(tmp_path: Path) -> None:
    """In a container every gateway is process 1, also the one after a kill -9."""
    left = Spool(tmp_path / FOLDER)
    left.put(entry(1))
    (path,) = (tmp_path / FOLDER).glob("*.jsonl")
    lines = path.read_bytes()
    left.done(1)
    left.close()
    (tmp_path / FOLDER / f"1-{os.getpid()}-abcdef.jsonl").write_bytes(lines)
    stored: list[Spooled] = []
    assert Spool(tmp_path / FOLDER).take_over(stored.append) == 1
    assert [one.body for one in stored] == ["body 1"]


HOLDS = """
import sys
from pathlib import Path
from everlong.gateway.journal import Spool, Spooled
spool = Spool(Path(sys.argv[1]))
spool.put(Spooled('local', 'openai', 'body', None, [], 'm', None, None, None, 'done', None, 1.0))
print('written', flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("12.7")
def test_a_file_is_left_to_a_process_that_runs_where_its_number_is_not_known(tmp_path: Path) -> None:
    """As of a gateway in another container that shares the folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", HOLDS, str(tmp_path / FOLDER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"written\n"
        (path,) = (tmp_path / FOLDER).glob("*.jsonl")
        path = path.rename(path.with_name("1-2147483646-abcdef.jsonl"))  # no system has that process
        spool, stored = Spool(tmp_path / FOLDER), list[Spooled]()
        assert spool.take_over(stored.append) == 0
        assert path.exists()
        holder.kill()
    assert spool.take_over(stored.append) == 1
    assert not list((tmp_path / FOLDER).iterdir())


def test_a_take_over_that_was_cut_short_is_done_by_the_next(tmp_path: Path) -> None:
    left = Spool(tmp_path / FOLDER)
    left.put(entry(1))
    (path,) = (tmp_path / FOLDER).glob("*.jsonl")
    path.with_name("2-1-abcdef.1-1-fedcba.taken").write_bytes(path.read_bytes())  # as an older version leaves it
    stored: list[Spooled] = []
    assert Spool(tmp_path / FOLDER).take_over(stored.append) == 1
    left.done(1)
    left.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_room_for_answers_is_kept_while_the_disk_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / FOLDER)
    spool.put_request(entry(1))
    (reserve,) = (tmp_path / FOLDER).glob("*.reserve")
    assert reserve.stat().st_blocks * 512 >= 1_000_000
    write = os.write

    def full(file: int, data: bytes) -> int:
        if reserve.exists():
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    spool.put(entry(2))
    assert not reserve.exists()
    spool.done(1)
    spool.done(2)
    spool.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


@pytest.mark.spec("12.8")
def test_what_is_stored_leaves_the_journal_also_while_something_else_waits(tmp_path: Path) -> None:
    spool = Spool(tmp_path / FOLDER)
    first, waiting = spool.put(entry(1)), spool.put(entry(2))
    spool.done(first)
    spool.tidy()
    second = spool.put(entry(3))
    spool.done(waiting)
    told = b"".join(path.read_bytes() for path in (tmp_path / FOLDER).glob("*.jsonl"))
    assert (b"body 1" in told, b"body 2" in told, b"body 3" in told) == (False, False, True)
    spool.done(second)
    spool.tidy()
    assert all(not path.stat().st_size for path in (tmp_path / FOLDER).glob("*.jsonl"))
    spool.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


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
