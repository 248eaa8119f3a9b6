"""The journal: nothing that was written down is lost, whoever dies and whatever is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everlong.gateway.journal import Journal, JournalEntry
from everlong.gateway.upkeep import store_left_behind
from everlong.store import Store
from everlong.store.turns import FinishedTurn

FOLDER = "journal"


def entry(number: int) -> JournalEntry:
    turn = FinishedTurn(model="m", began=float(number), names=[])
    return JournalEntry("local", "openai", turn, f"body {number}", messages=[])


def kept_in(journal: Journal) -> list[JournalEntry]:
    """Return the entries that are to be stored, and say that they are."""
    found = [one for batch in journal.batches() for one in batch]
    for number, _ in found:
        journal.done(number)
    return [entry for _, entry in found]


def test_what_could_not_be_stored_is_tried_again_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FOLDER)
    for number in (2, 0, 1):
        journal.put(entry(number))
    for number in (3, 1, 2):
        journal.keep(number)
    ((first, one), *others) = next(journal.batches())
    journal.done(first)  # then the server was away
    assert (one, len(others), journal.waiting) == (entry(2), 2, 2)
    assert kept_in(journal) == [entry(0), entry(1)]
    assert (journal.kept, journal.waiting) == (0, 0)


def test_what_a_killed_process_left_is_taken_over_once(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from everlong.gateway.journal import Journal, JournalEntry\n"
        "from everlong.store.turns import FinishedTurn\n"
        f"journal = Journal(Path({str(tmp_path / FOLDER)!r}))\n"
        "for number in range(3):\n"
        "    one = JournalEntry('local', 'openai', FinishedTurn(model='m', began=float(number)), f'body {number}')\n"
        "    journal.put(one)\n"
        "os.write(journal._file.handle, b'[\"half of an ent')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], check=False, env=env)
    journal = Journal(tmp_path / FOLDER)
    assert journal.take_over() == 4
    assert journal.take_over() == 0
    assert [one.body for one in kept_in(journal)] == ["body 0", "body 1", "body 2"]
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_was_left_behind_is_stored_before_what_came_later(tmp_path: Path) -> None:
    left, journal = Journal(tmp_path / FOLDER), Journal(tmp_path / FOLDER)
    journal.keep(journal.put(entry(3)))
    left.put(entry(1))
    left.put(entry(2))
    (path,) = (file for file in (tmp_path / FOLDER).glob("*.jsonl") if b"body 1" in file.read_bytes())
    path.rename(path.with_name("1-1-abcdef.jsonl"))  # as begun earlier
    left.close()
    assert journal.take_over() == 2
    assert kept_in(journal) == [entry(1), entry(2), entry(3)]


def test_what_was_left_behind_for_another_store_is_left_alone(tmp_path: Path) -> None:
    """A gateway that is tried out beside one with a database of its own takes none of its conversations."""
    left = Journal(tmp_path / FOLDER, "/srv/team.db")
    left.put(entry(1))
    left.close()
    tried_out, next_one = Journal(tmp_path / FOLDER, "/srv/try.db"), Journal(tmp_path / FOLDER, "/srv/team.db")
    assert tried_out.take_over() == 0
    with Store.open(tmp_path / "other.db") as other:
        assert store_left_behind(lambda _: other, tmp_path / FOLDER, "/srv/try.db") == 0
    assert next_one.take_over() == 1
    assert kept_in(next_one) == [entry(1)]


def test_a_large_entry_stands_in_a_file_of_its_own_and_in_its_turn(tmp_path: Path) -> None:
    left = Journal(tmp_path / FOLDER)
    large = entry(2)._replace(body="x" * 5_000_000)
    for one in (entry(1), large, entry(3)):
        left.put(one)
    assert len(list((tmp_path / FOLDER).glob("*.jsonl"))) == 3
    left.close()
    journal = Journal(tmp_path / FOLDER)
    assert journal.take_over() == 3
    assert kept_in(journal) == [entry(1), large, entry(3)]
    assert list((tmp_path / FOLDER).iterdir()) == []


@pytest.mark.spec("12.7")
def test_a_file_is_taken_over_though_its_number_is_that_of_a_process_that_runs(tmp_path: Path) -> None:
    """In a container every gateway is process 1, also the one after a kill -9."""
    left = Journal(tmp_path / FOLDER)
    left.put(entry(1))
    (path,) = (tmp_path / FOLDER).glob("*.jsonl")
    lines = path.read_bytes()
    left.done(1)
    left.close()
    (tmp_path / FOLDER / f"1-{os.getpid()}-abcdef.jsonl").write_bytes(lines)
    journal = Journal(tmp_path / FOLDER)
    assert journal.take_over() == 1
    assert [one.body for one in kept_in(journal)] == ["body 1"]


HOLDS = """
import sys
from pathlib import Path
from everlong.gateway.journal import Journal, JournalEntry
from everlong.store.turns import FinishedTurn
journal = Journal(Path(sys.argv[1]))
journal.put(JournalEntry('local', 'openai', FinishedTurn(model='m', began=1.0), 'body'))
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
        journal = Journal(tmp_path / FOLDER)
        assert journal.take_over() == 0
        assert path.exists()
        holder.kill()
    assert journal.take_over() == 1
    assert len(kept_in(journal)) == 1
    assert not list((tmp_path / FOLDER).iterdir())


@pytest.mark.spec("12.7")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder"])
def test_what_is_no_file_of_a_journal_is_left_alone(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left, target = Journal(tmp_path / FOLDER), tmp_path / "notes.txt"
    left.put(entry(1))
    left.close()
    target.write_text("my notes\n")
    placed = tmp_path / FOLDER / "1-1-abcdef.jsonl"
    if kind == "link":
        placed.symlink_to(target)
    elif kind == "second name":
        placed.hardlink_to(target)
    elif kind == "pipe":
        os.mkfifo(placed)
    else:
        placed.mkdir()
    journal = Journal(tmp_path / FOLDER)
    assert [journal.take_over(), journal.take_over()] == [1, 0]
    assert kept_in(journal) == [entry(1)]
    journal.close()
    assert target.read_text() == "my notes\n"
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [placed.name]
    assert caplog.text.count(placed.name) == 1


def test_a_damaged_entry_is_put_aside_and_half_a_one_is_not(tmp_path: Path) -> None:
    left = Journal(tmp_path / FOLDER)
    left.put(entry(1))
    left.close()
    (path,) = (tmp_path / FOLDER).glob("*.jsonl")
    path.write_bytes(b'["local", "openai", oops]\n' + path.read_bytes() + b'["local", "ope')
    journal = Journal(tmp_path / FOLDER)
    assert journal.take_over() == 3
    assert kept_in(journal) == [entry(1)]
    (aside,) = (tmp_path / FOLDER).iterdir()
    assert aside.read_bytes() == b'["local", "openai", oops]\n'


@pytest.mark.parametrize(
    ("place", "value"), [(0, 5), (0, ["local"]), (1, {}), (1, "telepathy"), (3, []), (3, {}), (10, "noon"), (10, [1.0])]
)
def test_an_entry_that_nobody_can_place_holds_up_no_other(place: int, value: object, tmp_path: Path) -> None:
    values = json.loads(good(1).to_line())
    values[place] = value
    (tmp_path / FOLDER).mkdir()
    lines = [good(2).to_line(), json.dumps(values).encode() + b"\n", good(3).to_line()]
    (tmp_path / FOLDER / "1-1-abcdef.jsonl").write_bytes(b"".join(lines))
    with Store.open(tmp_path / "store.db") as store:
        store_left_behind(lambda tenant: Store(store.database, tenant), tmp_path / FOLDER)
        assert [turn.began for turn in store.turns.since()] == [2.0, 3.0]
    (aside,) = (tmp_path / FOLDER).iterdir()
    assert aside.suffix == ".broken"


def good(number: int) -> JournalEntry:
    asked = {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]}
    return entry(number)._replace(body=json.dumps(asked))


def test_tenants_take_turns(tmp_path: Path) -> None:
    left = Journal(tmp_path / FOLDER)
    for number in range(150):
        left.put(entry(number))
    left.put(entry(150)._replace(tenant='ada "the first"'))
    left.close()
    journal = Journal(tmp_path / FOLDER)
    journal.take_over()
    sizes = [(batch[0][1].tenant, len(batch)) for batch in journal.batches()]
    assert sizes == [("local", 64), ('ada "the first"', 1), ("local", 64), ("local", 22)]


@pytest.mark.parametrize("large", [0, 1, 2])
def test_room_for_answers_is_kept_while_the_disk_fills_also_beside_a_request_with_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    journal = Journal(tmp_path / FOLDER)
    for number in (1, 2):
        body = "fog " * 1_200_000 if number == large else None
        journal.put_request(entry(number)._replace(body=body))
    (reserve,) = (tmp_path / FOLDER).glob("*.reserve")
    assert reserve.stat().st_blocks * 512 >= 1_000_000
    write = os.write

    def full(file: int, data: bytes) -> int:
        if reserve.exists():
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    for number in (journal.put(entry(3)), 1, 2):
        journal.done(number)
    journal.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


@pytest.mark.spec("12.8")
def test_what_is_stored_leaves_the_journal_also_while_something_else_waits(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FOLDER)
    first, waiting = journal.put(entry(1)), journal.put(entry(2))
    journal.done(first)
    journal.tidy()
    second = journal.put(entry(3))
    journal.done(waiting)
    told = b"".join(path.read_bytes() for path in (tmp_path / FOLDER).glob("*.jsonl"))
    assert (b"body 1" in told, b"body 2" in told, b"body 3" in told) == (False, False, True)
    journal.done(second)
    journal.tidy()
    assert all(not path.stat().st_size for path in (tmp_path / FOLDER).glob("*.jsonl"))
    journal.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_half_a_line_on_a_full_disk_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / FOLDER)
    journal.put(entry(1))
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[:20]))
        with pytest.raises(OSError, match="No space left"):
            journal.put(entry(2))
    journal.put(entry(3))
    (path,) = (tmp_path / FOLDER).glob("*.jsonl")
    assert [json.loads(line)[2] for line in path.read_text().splitlines()] == ["body 1", "body 3"]
    assert journal.waiting == 2
